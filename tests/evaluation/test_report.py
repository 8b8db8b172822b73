"""The report counts flips apart, and says what is beside each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluation.agreement import ALL_METHODS, agreements
from evaluation.agreement import as_table as estimates_table
from evaluation.journal import Result
from evaluation.methods import OWN_SEGMENT
from evaluation.plots import draw
from evaluation.report import as_json, as_table, summarized


def result(case: str, method: str, compression: float, score: float, probe: float = 0.0) -> Result:
    return Result("needle", "g", case, method, compression, 50, score, "", 10.0, 300, 4.0, probe, probe / 2)


def results() -> list[Result]:
    rows = []
    for number, (whole, compressed) in enumerate([(1, 1), (1, 0), (1, 1), (0, 1), (0, 0)]):
        case = f"c{number}"
        rows.append(result(case, "uncompressed", 1.0, whole))
        rows.append(result(case, "snapkv", 4.0, compressed, probe=0.4))
        rows.append(Result("kl", "512 entries", case, "snapkv", 15.0, 512, 0.1 * number))
    return rows


def test_flips_are_counted_in_both_directions() -> None:
    lines = {(line.task, line.method): line for line in summarized(results())}
    line = lines["needle", "snapkv"]
    assert (line.cases, line.score, line.lost, line.gained) == (5, 0.6, 1, 1)
    assert (line.kept, line.kept_of) == (2 / 3, 3)
    assert (round(line.probe_share, 6), round(line.fold_share, 6)) == (0.1, 0.05)
    assert lines["kl", "snapkv"].kept is None
    assert 0.0 < lines["kl", "snapkv"].low < 0.2 < lines["kl", "snapkv"].high


def test_beyond_the_window_the_segment_that_answers_is_the_measure() -> None:
    rows = []
    for number, (alone, again, rank) in enumerate([(1, 1, 1), (1, 0, 4), (0, 1, 2)]):
        case = f"c{number}"
        rows.append(Result("far-needle", "g", case, OWN_SEGMENT, 1.0, 0, alone))
        rows.append(Result("far-needle", "g", case, "words", 1.0, 0, again, rank=rank))
    lines = {line.method: line for line in summarized(rows)}
    line = lines["words"]
    assert (line.kept, line.kept_of, line.lost, line.gained) == (0.5, 2, 1, 1)
    assert (line.first, line.in_three) == (1 / 3, 2 / 3)
    assert lines[OWN_SEGMENT].first is None
    assert "| 0.33, 0.67 |" in as_table([line])


def test_table_json_and_pictures(tmp_path: Path) -> None:
    lines = summarized(results())
    table = as_table(lines)
    assert "| 4× | snapkv | 5 | 0.600 |" in table
    assert "## kl, 512 entries (lower is better)" in table
    assert json.loads(json.dumps(as_json(lines, {"model": "m"})))["lines"][0]["task"] == "kl"
    pictures = draw(lines, results(), tmp_path)
    assert {path.name for path in pictures} == {"kl.png", "needle.png", "needle-1x.png", "needle-4x.png"}
    assert all(path.stat().st_size > 1000 for path in pictures)


def test_the_estimate_is_set_against_what_was_measured() -> None:
    rows = [
        Result("kl", "512 entries", f"w{number}", method, 15.0, 512, score, estimate=estimate)
        for method, figures in {
            "snapkv": ((0.1, 0.01), (0.2, 0.03), (0.3, 0.02), (0.4, 0.10)),
            "express": ((0.9, 0.05), (0.8, 0.07), (0.7, 0.08), (0.6, 0.09)),
        }.items()
        for number, (estimate, score) in enumerate(figures)
    ]
    together, express, snapkv = agreements([*results(), *rows])
    assert (together.method, express.method, snapkv.method) == (ALL_METHODS, "express", "snapkv")
    assert (snapkv.cases, snapkv.estimate, snapkv.score) == (4, pytest.approx(0.25), pytest.approx(0.04))
    assert (snapkv.rho, express.rho) == (pytest.approx(0.8), pytest.approx(-1.0))
    # Ranks of the estimates 1 2 3 4 8 7 6 5, of the scores 1 3 2 8 4 5 6 7: 1 - 6 * 42 / (8 * 63)
    assert (together.cases, together.rho) == (8, pytest.approx(1 - 6 * 42 / 504))
    table = estimates_table([together, express, snapkv])
    assert "| kl, 512 entries | all methods | 8 | 0.500 | 0.056 | 0.50 | – |" in table
    assert "| kl, 512 entries | snapkv | 4 | 0.250 | 0.040 | 0.80 | -0.82 to 1.00 |" in table
    assert estimates_table(agreements(results())) == ""
    one = agreements(rows[:1])
    text = json.dumps(as_json([], {"model": "m"}, one), allow_nan=False)
    assert json.loads(text)["estimates"][0]["rho"] is None
