"""Tables that people read and `awk` splits: columns aligned with spaces, no frames, no colours."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cli.terminal import clean_line, print_text

WIDEST_CELL = 60


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """To standard output; the head alone when there are no rows."""
    cells = [[_cell(value) for value in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = (
        "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    print_text("\n".join(lines))


def _cell(value: str) -> str:
    line = clean_line(value)
    return line if len(line) <= WIDEST_CELL else line[: WIDEST_CELL - 1] + "…"
