"""A stopped evaluation goes on; foreign results are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.errors import JournalForeign
from evaluation.journal import Journal, Result

ABOUT: dict[str, str | int] = {"model": "tiny", "profile": "short"}


def result(case: str, score: float = 1.0) -> Result:
    return Result("needle", "g", case, "express", 4.0, 100, score, "the “answer”\nis here")


def test_results_are_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "out" / "results.jsonl"
    journal = Journal(path, ABOUT)
    journal.add(result("a"))
    again = Journal(path, ABOUT)
    assert list(again) == [result("a")]
    assert result("a").key in again
    assert result("b").key not in again


def test_a_line_cut_by_a_kill_is_dropped_and_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    journal = Journal(path, ABOUT)
    journal.add(result("a"))
    journal.add(result("b"))
    path.write_bytes(path.read_bytes()[:-20])
    again = Journal(path, ABOUT)
    assert [found.case for found in again] == ["a"]
    again.add(result("b"))
    assert [found.case for found in Journal(path, ABOUT)] == ["a", "b"]


def test_results_of_other_work_are_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "r.jsonl", ABOUT)
    with pytest.raises(JournalForeign, match="holds results of"):
        Journal(tmp_path / "r.jsonl", ABOUT | {"model": "other"})
