"""What a finished job cost, as a short table on standard error."""

from __future__ import annotations

import sys

from orchestrator.cli.figures import count, duration, ratio, size
from orchestrator.cli.terminal import clean_line
from orchestrator.jobs import STAGES, JobResult


def print_report(result: JobResult) -> None:
    """The table, and the command with which one goes on asking."""
    rows = _rows(result)
    width = max(len(name) for name, _ in rows)
    print(file=sys.stderr)
    for name, value in rows:
        print(f"{name:<{width}}  {clean_line(value)}", file=sys.stderr)
    print(f'\nAsk about it:  docexpress ask {result.job_id} "your question"', file=sys.stderr, flush=True)


def _rows(result: JobResult) -> list[tuple[str, str]]:
    read = f"{count(result.tokens_read, 'token')} in {count(result.segments, 'segment')}"
    if result.prefill_tokens < result.tokens_read:
        read += f", {result.prefill_tokens:,} of them in this job (the rest was stored already)"
    kept = f"{count(result.cache_entries, 'entry').replace('entrys', 'entries')} per KV head and layer"
    full = f"{size(result.full_cache_bytes)} ({ratio(result.full_cache_bytes, result.state_bytes)} as large)"
    spent = [f"{stage} {duration(result.seconds[stage])}" for stage in STAGES if stage in result.seconds]
    return [
        ("read", read),
        ("written", f"{count(result.tokens_written, 'token')} ({result.finish_reason})"),
        ("state", f"{kept}, {size(result.state_bytes)}; the full KV cache would be {full}"),
        ("time", ", ".join(spent)),
        ("stored as", result.state),
        ("job", result.job_id),
    ]
