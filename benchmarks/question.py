"""What a question about a very long document costs: finding its passages and reading them again.

    python -m benchmarks.question [--tokens 1000000] [--file TEXT] [--rounds 3] [--model NAME] [--device cpu]

The baseline is reading the whole document: so many segments as it has, each as long as the median of segments
behind a full state, folds included, in the same run. Less than 3% of that is wanted. The document is the
Python reference over and over, or the named file.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from kernel_worker.calls import Call
from kernel_worker.engine import Engine
from kernel_worker.model import load_model
from kernel_worker.stages.rank import BLOCKS, best_passages, read_blocks
from kernels.selection import CompressedKV, SelectionPolicy, make_policy
from orchestrator.cli.sample_document import sample_document
from orchestrator.jobs import JobOptions

JOB = JobOptions()
SIZE = JOB.segment_tokens // BLOCKS
WANTED = 0.03
QUESTION = "Which case block is irrefutable, and what does a star pattern match?"
CHUNK = 250_000  # characters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="at least")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    engine = Engine(load_model(options.model, device=options.device))
    text = options.file.read_text(encoding="utf-8") if options.file else sample_document(whole=True)
    times = math.ceil(options.tokens / ranked(engine, text, 1)[0])
    ids = engine.loaded.tokenizer.encode(text[:CHUNK])
    state = full_state(engine, ids)

    seconds: dict[str, list[float]] = {"rank": [], "reread": [], "segment": []}
    for _ in range(options.rounds):
        begun = time.perf_counter()
        tokens, again = ranked(engine, text, times)
        seconds["rank"].append(time.perf_counter() - begun)
        exact = make_policy("exact", entries=again, seed=0)
        seconds["reread"].append(timed(lambda: read(engine, exact, engine.empty_state(), ids[:again])))  # noqa: B023
        segment = ids[-JOB.segment_tokens :]
        seconds["segment"].append(timed(lambda: read(engine, product(), state, segment)))  # noqa: B023
    rank, reread, one = (statistics.median(column) for column in seconds.values())
    whole = one * tokens / JOB.segment_tokens
    print(
        f"{tokens:,} tokens: ranking {rank:.1f} s, reading {again:,} tokens again {reread:.1f} s; reading all"
        f" {whole:,.0f} s ({one:.2f} s a segment); ratio {(rank + reread) / whole:.4f} (wanted: {WANTED})"
    )


def ranked(engine: Engine, text: str, times: int) -> tuple[int, int]:
    """Tokens of the text, `times` over, and how many of them are to be read again."""

    def chunks() -> Iterator[str]:
        for _ in range(times):
            yield from (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))

    blocks = read_blocks(engine.loaded.tokenizer, Call(), chunks(), QUESTION, SIZE)
    passages = best_passages(blocks, JOB.reread)
    return blocks.tokens, sum(stop - first for first, stop, _ in passages) * SIZE


def product() -> SelectionPolicy:
    return make_policy(JOB.policy, entries=JOB.cache_entries, seed=0)


def full_state(engine: Engine, ids: Sequence[int]) -> CompressedKV:
    return read(engine, product(), engine.empty_state(), ids[: 4 * JOB.segment_tokens])


@torch.inference_mode()
def read(engine: Engine, policy: SelectionPolicy, state: CompressedKV, ids: Sequence[int]) -> CompressedKV:
    for start in range(0, len(ids), JOB.segment_tokens):
        part = ids[start : start + JOB.segment_tokens]
        state = policy.fold(state, engine.prefill(policy, state, part, positions="dense"))
    return state


def timed(work: Callable[[], CompressedKV]) -> float:
    """Seconds; the device's queue included, since the state that comes back is looked at."""
    begun = time.perf_counter()
    work().entries.weights.sum().item()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
