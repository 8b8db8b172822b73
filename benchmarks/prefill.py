"""Seconds to read one segment behind a full state, beside transformers' own forward of the same tokens.

    python -m benchmarks.prefill [--model NAME] [--device cpu] [--segment 1024] [--entries 1024] [--rounds 5]

Both are measured in turn in the same run; what is printed is the median and the ratio to transformers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from transformers import DynamicCache

from benchmarks.plain import load_plain
from benchmarks.text import sample_ids
from kernel_worker import attention
from kernel_worker.engine import Engine
from kernel_worker.model import LoadedModel, load_model
from kernels.selection import CompressedKV, make_policy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--segment", type=int, default=1024)
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    engine = Engine(load_model(options.model, device=options.device))
    ids = sample_ids(engine.loaded, options.entries + options.segment)
    plain = load_plain(options.model, options.device)
    compare(engine, plain, ids[: options.entries], ids[options.entries :], options.rounds)


def compare(engine: Engine, plain: LoadedModel, before: list[int], segment: list[int], rounds: int) -> None:
    """Prints seconds and ratios for the segment alone, and for the segment behind the tokens before it."""
    ours = Ours(engine, before)
    theirs = Theirs(plain, before)
    gate(ours, theirs, segment)
    for name, with_state in (("no state", False), (f"{len(before)} entries", True)):
        # In turn, so that a noisy machine is noisy for both.
        pairs = [
            (
                seconds(lambda: theirs.run(segment, with_state), engine),  # noqa: B023 - called at once
                seconds(lambda: ours.run(segment, with_state), engine),  # noqa: B023
            )
            for _ in range(rounds)
        ]
        base, own = (statistics.median(column) for column in zip(*pairs, strict=True))
        print(
            f"{len(segment)} tokens, {name:>14}: transformers {base:.3f} s, docexpress {own:.3f} s,"
            f" ratio {own / base:.2f}, {len(segment) / own:.0f} tokens/s"
        )


class Ours:
    """A segment through the engine."""

    def __init__(self, engine: Engine, before: list[int]) -> None:
        self.engine = engine
        self.policy = make_policy("exact", entries=len(before), seed=0)
        empty = engine.empty_state()
        self.state = self.policy.fold(empty, engine.prefill(self.policy, empty, before, positions="dense"))
        self.empty = empty

    def run(self, segment: list[int], with_state: bool) -> torch.Tensor:
        """Values [layers, kv_heads, S, d] of the segment."""
        state: CompressedKV = self.state if with_state else self.empty
        return self.engine.prefill(self.policy, state, segment, positions="dense").values


class Theirs:
    """The same through transformers' own attention (sdpa) and cache."""

    def __init__(self, plain: LoadedModel, before: list[int]) -> None:
        self.model = plain.model
        self.before = before
        self.full = self._forward(before, DynamicCache())

    def run(self, segment: list[int], with_state: bool) -> torch.Tensor:
        cache = self._forward(segment, self._copy() if with_state else DynamicCache())
        return torch.cat([layer.values[:, :, -len(segment) :] for layer in cache.layers])

    def _copy(self) -> DynamicCache:
        """A cache of the same tensors: appending to it leaves the original as it is."""
        copy = DynamicCache()
        for index, layer in enumerate(self.full.layers):
            copy.update(layer.keys, layer.values, index)
        return copy

    def _forward(self, ids: list[int], cache: DynamicCache) -> DynamicCache:
        self.model.set_attn_implementation("sdpa")
        try:
            with torch.inference_mode():
                tokens = torch.tensor([ids], device=self.model.device)
                self.model.base_model(input_ids=tokens, cache=cache, use_cache=True)
        finally:
            self.model.set_attn_implementation(attention.NAME)
        return cache


def gate(ours: Ours, theirs: Theirs, segment: list[int]) -> None:
    """Refuses to measure what does not compute the same."""
    expected, found = theirs.run(segment, True).double(), ours.run(segment, True).double()
    error = float((found - expected).norm() / expected.norm())
    limit = 1e-4 if ours.engine.loaded.dtype == torch.float32 else 3e-2
    if not error <= limit:
        raise SystemExit(f"values differ from those of transformers by {error:.1e} of their norm")


def seconds(work: Callable[[], object], engine: Engine) -> float:
    """Seconds of one call, the device's queue included."""
    start = time.perf_counter()
    work()
    if engine.loaded.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
