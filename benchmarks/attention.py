"""Attention over a weighted prefix and a segment, and decoding, beside torch's own attention.

    python -m benchmarks.attention [--entries 1024] [--segment 1024] [--rounds 9] [--device D] [--dtype T]

The baseline of a segment is scaled_dot_product_attention over all keys with one mask that holds log-weights
and causality; of a decoded token, the same without any weights over keys repeated for every query head.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kernels.attention import segment_attention
from kernels.decode import decode_attention
from kernels.reference import weighted_attention

HEADS, KV_HEADS, HEAD = 9, 3, 64  # of SmolLM2-135M


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--segment", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16"))
    options = parser.parse_args()
    place = {"device": options.device, "dtype": getattr(torch, options.dtype)}
    with torch.inference_mode():
        prefill(options.entries, options.segment, options.rounds, place)
        for entries in (options.entries, 4 * options.entries):
            decode(entries, 40 * options.rounds, place)


def prefill(entries: int, segment: int, rounds: int, place: dict[str, object]) -> None:
    """One layer's attention over a segment."""
    q = torch.randn(1, segment, HEADS, HEAD, **place).transpose(1, 2)
    prefix, own = _kv(entries, place), _kv(segment, place)
    log_weights = torch.rand(1, KV_HEADS, entries, device=q.device) * 5
    keys, values = (
        torch.cat(pair, dim=2).repeat_interleave(HEADS // KV_HEADS, dim=1)
        for pair in zip(prefix, own, strict=True)
    )
    mask = torch.zeros(1, HEADS, segment, entries + segment, **place)
    mask[..., :entries] = log_weights.repeat_interleave(HEADS // KV_HEADS, dim=1).unsqueeze(2)
    hidden = torch.ones(segment, segment, dtype=torch.bool, device=q.device).triu(1)
    mask[..., entries:].masked_fill_(hidden, -torch.inf)

    def ours() -> Tensor:
        return segment_attention(q, *prefix, log_weights, *own)[0]

    def baseline() -> Tensor:
        return scaled_dot_product_attention(q, keys, values, attn_mask=mask)

    exact, _ = weighted_attention(
        q.double(),
        *(torch.cat(pair, dim=2).double() for pair in zip(prefix, own, strict=True)),
        torch.cat([log_weights, log_weights.new_zeros(1, KV_HEADS, segment)], dim=2).double(),
        causal_from=entries,
    )
    _verify(ours(), baseline(), exact)
    _report(f"{segment} queries, {entries} entries", ours, baseline, rounds, q.device)


def decode(entries: int, rounds: int, place: dict[str, object]) -> None:
    """One layer's attention of one token."""
    q = torch.randn(1, HEADS, 1, HEAD, **place)
    keys, values = _kv(entries, place)
    log_weights = torch.rand(1, KV_HEADS, entries, device=q.device) * 5
    wide_keys, wide_values = (x.repeat_interleave(HEADS // KV_HEADS, dim=1) for x in (keys, values))
    wide_weights = log_weights.repeat_interleave(HEADS // KV_HEADS, dim=1).unsqueeze(2).to(q.dtype)

    def ours() -> Tensor:
        return decode_attention(q, keys, values, log_weights)[0]

    def baseline() -> Tensor:
        return scaled_dot_product_attention(q, wide_keys, wide_values)

    exact, _ = weighted_attention(q.double(), keys.double(), values.double(), log_weights.double())
    _verify(ours(), scaled_dot_product_attention(q, wide_keys, wide_values, attn_mask=wide_weights), exact)
    _report(f"1 query, {entries} entries", ours, baseline, rounds, q.device)


def _kv(length: int, place: dict[str, object]) -> tuple[Tensor, Tensor]:
    keys, values = (torch.randn(1, KV_HEADS, length, HEAD, **place) for _ in range(2))
    return keys, values


def _verify(found: Tensor, baseline: Tensor, exact: Tensor) -> None:
    """The gate: ours may err by twice as much as torch's own, or nothing is measured."""
    own, base = (float((x.double() - exact).square().mean().sqrt()) for x in (found, baseline))
    if not own <= 2 * base + 1e-7:
        raise SystemExit(f"our error is {own:.1e}, that of torch {base:.1e}: nothing to compare")


def _report(
    name: str, ours: Callable[[], Tensor], baseline: Callable[[], Tensor], rounds: int, device: torch.device
) -> None:
    """Medians of alternating calls, so that both meet the same noise."""
    columns: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds + 2):
        for column, run in zip(columns, (ours, baseline), strict=True):
            start = time.perf_counter()
            run()
            if device.type != "cpu":
                torch.cuda.synchronize(device)
            column.append(time.perf_counter() - start)
    own, base = (statistics.median(column[2:]) for column in columns)
    unit, factor = ("us", 1e6) if base < 1e-3 else ("ms", 1e3)
    print(
        f"{name}: docexpress {own * factor:.0f} {unit}, torch {base * factor:.0f} {unit},"
        f" ratio {own / base:.2f}"
    )


if __name__ == "__main__":
    main()
