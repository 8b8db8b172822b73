"""Pictures of the results; needs matplotlib, which the extra `evaluation` brings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from evaluation.journal import Result
from evaluation.report import LOWER_IS_BETTER, Line, cells
from evaluation.streams import draw_streams, streams


def draw(lines: Sequence[Line], results: Iterable[Result], folder: Path) -> list[Path]:
    """Writes one picture for each task, and heat maps of the needles; returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    results = list(results)
    found = streams(results)
    made = [draw_streams(found, folder / "stream.png")] if found else []
    made += [_curves(task, lines, folder) for task in sorted({line.task for line in lines})]
    known = [result for result in results if result.depth is not None]
    for task in sorted({result.task for result in known}):
        made += _heat_maps(task, [result for result in known if result.task == task], folder)
    return made


def _curves(task: str, lines: Sequence[Line], folder: Path) -> Path:
    from matplotlib import pyplot

    lines = [line for line in lines if line.task == task]
    groups = sorted({line.group for line in lines})
    columns = min(len(groups), 2)
    rows = -(-len(groups) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(6 * columns, 5 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(groups) :]:
        axis.remove()
    for axis, group in zip(axes.flat, groups, strict=False):
        curves: dict[str, list[Line]] = defaultdict(list)
        for line in lines:
            if line.group == group:
                curves[line.method].append(line)
        for method, points in sorted(curves.items()):
            _curve(axis, method, sorted(points, key=lambda point: point.compression))
        axis.set(
            title=f"{task}, {group}", xlabel="tokens for each entry kept", ylabel=_scale(task), xscale="log"
        )
        ticks = sorted({round(point.compression, 1) for points in curves.values() for point in points})
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        if task in LOWER_IS_BETTER:  # kinds of text differ by an order of magnitude
            axis.set_yscale("log")
        axis.minorticks_off()
        axis.legend(fontsize="x-small")
    path = folder / f"{task}.png"
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def _curve(axis: Any, method: str, points: Sequence[Line]) -> None:
    x, y = [point.compression for point in points], [point.score for point in points]
    if len(points) == 1 and x[0] <= 1:
        axis.axhline(y[0], linestyle="--", linewidth=1, label=method)
        return
    error = [[p.score - p.low for p in points], [p.high - p.score for p in points]]
    axis.errorbar(x, y, yerr=error, marker="o", markersize=3, linewidth=1, capsize=2, label=method)


def _scale(task: str) -> str:
    return "nats, lower is better" if task in LOWER_IS_BETTER else "score, higher is better"


def _heat_maps(task: str, results: Sequence[Result], folder: Path) -> list[Path]:
    """Depth of the needle against method, one picture for each compression."""
    from matplotlib import pyplot

    made = []
    settings: dict[int, dict[tuple[str, float], list[float]]] = defaultdict(lambda: defaultdict(list))
    for (_, _, method, compression), found in cells(results).items():
        for result in found:
            if result.depth is not None:
                settings[round(compression)][method, result.depth].append(result.score)
    for compression, scores in sorted(settings.items()):
        methods, depths = sorted({m for m, _ in scores}), sorted({d for _, d in scores})
        table = [
            [fmean(scores.get((method, depth)) or [float("nan")]) for depth in depths] for method in methods
        ]
        figure, axis = pyplot.subplots(figsize=(7, 1 + 0.3 * len(methods)), layout="constrained")
        image = axis.imshow(table, vmin=0, vmax=1, cmap="RdYlGn", aspect="auto")
        axis.set(title=f"{task}: found, {compression}× compression", xlabel="depth in the document, percent")
        axis.set_xticks(range(len(depths)), [f"{depth:g}" for depth in depths])
        axis.set_yticks(range(len(methods)), methods)
        figure.colorbar(image)
        path = folder / f"{task}-{compression}x.png"
        figure.savefig(path, dpi=110)
        pyplot.close(figure)
        made.append(path)
    return made
