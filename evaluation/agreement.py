"""How well the product's own estimate puts states in the order of what compression did to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean

from evaluation.journal import Result
from evaluation.statistics import rank_correlation, rank_interval

ALL_METHODS = "all methods"


@dataclass(frozen=True, slots=True)
class Agreement:
    """One method, or all, on the cases of one task and group that have an estimate.

    estimate, score  means over the cases
    rho              Spearman's, between estimate and score over the cases; NaN for one case
    low, high        its 95% interval; (-1, 1) for fewer than four cases, and for all methods together, whose
                     cases are the same documents again and again
    """

    task: str
    group: str
    method: str
    cases: int
    estimate: float
    score: float
    rho: float
    low: float
    high: float


def agreements(results: Iterable[Result]) -> list[Agreement]:
    """For each task and group: all methods together, then each of them, by name."""
    cells: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)
    for result in results:
        if result.estimate is not None:
            for method in ("", result.method):  # "" is before every name
                cells[result.task, result.group, method].append((result.estimate, result.score))
    return [_agreement(*key, pairs) for key, pairs in sorted(cells.items())]


def _agreement(task: str, group: str, method: str, pairs: list[tuple[float, float]]) -> Agreement:
    estimates, scores = zip(*pairs, strict=True)
    rho = rank_correlation(estimates, scores)
    interval = rank_interval(rho, len(pairs)) if method else (-1.0, 1.0)
    means = fmean(estimates), fmean(scores)
    return Agreement(task, group, method or ALL_METHODS, len(pairs), *means, rho, *interval)


def as_table(found: Iterable[Agreement]) -> str:
    """Markdown: one table; "" where nothing has an estimate."""
    rows = [
        f"| {row.task}, {row.group} | {row.method} | {row.cases} | {row.estimate:.3f} | {row.score:.3f} |"
        f" {row.rho:.2f} | {_interval(row)} |"
        for row in found
    ]
    if not rows:
        return ""
    head = [
        "## the estimate that results carry, against what was measured",
        "",
        "| task | method | cases | mean estimate | mean score | Spearman's rho | 95% |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    return "\n".join([*head, *rows]) + "\n"


def _interval(row: Agreement) -> str:
    return "–" if (row.low, row.high) == (-1.0, 1.0) else f"{row.low:.2f} to {row.high:.2f}"
