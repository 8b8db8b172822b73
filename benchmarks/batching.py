"""Tokens per second of several texts that are written together, beside one alone.

    python -m benchmarks.batching [--rows 1,2,4,8] [--entries 1024] [--tokens 48] [--rounds 3] [--model NAME]

Every text goes on from a full state of its own. The counts of texts are measured in turn in the same run.
Printed are the median over the rounds of the median step, and the ratio to the smallest count. That every
text is the same as alone is checked, too.
"""

from __future__ import annotations

import argparse
import statistics
import time

from benchmarks.text import sample_ids
from kernel_worker.batch import Batch
from kernel_worker.decoding import DecodeCheckpoint, DecodeStep, Decoding
from kernel_worker.engine import Engine
from kernel_worker.model import load_model
from kernel_worker.sampling import Sampling
from kernels.selection import SelectionPolicy, make_policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", default="1,2,4,8", help="texts at once")
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    counts = [int(number) for number in options.rows.split(",")]
    engine = Engine(load_model(options.model, device=options.device, most_rows=max(counts)))
    policy = make_policy("express", entries=options.entries, seed=0)
    started = [begun(engine, policy, number) for number in range(max(counts))]
    alone = [written(engine, policy, [one], options.tokens, max(counts))[1][0] for one in started]
    times: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(options.rounds):
        for count in counts:
            seconds, texts = written(engine, policy, started[:count], options.tokens, max(counts))
            if any(text != other[: len(text)] for text, other in zip(texts, alone, strict=False)):
                raise SystemExit("a text is another in company than alone")
            times[count].append(seconds)
    steps = {count: statistics.median(seconds) for count, seconds in times.items()}
    base = 1 / steps[counts[0]]
    for count, seconds in steps.items():
        rate = count / seconds
        print(
            f"{count} texts of {options.entries} entries: {seconds * 1e3:.1f} ms a step, {rate:.1f} tokens/s,"
            f" {rate / base:.2f} times {counts[0]}"
        )


def begun(engine: Engine, policy: SelectionPolicy, number: int) -> DecodeCheckpoint:
    """A full state of one's own, and a first token."""
    size = policy.entries
    ids = sample_ids(engine.loaded, 2 * size + 16 * number)
    state = engine.empty_state()
    for start in range(0, len(ids), size):
        part = ids[start : start + size]
        state = policy.fold(state, engine.prefill(policy, state, part, positions="dense"))
    return DecodeCheckpoint(state, (ids[-1],))


def written(
    engine: Engine, policy: SelectionPolicy, started: list[DecodeCheckpoint], tokens: int, rows: int
) -> tuple[float, list[list[int]]]:
    """Median seconds of a step, and the ids of each text. Nothing is folded on the way."""
    batch = Batch(engine.loaded, rows)
    sampling = Sampling(max_new_tokens=tokens)
    texts: dict[Decoding, list[int]] = {}
    for checkpoint in started:
        decoding = Decoding(
            engine.loaded,
            policy,
            checkpoint,
            positions="dense",
            sampling=sampling,
            fold_every=tokens + 1,
        )
        texts[decoding] = []
        batch.join(decoding)
    times = []
    while len(batch) == len(started):  # until the first of them ends
        begin = time.perf_counter()
        for decoding, step in batch.step():
            if not isinstance(step, DecodeStep):
                raise step
            if step.token is not None:
                texts[decoding].append(step.token)
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:-1]), list(texts.values())


if __name__ == "__main__":
    main()
