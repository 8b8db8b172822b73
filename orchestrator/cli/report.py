"""What a finished job cost, as a short table on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from orchestrator.cli.figures import count, duration, ratio, size
from orchestrator.cli.terminal import clean_line
from orchestrator.jobs import PHASES, JobResult

_NOTHING = "nothing: no word of the question says where to look, so the text is written from the state"


def print_report(result: JobResult, evidence: Sequence[str]) -> None:
    """The table, and the command with which one goes on asking; `evidence` is an excerpt of each passage that
    was read again, as far as there is one."""
    rows = [*_rows(result), *_reread(result, evidence)]
    width = max(len(name) for name, _ in rows)
    print(file=sys.stderr)
    for name, value in rows:
        print(f"{name:<{width}}  {clean_line(value)}", file=sys.stderr)
    print(f'\nAsk about it:  docexpress ask {result.job_id} "your question"', file=sys.stderr, flush=True)


def _rows(result: JobResult) -> list[tuple[str, str]]:
    spent = [f"{phase} {duration(result.seconds[phase])}" for phase in PHASES if phase in result.seconds]
    return [
        ("tokens read", _read(result)),
        ("tokens written", f"{result.tokens_written:,}{_cut_short(result)}"),
        *_state(result),
        ("time", ", ".join(spent)),
        ("stored as", result.state or "nothing: the state is made again when a text needs it"),
        ("job", result.job_id),
    ]


def _state(result: JobResult) -> list[tuple[str, str]]:
    """What is kept of the document, and what it cost."""
    if result.cache_entries is None or result.state_bytes is None:
        return [("state", "no longer stored, and not needed: the text comes from passages")]
    kept = count(result.cache_entries, "entry", "entries")
    larger = ratio(result.full_cache_bytes, result.state_bytes)
    return [
        ("state", f"{kept} per KV head and layer, {size(result.state_bytes)}"),
        ("attention error", _error(result)),
        ("full KV cache", f"{size(result.full_cache_bytes)}, {larger} as large"),
    ]


def _reread(result: JobResult, evidence: Sequence[str]) -> list[tuple[str, str]]:
    """Which segments hold the passages, counted from 1, and what each of them says."""
    numbers = [passage["segment"] + 1 for passage in result.reread_segments]
    if not numbers:
        kept = result.cache_entries  # of a text without passages: it came from the state
        sought = "rank" in result.seconds and kept is not None and kept < result.tokens_read
        return [("read again", _NOTHING)] if sought else []
    named = ", ".join(map(str, sorted(set(numbers))))
    rows = [("read again", f"{'segments' if len(set(numbers)) > 1 else 'segment'} {named}")]
    return rows + [("", f"{number}: {text}") for number, text in zip(numbers, evidence, strict=False) if text]


def _error(result: JobResult) -> str:
    """What compression cost, where the state came with an estimate."""
    if result.error_estimate is None:
        return "not known: the state was made without an estimate"
    return (
        f"{result.error_estimate:.1%} by estimate" if result.error_estimate else "none: every token is kept"
    )


def _read(result: JobResult) -> str:
    read = f"{result.tokens_read:,} in {count(result.segments, 'segment')}"
    if result.state is None:
        return f"passages alone, of {read}"
    if result.prefill_tokens == 0:
        return f"{read}, all of them stored already"
    if result.prefill_tokens < result.tokens_read:
        return f"{read}, the first {result.tokens_read - result.prefill_tokens:,} stored already"
    return read


def _cut_short(result: JobResult) -> str:
    return ", as many as --max-new-tokens allows" if result.finish_reason == "length" else ""
