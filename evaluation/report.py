"""Results, summed up: one JSON object and one table that are read without the code."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from statistics import fmean

from evaluation.agreement import Agreement
from evaluation.journal import Result
from evaluation.methods import OWN_SEGMENT
from evaluation.profiles import REWORDED
from evaluation.statistics import bootstrap, wilson
from evaluation.streams import Stream

WHOLE = frozenset({"uncompressed", OWN_SEGMENT})
"""What the model can answer at all: from the whole document, or from the segment alone that answers."""
BINARY = frozenset({"needle", "far-needle", REWORDED, "nq_multidoc_qa", "pd_qa", "kv_retrieval"})
LOWER_IS_BETTER = frozenset({"kl"})


@dataclass(frozen=True, slots=True)
class Line:
    """One method on one group of cases.

    score, low, high   mean and its 95% interval: Wilson for right or wrong, bootstrap otherwise
    kept               of the cases that the uncompressed model got right, or beyond the window the model with
                       nothing but the segment that answers, the share still right, with its interval; None
                       where neither was run, or nothing is right or wrong
    lost, gained       right by that model and wrong here, and the other way round
    first, in_three    share of the cases whose segment that answers was ranked first, among the first three;
                       None where nothing was ranked
    prefill_seconds    mean; selection_share is the time of probes and folds against it
    """

    task: str
    group: str
    method: str
    compression: float
    cases: int
    score: float
    low: float
    high: float
    kept: float | None
    kept_of: int
    kept_low: float
    kept_high: float
    lost: int
    gained: int
    first: float | None
    in_three: float | None
    prefill_seconds: float
    probe_share: float
    fold_share: float


def summarized(results: Iterable[Result]) -> list[Line]:
    """A line for each task, group, method and compression, best score first within a compression.

    Not of streams, whose parts are no cases of one kind: `evaluation.streams` has them.
    """
    results = list(results)
    truth = {(result.task, result.case): result.score for result in results if result.method in WHOLE}
    lines = [_line(*key, found, truth) for key, found in cells(results).items()]
    sign = {True: 1.0, False: -1.0}
    return sorted(
        lines,
        key=lambda line: (
            line.task,
            line.group,
            line.compression,
            sign[line.task in LOWER_IS_BETTER] * line.score,
        ),
    )


def cells(results: Iterable[Result]) -> dict[tuple[str, str, str, float], list[Result]]:
    """Results of one setting, by task, group, method and mean compression."""
    methods: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in results:
        for group in _groups(result):
            methods[result.task, group, result.method].append(result)
    made: dict[tuple[str, str, str, float], list[Result]] = {}
    for key, found in methods.items():
        # A run was asked for compressions or for entries: what it was asked for has fewer values.
        by_entries = len({r.entries for r in found}) < len({r.compression for r in found})
        settings: dict[float, list[Result]] = defaultdict(list)
        for result in found:
            settings[result.entries if by_entries else result.compression].append(result)
        for same in settings.values():
            made[*key, fmean(result.compression for result in same)] = same
    return made


def _groups(result: Result) -> tuple[str, ...]:
    """Windows of books are shown together and by book: kinds of text are unlike each other."""
    if result.task == "stream":
        return ()
    if result.task == "kl":
        return "all books", result.case.rpartition("-")[0]
    return (result.group,)


def _line(
    task: str,
    group: str,
    method: str,
    compression: float,
    found: list[Result],
    truth: dict[tuple[str, str], float],
) -> Line:
    scores = [result.score for result in found]
    binary = task in BINARY
    right = int(sum(scores))
    low, high = wilson(right, len(scores)) if binary else bootstrap(scores)
    known = [(truth[task, r.case], r.score) for r in found if (task, r.case) in truth] if binary else []
    before = [after for was, after in known if was == 1.0]
    kept_low, kept_high = wilson(int(sum(before)), len(before))
    ranks = [result.rank for result in found if result.rank]
    prefill = fmean(result.prefill_seconds for result in found)
    return Line(
        task,
        group,
        method,
        compression,
        len(found),
        fmean(scores),
        low,
        high,
        fmean(before) if before else None,
        len(before),
        kept_low,
        kept_high,
        sum(was == 1.0 and now == 0.0 for was, now in known),
        sum(was == 0.0 and now == 1.0 for was, now in known),
        fmean(rank == 1 for rank in ranks) if ranks else None,
        fmean(rank <= 3 for rank in ranks) if ranks else None,
        prefill,
        fmean(result.probe_seconds for result in found) / prefill if prefill else 0.0,
        fmean(result.fold_seconds for result in found) / prefill if prefill else 0.0,
    )


def as_json(
    lines: Iterable[Line],
    about: dict[str, str | int],
    estimates: Iterable[Agreement] = (),
    found: Iterable[Stream] = (),
) -> dict[str, object]:
    """Everything, for programs."""
    rows = [asdict(row) | {"rho": None if math.isnan(row.rho) else row.rho} for row in estimates]
    streams = [asdict(stream) for stream in found]
    return {"about": about, "lines": [asdict(line) for line in lines], "estimates": rows, "streams": streams}


def as_table(lines: Iterable[Line]) -> str:
    """Markdown: a section for each task and group, a row for each method and compression; "" for no line."""
    text: list[str] = []
    section = None
    for line in lines:
        if (line.task, line.group) != section:
            section = line.task, line.group
            better = "lower is better" if line.task in LOWER_IS_BETTER else "higher is better"
            text += [
                "",
                f"## {line.task}, {line.group} ({better})",
                "",
                "| compression | method | cases | score | 95% | kept | lost | gained | first, in three |"
                " read s | probe | fold |",
                "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
            ]
        kept = (
            "–"
            if line.kept is None
            else f"{line.kept:.2f} of {line.kept_of} ({line.kept_low:.2f}–{line.kept_high:.2f})"
        )
        ranked = "–" if line.first is None else f"{line.first:.2f}, {line.in_three:.2f}"
        text.append(
            f"| {line.compression:.3g}× | {line.method} | {line.cases} | {line.score:.3f} |"
            f" {line.low:.3f}–{line.high:.3f} | {kept} | {line.lost} | {line.gained} | {ranked} |"
            f" {line.prefill_seconds:.1f} | {line.probe_share:.0%} | {line.fold_share:.0%} |"
        )
    return "\n".join(text).strip() + "\n" if text else ""


EXPLANATION = """\
compression: tokens of the document for each entry kept, per KV head and layer; 1× is no compression.
score: share of right answers, ROUGE-L, or nats (KL to the uncompressed model, negative log-likelihood).
kept: of the answers that the uncompressed model got right (beyond the window: the model with nothing but the
segment that answers), the share that stayed right.
lost, gained: answers that turned from right to wrong, and from wrong to right, against that model.
first, in three: share of the cases whose segment that answers was ranked first, or among the first three.
read s: seconds of reading.
probe, fold: time of observing and of selecting, against the time of reading.
estimate: the relative attention error that results carry (`error_estimate`); Spearman's rho tells how far it
puts the cases in the order of their scores.
"""
