"""The process that parses documents: what it may take, what it may do, and what a broken file becomes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.documents import ReadingLimits, document_from_bytes, load_document, sandbox
from orchestrator.errors import DocumentError
from tests.orchestrator.made_documents import pdf, word_with

MIB = 1024**2


def refusal(data: bytes, **limits: Any) -> str:
    with pytest.raises(DocumentError) as raised:
        document_from_bytes(data, "upload", limits=ReadingLimits(**limits))
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix("upload ")


def test_a_file_is_read_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "notes.md"
    path.write_bytes(pdf([["text of a PDF"]]))
    document = load_document(path)
    assert (document.title, document.text) == ("notes.md", "text of a PDF")


BROKEN = {
    "pdf": (lambda: pdf([["text"]])[:300], "is damaged: it cannot be read as a PDF file"),
    "nonsense": (lambda: b"%PDF-1.7\nnonsense", "is damaged: it cannot be read as a PDF file"),
    "word": (
        lambda: word_with({"word/document.xml": b"<w:document>"}),
        "is damaged: it cannot be read as a Word document",
    ),
    "html": (lambda: b"<html><body><script>x</script></body></html>", "is empty or blank"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_become_a_sentence(name: str) -> None:
    make, sentence = BROKEN[name]
    assert refusal(make()) == sentence


def test_memory_is_limited() -> None:
    page = b"<html><body>" + b"<p><b>x</b>" * 200_000
    assert refusal(page, memory_bytes=256 * MIB) == "needs more than 256 MiB of memory to be read"


def test_time_is_limited() -> None:
    assert refusal(pdf([["text"]]), seconds=0.05).startswith("takes more than 0.05 seconds")


def test_text_is_limited() -> None:
    page = b"<html><body><p>" + b"words " * 1000
    assert refusal(page, document_bytes=len(page) - 1).startswith("has more than")
    assert refusal(pdf([["words " * 99] * 99]), document_bytes=9000).startswith("holds")


@pytest.mark.parametrize(
    ("attempt", "outcome"),
    [
        ("import socket; socket.create_connection(('127.0.0.1', 1))", "PermissionError"),
        ("import subprocess; subprocess.run(['true'])", "PermissionError"),
        ("import os; os.system('true')", "PermissionError"),
        ("open('{file}', 'w', buffering=1).write('text\\n')", "File too large"),
        ("bytearray(2**30)", "MemoryError"),
        ("while True: pass", -signal.SIGXCPU),
    ],
    ids=["connect", "run", "shell", "write", "memory", "time"],
)
def test_the_process_has_given_up_its_powers(attempt: str, outcome: str | int, tmp_path: Path) -> None:
    program = (
        "from orchestrator.documents.child import ReadingLimits, give_up_powers\n"
        f"give_up_powers(ReadingLimits(seconds=1, memory_bytes={512 * MIB}))\n"
        + attempt.replace("{file}", str(tmp_path / "file"))
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if isinstance(outcome, int):
        assert done.returncode == outcome
    else:
        assert outcome in done.stderr.splitlines()[-1]


def test_the_process_knows_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCEXPRESS_REDIS_URL", "redis://:secret@somewhere")
    assert sandbox.environment().keys() == {"PYTHONPATH", "PYTHONUTF8"}
