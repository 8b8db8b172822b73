"""Every file of the shared documents behaves as its expectation says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.documents import load_document
from orchestrator.errors import DocumentError
from tests.shared_data import ABSENT, EXPECTATIONS, INPUTS

pytestmark = [pytest.mark.data, pytest.mark.skipif(not EXPECTATIONS.is_file(), reason=ABSENT)]
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads(EXPECTATIONS.read_text()) if EXPECTATIONS.is_file() else {"all": {}}
)
# What must not be in the text of an accepted file.
NOISE = {
    "utf8_bom.txt": ["\ufeff"],
    "crlf.txt": ["\r"],
    "latin1.txt": ["\ufffd", "Ã", "\r"],
    "utf16le_bom.txt": ["\x00", "\ufeff", "\ufffd"],
    "truncated_utf8.txt": ["â€", "Ã"],
    "control_chars.txt": ["\x00", "\x1b", "\x07", "\x08", "\x0c"],
    "page.html": ["tracking", "serif", "a comment", "Log in", "Advertisement", "Hidden text", "JavaScript"],
    "report.pdf": ["Modern Prometheus\nPage"],
}
REASONS = {
    "refuse: empty document": "empty",
    "refuse: not text": "binary",
    "refuse: no text in the PDF": "no text",
    "refuse: encrypted": "encrypted",
    "refuse: damaged file": "damaged",
    "refuse by unpacked size before holding it all in memory": "unpacks to more",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_does_as_expected(name: str) -> None:
    expected = EXPECTED[name]
    if expected["expect"].startswith("refuse"):
        with pytest.raises(DocumentError, match=REASONS[expected["expect"]]) as raised:
            load_document(INPUTS / name)
        assert "\n" not in str(raised.value)
        return
    text = load_document(INPUTS / name).text
    words = " ".join(text.split())
    assert [part for part in expected["must_contain"] if part not in words and part not in text] == []
    assert [part for part in NOISE.get(name, []) if part in text] == []


def test_the_text_of_a_pdf_is_in_order() -> None:
    text = load_document(INPUTS / "report.pdf").text
    assert text.index("I am by birth a Genevese") < text.index("It was on a dreary night of November")


def test_accents_are_right() -> None:
    assert "Pávlovna" in load_document(INPUTS / "latin1.txt").text
