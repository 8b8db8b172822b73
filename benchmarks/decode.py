"""Tokens per second of generation from a full state, beside transformers' own loop over as long a cache.

    python -m benchmarks.decode [--model NAME] [--device cpu] [--entries 1024] [--tokens 64] [--rounds 3]

Both are measured in turn in the same run; what is printed is the median and the ratio to transformers.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time

import torch
from transformers import DynamicCache

from benchmarks.plain import load_plain
from benchmarks.text import sample_ids
from kernel_worker import attention
from kernel_worker.engine import Engine
from kernel_worker.model import LoadedModel, load_model
from kernel_worker.sampling import Sampling
from kernels.selection import make_policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    engine = Engine(load_model(options.model, device=options.device))
    plain = load_plain(options.model, options.device)
    ids = sample_ids(engine.loaded, options.entries)
    pairs = []
    for _ in range(options.rounds):
        base, expected = transformers_loop(plain, ids, options.tokens)
        own, found = engine_loop(engine, ids, options.tokens)
        if found != expected:
            raise SystemExit("the tokens are not those of transformers: nothing to compare")
        pairs.append((base, own))
    base, own = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"{options.entries} entries: transformers {base * 1e3:.1f} ms a token, docexpress {own * 1e3:.1f} ms,"
        f" ratio {own / base:.2f}, {1 / own:.1f} tokens/s"
    )


def engine_loop(engine: Engine, ids: list[int], count: int) -> tuple[float, list[int]]:
    """Median seconds a token, folds left out, and the tokens; the last id of `ids` is the prompt."""
    policy = make_policy("exact", entries=len(ids) + count + 1, seed=0)
    empty = engine.empty_state()
    state = policy.fold(empty, engine.prefill(policy, empty, ids[:-1], positions="dense"))
    times, tokens = [time.perf_counter()], []
    sampling = Sampling(max_new_tokens=count)
    steps = engine.decode(policy, state, ids[-1:], positions="dense", sampling=sampling, fold_every=count + 1)
    for step in steps:
        times.append(time.perf_counter())
        if step.token is not None:
            tokens.append(step.token)
    return _median_step(times[2:-1]), tokens


def transformers_loop(plain: LoadedModel, ids: list[int], count: int) -> tuple[float, list[int]]:
    """The same through transformers' own attention (sdpa) and cache, without the overhead of `generate`."""
    model = plain.model
    cache, feed, tokens, times = DynamicCache(), torch.tensor([ids], device=model.device), list[int](), []
    model.set_attn_implementation("sdpa")
    try:
        with torch.inference_mode():
            for _ in range(count):
                logits = model(input_ids=feed, cache=cache, use_cache=True, logits_to_keep=1).logits
                token = int(logits[0, -1].argmax())
                times.append(time.perf_counter())
                if token in plain.prompt.stop_ids:
                    break
                tokens.append(token)
                feed = torch.tensor([[token]], device=model.device)
    finally:
        model.set_attn_implementation(attention.NAME)
    return _median_step(times), tokens


def _median_step(times: list[float]) -> float:
    return statistics.median(later - earlier for earlier, later in itertools.pairwise(times))


if __name__ == "__main__":
    main()
