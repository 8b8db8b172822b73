"""Texts beyond the window, part by part: likelihood, and each method beside StreamingLLM."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from evaluation.journal import Result
from evaluation.statistics import bootstrap

BESIDE = "streaming"
SETTLED = 8
"""Thousands of tokens from which a likelihood should stay as it is."""


@dataclass(frozen=True, slots=True)
class Stream:
    """One method: mean negative log-likelihood in nats of each part, by thousands of tokens before it.

    more  what it has more than `BESIDE` on the parts from `SETTLED` on: the mean and its 95% interval
          (bootstrap over parts); None where that was not run on the same parts
    """

    method: str
    parts: Mapping[int, float]
    more: tuple[float, float, float] | None

    @property
    def settled(self) -> float:
        """The mean over the parts from `SETTLED` on, NaN for none."""
        known = [value for start, value in self.parts.items() if start >= SETTLED]
        return fmean(known) if known else float("nan")


def streams(results: Iterable[Result]) -> list[Stream]:
    """Those of a journal, by name."""
    parts: dict[str, dict[int, float]] = defaultdict(dict)
    for result in results:
        if result.task == "stream":
            parts[result.method][int(result.group.removesuffix("k"))] = result.score
    return [_stream(method, found, parts.get(BESIDE, {})) for method, found in sorted(parts.items())]


def _stream(method: str, parts: dict[int, float], beside: dict[int, float]) -> Stream:
    more = [parts[start] - beside[start] for start in sorted(parts.keys() & beside) if start >= SETTLED]
    return Stream(method, dict(sorted(parts.items())), (fmean(more), *bootstrap(more)) if more else None)


def as_table(found: Iterable[Stream]) -> str:
    """Markdown: a row for each method, a column for each part; "" for none."""
    found = list(found)
    if not found:
        return ""
    starts = sorted({start for stream in found for start in stream.parts})
    head = ["method", *(f"{start}k" for start in starts), f"from {SETTLED}k", f"more than {BESIDE}", "95%"]
    rows = ["## stream: nats a token after so many tokens (lower is better)", "", _row(head)]
    rows.append(_row(["---"] * len(head)))
    for stream in found:
        values = [f"{stream.parts[start]:.3f}" if start in stream.parts else "" for start in starts]
        more = [f"{value:+.3f}" for value in stream.more or ()] or ["", ""]
        rows.append(_row([stream.method, *values, f"{stream.settled:.3f}", more[0], " to ".join(more[1:])]))
    return "\n".join(rows) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw_streams(found: Iterable[Stream], path: Path) -> Path:
    """Likelihood of each part, and beside it the difference to `BESIDE`, where that was run."""
    from matplotlib import pyplot

    found = list(found)
    beside = {stream.method: stream.parts for stream in found}.get(BESIDE, {})
    figure, axes = pyplot.subplots(1, 2, figsize=(12, 4), layout="constrained")
    for stream in found:
        axes[0].plot(
            list(stream.parts), list(stream.parts.values()), marker="o", markersize=3, label=stream.method
        )
        both = [start for start in stream.parts if start in beside]
        more = [stream.parts[start] - beside[start] for start in both]
        axes[1].plot(both, more, marker="o", markersize=3, label=stream.method)
    axes[0].set(title="the text itself varies", ylabel="nats a token, lower is better")
    axes[1].set(title=f"on the same parts: more than {BESIDE}", ylabel="nats a token, lower is better")
    for axis in axes:
        axis.set(xlabel="thousands of tokens read before")
        axis.axvline(SETTLED, linestyle=":", linewidth=1, color="grey")
        axis.legend(fontsize="small")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path
