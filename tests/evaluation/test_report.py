"""The report counts flips apart, and says what is beside each other."""

from __future__ import annotations

import json
from pathlib import Path

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
