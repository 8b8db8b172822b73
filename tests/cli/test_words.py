"""Figures, sentences and control characters: the text that the command line prints."""

import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rich.cells import cell_len

from cache_store import errors as store
from orchestrator import errors
from orchestrator.cli import figures
from orchestrator.cli.failures import explain
from orchestrator.cli.tables import print_table
from orchestrator.cli.terminal import clean, print_json, print_text
from orchestrator.cli.word_wrap import WordWrap
from orchestrator.embedded.errors import StartFailed
from orchestrator.settings import Settings

HOSTILE = "a\x1b[2Jb\x07c\x9b31md\x7fe\rf\u202eg\u2066h\x00i\ud800j"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (47_185_920, "47.2 MB"),
        (922_733_888, "923 MB"),
        (10**13, "10.0 TB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert figures.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (9.96, "10 s"),
        (59.6, "1 min 00 s"),
        (125, "2 min 05 s"),
        (11_234, "3 h 07 min"),
        (604_765, "7 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert figures.duration(seconds) == text


def test_counts_and_ratios() -> None:
    assert figures.count(1, "segment") == "1 segment"
    assert figures.count(20_031, "token") == "20,031 tokens"
    assert figures.ratio(922, 47) == "20×"
    assert figures.ratio(3, 2) == "1.5×"
    assert figures.ratio(3, 0) == "0.0×"


def test_control_characters_become_visible_and_letters_stay() -> None:
    shown = clean(HOSTILE + "\n\tÄ字😀")
    assert shown.endswith("\n\tÄ字😀")
    assert not any(
        ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in shown.replace("\n", "").replace("\t", "")
    )
    assert "␛[2J" in shown


def test_text_and_tables_are_printed_clean(capsys: pytest.CaptureFixture[str]) -> None:
    print_text(HOSTILE)
    print_table(["NAME"], [[HOSTILE], ["x" * 100]])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    assert max(map(len, shown.splitlines())) <= 60


def test_json_keeps_the_value_and_no_raw_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": HOSTILE + "字"})
    shown = capsys.readouterr().out
    assert json.loads(shown) == {"text": HOSTILE + "字"}
    assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in shown.removesuffix("\n"))
    assert "字" in shown


def invalid_setting() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Settings(state_ttl_seconds="soon")  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (errors.DocumentError("it is blank"), 2, "it is blank"),
        (errors.JobFailed("j", "no such policy", retryable=False, invalid=True), 2, "no such policy"),
        (errors.JobFailed("j", "all workers died", retryable=True, invalid=False), 1, "all workers died"),
        (errors.JobCancelled("j"), 1, "cancelled"),
        (errors.NotFinished("j", "prefill"), 1, "prefill"),
        (store.ObjectMissing("there is no state abc"), 2, "abc"),
        (store.BudgetExceeded("no room"), 1, "no room"),
        (store.StoreUnavailable("not reached"), 1, "not reached"),
        (StartFailed("The worker ended: no such model", 2), 2, "no such model"),
        (typer.BadParameter("not a number"), 2, "not a number"),
        (invalid_setting(), 2, "DOCEXPRESS_STATE_TTL_SECONDS"),
        (PermissionError(13, "Permission denied", "out.state"), 1, "out.state: Permission denied"),
        (RuntimeError("a\nb\x1b"), 1, "unexpected RuntimeError: a b␛"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_every_failure_has_a_code_and_one_line(error: Exception, code: int, words: str) -> None:
    found, sentence = explain(error)
    assert found == code
    assert words in sentence
    assert "\n" not in sentence


@given(st.text(st.sampled_from("ab 字\n")), st.integers(1, 20), st.integers(1, 7))
def test_words_are_wrapped_and_nothing_else_is_changed(text: str, width: int, piece: int) -> None:
    wrap = WordWrap(width)
    shown = "".join(wrap.add(text[i : i + piece]) for i in range(0, len(text), piece)) + wrap.flush()
    if all(cell_len(word) <= width for word in text.split()):
        assert shown.split() == text.split()
    assert "".join(shown.split()) == "".join(text.split())
    assert all(cell_len(line) <= max(width, 2) for line in shown.splitlines())
    whole = WordWrap(width)
    assert whole.add(text) + whole.flush() == shown


def test_a_line_is_broken_between_words() -> None:
    wrap = WordWrap(10)
    assert wrap.add("one two three four") + wrap.flush() == "one two \nthree four"
