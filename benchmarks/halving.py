"""What kernel halving gains over uniform sampling, and what it costs.

    python -m benchmarks.halving error [--bucket 4] [--rows 8] [--sizes 64,128,256,512,1024]
    python -m benchmarks.halving speed [--entries 1024] [--rounds 5] [--device cpu]

`error`: 16,384 tokens thinned to each size; the error of attention relative to uniform sampling in the same
run, and the slope of log error against log size. `stream` is the whole Express stream, the other rules halve
buckets of --bucket times the size. `speed`: the fold of a segment of 1,024 tokens into 30 x 3 rows beside the
same fold with a fair coin; the halving of one bucket beside causal attention over it, and beside a plain
loop over its pairs in torch.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

from kernels.attention import attend
from kernels.express import ExpressStream
from kernels.halving import Halving, kernel_halving, uniform_halving
from kernels.halving_reference import kernel_halving_reference
from kernels.schedule import Schedule
from kernels.selection import CompressedKV, SelectionPolicy, make_policy
from kernels.weighted_kv import WeightedKV
from tests.kernels.distributions import Problem, halved, isotropic, low_rank

N = 16_384
ROWS = (30, 3)  # layers and KV heads of SmolLM2-135M
HEAD = 64

RULES: Mapping[str, Halving] = {
    "uniform": uniform_halving,
    "threshold": partial(kernel_halving, rule="threshold", centred=False),
    "threshold x 0.1": partial(kernel_halving, rule="threshold", centred=False, multiplier=0.1),
    "greedy": partial(kernel_halving, centred=False),
    "greedy, centred": kernel_halving,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("error", "speed"))
    parser.add_argument("--bucket", type=int, default=4)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--sizes", default="64,128,256,512,1024")
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    with torch.inference_mode():
        verify()
        if options.what == "error":
            sizes = [int(size) for size in options.sizes.split(",")]
            for name, problem in (
                ("low rank", low_rank(options.rows, N, seed=0)),
                ("isotropic", isotropic(options.rows, N, seed=1)),
            ):
                errors(name, problem, sizes, options.bucket)
        else:
            fold_speed(options.entries, options.rounds, options.device)
            bucket_speed(options.rounds, options.device)
            loop_speed(options.rounds, options.device)


def verify() -> None:
    """The gate: decisions of the tiled form are those of the specification, or nothing is measured."""
    random = torch.Generator().manual_seed(0)
    for points in (6, 130):
        keys, values = (torch.randn(4, points, HEAD, generator=random) for _ in range(2))
        randoms = torch.rand(4, points // 2 + 1, generator=random, dtype=torch.float64)
        for rule in ("greedy", "threshold"):
            fast = kernel_halving(keys, values, randoms, rule=rule)
            if not torch.equal(fast, kernel_halving_reference(keys, values, randoms, rule=rule)):
                raise SystemExit(f"{rule} on {points} points decides otherwise than its specification")


def errors(name: str, problem: Problem, sizes: list[int], bucket: int) -> None:
    """One line for each rule: errors relative to uniform's at the same size, and the slope."""
    print(f"{name}: error relative to uniform at {sizes}, slope of the error")
    runs: dict[str, Callable[[int], WeightedKV]] = {
        rule: partial(_halved, problem, halving, bucket) for rule, halving in RULES.items()
    }
    runs["stream, uniform"] = partial(_streamed, problem, uniform_halving)
    runs["stream, greedy, centred"] = partial(_streamed, problem, kernel_halving)
    base: list[float] = []
    for rule, run in runs.items():
        found = [problem.error(run(size)) for size in sizes]
        base = base or found
        ratios = " ".join(f"{error / uniform:5.2f}" for error, uniform in zip(found, base, strict=True))
        print(f"  {rule:24} {ratios}   {_slope(sizes, found):+.2f}", flush=True)


def _halved(problem: Problem, halving: Halving, bucket: int, size: int) -> WeightedKV:
    return halved(problem.tokens, size, halving, seed=3, bucket=bucket)


def _streamed(problem: Problem, halving: Halving, size: int) -> WeightedKV:
    """What a stream holds at the end; where that is no round's end it holds more than `size` points."""
    express = ExpressStream(Schedule.of(size), halving, seed=2)
    return express.push(problem.tokens.slice(0, 0), 0, problem.tokens)


def _slope(sizes: list[int], found: list[float]) -> float:
    x, y = torch.tensor(sizes).double().log(), torch.tensor(found).double().log()
    return float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())


def fold_speed(entries: int, rounds: int, device: str) -> None:
    """Folds of 1,024 tokens after each of several lengths; the two policies take turns."""
    policies = {
        halving: make_policy("express", entries=entries, seed=0, parameters={"halving": halving})
        for halving in ("uniform", "greedy", "threshold")
    }
    keys, values = (torch.randn(*ROWS, 1024, HEAD, device=device) for _ in range(2))
    for before in (4, 12, 40):
        times: dict[str, float] = {}
        for halving, policy in policies.items():
            cache = CompressedKV(WeightedKV.empty(ROWS, HEAD, device=device), 0)
            for _ in range(before):
                cache = policy.fold(cache, WeightedKV.exact(keys, values, cache.seen))
            times[halving] = _median(partial(_fold, policy, cache, keys, values), rounds, device)
        line = ", ".join(f"{name} {seconds * 1e3:.0f} ms" for name, seconds in times.items())
        print(f"fold after {before * 1024} tokens, {entries} entries: {line},", end=" ")
        print(f"ratio {times['greedy'] / times['uniform']:.1f}", flush=True)


def _fold(policy: SelectionPolicy, cache: CompressedKV, keys: torch.Tensor, values: torch.Tensor) -> None:
    policy.fold(cache, WeightedKV.exact(keys, values, cache.seen))


def bucket_speed(rounds: int, device: str) -> None:
    """Buckets in all rows at once, against causal attention of as many rows and points."""
    for points in (64, 256, 1024):
        rows = 90 * 1024 // points
        keys, values = (torch.randn(rows, points, HEAD, device=device) for _ in range(2))
        randoms = torch.rand(rows, points // 2 + 1, dtype=torch.float64, device=device)
        own = _median(partial(kernel_halving, keys, values, randoms), rounds, device)
        heads = (x.unsqueeze(1) for x in (keys, keys, values))
        base = _median(partial(attend, *heads, causal=True), rounds, device)
        print(
            f"{rows} buckets of {points} points: halving {own * 1e3:.0f} ms, causal attention"
            f" {base * 1e3:.0f} ms, ratio {own / base:.1f}",
            flush=True,
        )


def loop_speed(rounds: int, device: str, rows: int = 90, points: int = 2048) -> None:
    """Large buckets, against a plain loop over the pairs in the same precision and in half of it."""
    random = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(rows, points, HEAD, generator=random).to(device) for _ in range(2))
    randoms = torch.rand(rows, points // 2 + 1, generator=random, dtype=torch.float64).to(device)
    wide = keys.double(), values.double()
    own = kernel_halving(keys, values, randoms)
    if not torch.equal(own, looped_halving(*wide, randoms)):
        raise SystemExit("the loop keeps other points: nothing to compare")
    times = {
        "own": _median(partial(kernel_halving, keys, values, randoms), rounds, device),
        "float64": _median(partial(looped_halving, *wide, randoms), rounds, device),
        "float32": _median(partial(looped_halving, keys, values, randoms), rounds, device),
    }
    loops = ", ".join(
        f"in {name} {times[name]:.2f} s, ratio {times[name] / times['own']:.1f}"
        for name in ("float64", "float32")
    )
    print(
        f"{rows} rows of {points} points: halving (decides in float64) {times['own']:.2f} s;"
        f" a loop over the pairs {loops}",
        flush=True,
    )


def looped_halving(keys: torch.Tensor, values: torch.Tensor, randoms: torch.Tensor) -> torch.Tensor:
    """Greedy, centred kernel halving as one writes it first: a pair at a time, all rows at once."""
    rows, points, d = keys.shape
    keys = keys - keys.mean(1, keepdim=True)
    shift = keys.square().sum(-1).amax(-1).view(rows, 1, 1) * d**-0.5
    wide = torch.cat([values, values.abs().amax((1, 2)).view(rows, 1, 1).expand(-1, points, 1)], dim=-1)
    signs = torch.zeros(rows, points, 1, dtype=keys.dtype, device=keys.device)
    for first in range(0, points, 2):
        pair = slice(first, first + 2)
        kernel = torch.exp(keys[:, :first] @ keys[:, pair].mT * d**-0.5 - shift)
        kernel = kernel * (wide[:, :first] @ wide[:, pair].mT)
        psi = (signs[:, :first] * kernel).sum(1)
        sign = torch.where(psi[:, 0] > psi[:, 1], -1.0, 1.0)
        signs[:, first, 0], signs[:, first + 1, 0] = sign, -sign
    second = (signs[:, ::2, 0] < 0) ^ (randoms[:, :1] < 0.5)
    return torch.arange(0, points, 2, device=keys.device) + second.to(torch.int64)


def _median(run: Callable[[], object], rounds: int, device: str) -> float:
    """Median seconds of `rounds` calls after one to warm up."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        run()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
