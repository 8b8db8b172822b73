"""The report counts flips apart, and says what is beside each other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.agreement import ALL_METHODS, agreements
from evaluation.agreement import as_table as estimates_table
from evaluation.journal import Result
from evaluation.methods import OWN_SEGMENT
from evaluation.plots import draw
from evaluation.report import as_json, as_table, summarized
from evaluation.streams import as_table as streams_table
from evaluation.streams import streams


def result(case: str, method: str, compression: float, score: float, probe: float = 0.0) -> Result:
    return Result("needle", "g", case, method, compression, 50, score, "", 10.0, 300, 4.0, probe, probe / 2)


def results() -> list[Result]:
    rows = []
    for number, (whole, compressed) in enumerate([(1, 1), (1, 0), (1, 1), (0, 1), (0, 0)]):
        case = f"c{number}"
        rows.append(result(case, "uncompressed", 1.0, whole))
        rows.append(result(case, "snapkv", 4.0, compressed, probe=0.4))
        book = "novel" if number < 3 else "manual"
        rows.append(Result("kl", "512 entries", f"{book}-{number}", "snapkv", 15.0, 512, 0.1 * number))
        rows.append(Result("stream", f"{4 * number}k", f"s-{number}", "streaming", 0.0, 9, 3.0))
        rows.append(Result("stream", f"{4 * number}k", f"s-{number}", "express", 0.0, 9, 3.1 + number))
    return rows


def test_flips_are_counted_in_both_directions() -> None:
    lines = {(line.task, line.group, line.method): line for line in summarized(results())}
    line = lines["needle", "g", "snapkv"]
    assert (line.cases, line.score, line.lost, line.gained) == (5, 0.6, 1, 1)
    assert (line.kept, line.kept_of) == (2 / 3, 3)
    assert (round(line.probe_share, 6), round(line.fold_share, 6)) == (0.1, 0.05)
    books = [lines["kl", group, "snapkv"] for group in ("all books", "novel", "manual")]
    assert [(book.cases, round(book.score, 6)) for book in books] == [(5, 0.2), (3, 0.1), (2, 0.35)]
    assert books[0].kept is None
    assert 0.0 < books[0].low < 0.2 < books[0].high


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


def test_streams_are_shown_by_part_and_beside_streaming_llm() -> None:
    express, beside = streams(results())
    assert (express.method, dict(express.parts)) == (
        "express",
        pytest.approx({0: 3.1, 4: 4.1, 8: 5.1, 12: 6.1, 16: 7.1}),
    )
    assert (express.settled, beside.settled) == (pytest.approx(6.1), 3.0)
    assert express.more is not None
    mean, low, high = express.more  # of 2.1, 3.1 and 4.1
    assert mean == pytest.approx(3.1)
    assert 2.0 < low < mean < high < 4.2
    assert beside.more == (0.0, 0.0, 0.0)
    table = streams_table([express, beside])
    assert "| method | 0k | 4k | 8k | 12k | 16k | from 8k | more than streaming | 95% |" in table
    assert (
        "| streaming | 3.000 | 3.000 | 3.000 | 3.000 | 3.000 | 3.000 | +0.000 | +0.000 to +0.000 |" in table
    )
    alone = streams([row for row in results() if row.method == "express"])
    assert [stream.more for stream in alone] == [None]
    assert streams_table(alone).endswith("| 6.100 |  |  |\n")
    assert streams_table([]) == ""


def test_table_json_and_pictures(tmp_path: Path) -> None:
    lines = summarized(results())
    table = as_table(lines)
    assert "| 4× | snapkv | 5 | 0.600 |" in table
    assert "## kl, manual (lower is better)" in table
    assert json.loads(json.dumps(as_json(lines, {"model": "m"})))["lines"][0]["task"] == "kl"
    pictures = draw(lines, results(), tmp_path)
    assert {path.name for path in pictures} == {
        "kl.png",
        "stream.png",
        "needle.png",
        "needle-1x.png",
        "needle-4x.png",
    }
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


def test_a_budget_in_entries_is_one_setting_whatever_the_lengths() -> None:
    rows = [result(f"c{n}", "snapkv", tokens / 50, 1.0) for n, tokens in enumerate((290, 300, 560, 550))]
    (line,) = summarized(rows)
    assert (line.cases, line.compression) == (4, pytest.approx(8.5))
    assert "| 8.5× | snapkv | 4 |" in as_table([line])
    asked = [replace(row, compression=4.0, entries=70 + n) for n, row in enumerate(rows)]
    doubled = [replace(row, compression=8.0, entries=35 + n) for n, row in enumerate(rows)]
    assert [(line.compression, line.cases) for line in summarized(asked + doubled)] == [(4.0, 4), (8.0, 4)]
