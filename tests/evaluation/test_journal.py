"""A stopped evaluation goes on; foreign results are refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
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


def test_results_of_before_there_was_an_estimate_are_read(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    old = {key: value for key, value in asdict(result("a")).items() if key != "estimate"}
    path.write_text(json.dumps(ABOUT, sort_keys=True) + "\n" + json.dumps(old) + "\n", encoding="utf-8")
    journal = Journal(path, ABOUT)
    journal.add(replace(result("b"), estimate=0.25))
    assert [found.estimate for found in Journal(path, ABOUT)] == [None, 0.25]


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
