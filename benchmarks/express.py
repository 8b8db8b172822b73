"""Causal attention with compression beside torch's own, over growing lengths: time, its parts, and the error.

    python -m benchmarks.express [--lengths 8192,16384,32768] [--heads 9,3] [--entries 1024] [--rounds 3]
                                 [--device cpu] [--dtype float32] [--plot FILE.svg | --growth]

Baseline: `scaled_dot_product_attention`, causal, grouped-query, on the same inputs in the same run; once
where one call takes more than a minute. With --growth the baseline is the time per token at the first of the
lengths instead, and lengths may be given for which torch takes hours. Keys and values lie in random subspaces
of 4 dimensions, the low-rank distribution of docs/thinning.md; error as there: |out - exact| / rms |v|, the
mean over the second half of the tokens.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kernels import express_attention
from kernels.causal import Past

T = TypeVar("T")
HEAD = 64
RANK = 4
SEGMENT = 1024
LONG = 60.0  # seconds of a baseline that is not measured twice


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one length: seconds of torch, of ours, and of compression in it; the error of ours.

    NaN stands for what needs torch, where that was not run.
    """

    tokens: int
    torch: float
    own: float
    compression: float
    error: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--lengths", default="8192,16384,32768")
    parser.add_argument("--heads", default="9,3", help="query heads, KV heads")
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--growth", action="store_true")
    options = parser.parse_args()
    heads, kv_heads = (int(count) for count in options.heads.split(","))
    place = {"device": options.device, "dtype": getattr(torch, options.dtype)}
    found: list[Figures] = []
    for tokens in (int(length) for length in options.lengths.split(",")):
        q, k, v = (x.to(**place) for x in inputs(tokens, heads, kv_heads))
        found.append(measured(q, k, v, options.entries, options.rounds, beside_torch=not options.growth))
        print(growth(found[-1], found[0]) if options.growth else line(found[-1]), flush=True)
    if options.plot and not options.growth:
        draw(found, options.plot, f"{heads} query, {kv_heads} KV heads of {HEAD}, {options.entries} entries")


def inputs(tokens: int, heads: int, kv_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """q [1, heads, N, d], k and v [1, kv_heads, N, d]: low rank, logits with a deviation of about 0.75."""
    random = torch.Generator().manual_seed(0)
    of_keys, of_values = (
        torch.linalg.qr(torch.randn(kv_heads, HEAD, RANK, generator=random)).Q.mT for _ in range(2)
    )
    factor = (0.75 * HEAD**0.5 / RANK**0.5) ** 0.5
    counts = (heads, kv_heads, kv_heads)
    q, k, v = (torch.randn(count, tokens, RANK, generator=random) for count in counts)
    of_queries = of_keys.repeat_interleave(heads // kv_heads, dim=0)
    return (factor * q @ of_queries)[None], (factor * k @ of_keys)[None], (v @ of_values)[None]


@torch.inference_mode()
def measured(
    q: Tensor, k: Tensor, v: Tensor, entries: int, rounds: int, *, beside_torch: bool = True
) -> Figures:
    """Medians; what is compared takes turns."""

    def baseline() -> Tensor:
        return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def own() -> Tensor:
        return express_attention(q, k, v, entries=entries, segment=SEGMENT)

    def compression() -> None:
        past = Past.of(k, v, entries=entries)
        for start in range(0, q.shape[2], SEGMENT):
            past.before(start)

    own()
    times: tuple[list[float], ...] = ([], [], [])
    exact: Tensor | None = None
    for _ in range(rounds):
        if beside_torch and (exact is None or times[0][-1] < LONG):
            seconds, exact = timed(baseline)
            times[0].append(seconds)
        seconds, out = timed(own)
        times[1].append(seconds)
        times[2].append(timed(compression)[0])
    own_seconds, compression_seconds = (statistics.median(column) for column in times[1:])
    if exact is None:
        return Figures(q.shape[2], math.nan, own_seconds, compression_seconds, math.nan)
    half = q.shape[2] // 2
    error = (out - exact)[:, :, half:].float().norm(dim=-1).mean() / v.float().square().sum(-1).mean().sqrt()
    return Figures(q.shape[2], statistics.median(times[0]), own_seconds, compression_seconds, float(error))


def timed(run: Callable[[], T]) -> tuple[float, T]:
    """Seconds of one call, the device's queue included, and its result."""
    start = time.perf_counter()
    result = run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def line(found: Figures) -> str:
    return (
        f"{found.tokens:>7} tokens: torch {found.torch:.2f} s, docexpress {found.own:.2f} s,"
        f" {found.torch / found.own:.1f} times faster; compression {found.compression / found.own:.0%} of it;"
        f" {found.own / found.tokens * 1e6:.0f} us per token; error {found.error:.3f}"
    )


def growth(found: Figures, first: Figures) -> str:
    each, at_first = (figures.own / figures.tokens for figures in (found, first))
    return (
        f"{found.tokens:>7} tokens: docexpress {found.own:.2f} s;"
        f" compression {found.compression / found.own:.0%} of it;"
        f" {each * 1e6:.0f} us per token, {each / at_first:.2f} times as at {first.tokens} tokens"
    )


def draw(found: list[Figures], file: Path, about: str) -> None:
    """Seconds and error against length."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    figure, (speed, error) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    lengths = [figures.tokens for figures in found]
    speed.loglog(lengths, [figures.torch for figures in found], "o--", label="torch, exact")
    speed.loglog(lengths, [figures.own for figures in found], "o-", label="express_attention")
    speed.set(xlabel="tokens", ylabel="seconds", title=about)
    speed.legend()
    error.semilogx(lengths, [figures.error for figures in found], "o-")
    error.set(
        xlabel="tokens",
        ylabel="error in units of the values",
        ylim=(0, None),
        title="low-rank keys and values",
    )
    for axes in (speed, error):
        axes.set_xticks(lengths, [f"{length // 1024}k" for length in lengths], minor=False)
        axes.set_xticks([], minor=True)
        axes.grid(alpha=0.3)
    figure.savefig(file, metadata={"Date": None})


if __name__ == "__main__":
    main()
