"""What documents will take, as a table: `docexpress plan`."""

from __future__ import annotations

import dataclasses
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator import sizing
from orchestrator.cli.figures import count, ratio, size
from orchestrator.cli.options import job_options
from orchestrator.cli.terminal import clean_line, print_json
from orchestrator.sizing import Sizing


def plan(
    model: str,
    *,
    documents: int,
    tokens: int,
    cache_entries: int,
    segment_tokens: int,
    dtype: str | None,
    redis_gb: float | None,
    as_json: bool,
) -> None:
    """Print the sizes. Raises ModelNotSized, OptionError."""
    options = job_options(cache_entries=cache_entries, segment_tokens=segment_tokens)
    found = sizing.plan(
        model, documents=documents, tokens=tokens, options=options, dtype=dtype, redis_gb=redis_gb
    )
    if as_json:
        print_json(dataclasses.asdict(found))
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for what, value, remark in _rows(found):
        table.add_row(what, value, Text(remark))
    Console(file=sys.stdout, markup=False, highlight=False, color_system=None).print(table)


def _rows(found: Sizing) -> list[tuple[str, str, str]]:
    heads = f"{count(found.layers, 'layer')}, {count(found.kv_heads, 'KV head')} of {found.head_dim}"
    times = f"{ratio(found.full_cache_bytes, found.state_bytes)} the state"
    rows = [
        ("model", found.dtype, clean_line(found.model)),
        ("every entry", size(found.entry_bytes), f"in {heads}"),
        ("one state", size(found.state_bytes), f"{found.cache_entries:,} entries"),
        ("full KV cache", size(found.full_cache_bytes), f"of {found.tokens:,} tokens, {times}"),
        ("states per GB", f"{found.states_per_gb:,.1f}", "of Redis"),
        ("one document", size(found.document_bytes), "state, token ids and text, in Redis"),
        (f"{count(found.documents, 'document')}", size(found.redis_bytes), "in Redis"),
        ("one segment", size(found.segment_bytes), f"{found.segment_tokens:,} tokens, until compressed"),
        ("prefill in flight", size(found.in_flight_bytes), "at most, on each worker"),
        ("one text", size(found.row_bytes), "while it is written, on a worker"),
        ("texts together", size(found.rows_bytes), "at most, on each worker"),
    ]
    if found.redis_gb is not None and found.documents_that_fit is not None:
        enough = "enough" if found.documents_that_fit >= found.documents else "too few"
        rows.append((f"{found.redis_gb:g} GB hold", count(found.documents_that_fit, "document"), enough))
    if not found.fits_window:
        need = found.cache_entries + found.segment_tokens
        rows.append(("trained positions", f"{found.window:,}", f"fewer than entries and segment: {need:,}"))
    return rows
