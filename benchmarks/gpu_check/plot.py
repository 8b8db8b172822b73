"""Seconds against length, where matplotlib is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def draw(rows: Sequence[dict[str, Any]], about: dict[str, Any], file: Path) -> bool:
    """Writes the plot of the rows of `speed.prefill`; False where matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure

    measured = [row for row in rows if "skipped" not in row]
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.subplots()
    tokens = [row["tokens"] for row in measured]
    ours = [row["attention_seconds"] + row["compression_seconds"] for row in measured]
    axes.loglog(tokens, [row["flash_seconds"] for row in measured], "o-", label="causal FlashAttention")
    axes.loglog(tokens, ours, "s-", label="docexpress, with compression")
    axes.loglog(
        tokens, [row["attention_seconds"] for row in measured], "s--", label="docexpress, attention alone"
    )
    axes.set_xlabel("tokens")
    axes.set_ylabel("seconds")
    axes.set_title(f"Prefill on {about.get('device', 'the interpreter: times mean nothing')}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=120)
    return True
