"""How long the programs take beside torch's own in the same process, and their share of the peak."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from benchmarks.gpu_check.machine import Machine
from kernels.causal import Past
from kernels.halving import kernel_halving
from kernels.triton.attention import segment_attention
from kernels.triton.decode import decode_attention
from kernels.triton.halving import halve

Row = dict[str, object]
Peaks = dict[str, float]


def prefill(machine: Machine, peaks: Peaks) -> Iterator[Row]:
    """Masked prefill of n tokens, 32 query and 8 KV heads of 128, bf16, against causal FlashAttention.

    A segment of 1,024 tokens sees itself and at most 1,024 entries before it, as in `express_attention`. Keys
    and values are all there, so the entries are chosen first and all segments go through one launch.
    """
    sizes = (8192, 32768, 131072, 524288) if machine.gpu else (256, 512)
    heads, kv_heads, d, segment, entries = (32, 8, 128, 1024, 1024) if machine.gpu else (4, 2, 64, 64, 64)
    dtype = torch.bfloat16 if machine.gpu else torch.float32
    flash = 0.0
    for n in sizes:
        # Time grows with the square: what would not be over in time is left out, and the row says so.
        if 16 * flash * 2 > machine.left - 30:
            yield {"tokens": n, "skipped": f"{machine.left:.0f} s left"}
            continue
        q = torch.randn(1, heads, n, d, device=machine.device, dtype=dtype)
        k, v = (torch.randn(1, kv_heads, n, d, device=machine.device, dtype=dtype) for _ in range(2))
        # FlashAttention gets its keys repeated for each query head, outside of what is measured.
        wide_k, wide_v = (x.repeat_interleave(heads // kv_heads, 1) for x in (k, v))
        rounds = 5 if n <= sizes[1] else 3 if n < sizes[-1] else 1
        flash = machine.seconds(lambda: _flash(machine, q, wide_k, wide_v), rounds)  # noqa: B023 - called at once
        states = _states(k, v, entries, segment)
        alone = machine.seconds(lambda: _segments(q, k, v, states, segment), 5)  # noqa: B023
        compressing = machine.seconds(lambda: _states(k, v, entries, segment), 1)  # noqa: B023
        flops = 4.0 * d * heads * sum(int(length) * segment + segment**2 / 2 for length in states[3])
        yield {
            "tokens": n,
            "flash_seconds": flash,
            "attention_seconds": alone,
            "compression_seconds": compressing,
            "ratio": flash / (alone + compressing),
            "ratio_of_attention_alone": flash / alone,
            "flash_share_of_peak": 2.0 * d * heads * n**2 / flash / peaks["bf16_flops"],
            "attention_share_of_peak": flops / alone / peaks["bf16_flops"],
            "error_of_first_segment": _first_error(q, k, v, states, segment),
        }


def halving(machine: Machine, peaks: Peaks) -> Iterator[Row]:
    """Halving of 240 buckets (30 layers of 8 heads), d = 128, bf16, against the batched torch form."""
    buckets, sizes, d = (240, (256, 1024, 2048), 128) if machine.gpu else (2, (64,), 64)
    for points in sizes:
        keys, values = (
            torch.randn(buckets, points, d, device=machine.device, dtype=torch.bfloat16) for _ in range(2)
        )
        randoms = torch.rand(buckets, points // 2 + 1, device=machine.device, dtype=torch.float64)
        with _backend("torch"):
            torch_seconds = machine.seconds(lambda: kernel_halving(keys, values, randoms), 1)  # noqa: B023
        seconds = machine.seconds(lambda: halve(keys, values, randoms))  # noqa: B023
        flops = 2.0 * buckets * points**2 * d  # half of two matrices of kernel values
        yield {
            "points": points,
            "torch_seconds": torch_seconds,
            "seconds": seconds,
            "ratio": torch_seconds / seconds,
            "share_of_peak": flops / seconds / peaks["bf16_flops"],
        }


def decode(machine: Machine, peaks: Peaks) -> Iterator[Row]:
    """One token over states, 32 query and 8 KV heads of 128, bf16, against torch's attention with a bias."""
    heads, kv_heads, d = (32, 8, 128) if machine.gpu else (4, 2, 64)
    for batch, entries in ((1, 2048), (64, 2048), (1, 131072)) if machine.gpu else ((2, 300),):
        q = torch.randn(batch, heads, 1, d, device=machine.device, dtype=torch.bfloat16)
        keys, values = (
            torch.randn(batch, kv_heads, entries, d, device=machine.device, dtype=torch.bfloat16)
            for _ in range(2)
        )
        log_w = torch.rand(batch, kv_heads, entries, device=machine.device)
        bias = log_w.repeat_interleave(heads // kv_heads, 1).unsqueeze(2).to(torch.bfloat16)
        torch_seconds = machine.seconds(
            lambda: scaled_dot_product_attention(q, keys, values, attn_mask=bias, enable_gqa=True)  # noqa: B023
        )
        seconds = machine.seconds(lambda: decode_attention(q, keys, values, log_w), 20)  # noqa: B023
        moved = 2.0 * keys.numel() * keys.element_size()
        yield {
            "batch": batch,
            "entries": entries,
            "torch_seconds": torch_seconds,
            "seconds": seconds,
            "ratio": torch_seconds / seconds,
            "share_of_peak": moved / seconds / peaks["copy_bytes"],
        }


def _flash(machine: Machine, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION) if machine.gpu else contextlib.nullcontext():
        return scaled_dot_product_attention(q, k, v, is_causal=True)


def _states(k: Tensor, v: Tensor, entries: int, segment: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What each segment sees of the past: keys, values [segments, Hkv, C, d], log-weights, lengths."""
    past = Past.of(k[0], v[0], entries=entries)
    seen = [past.before(start) for start in range(0, k.shape[2], segment)]
    sizes = [len(before) for before in seen]
    missing = [max(sizes) - size for size in sizes]
    keys, values = (
        torch.stack([pad(points, (0, 0, 0, more)) for points, more in zip(column, missing, strict=True)])
        for column in ([before.keys for before in seen], [before.values for before in seen])
    )
    log_w = [pad(before.weights.log(), (0, more)) for before, more in zip(seen, missing, strict=True)]
    return keys, values, torch.stack(log_w), torch.tensor(sizes, dtype=torch.int32, device=k.device)


def _segments(q: Tensor, k: Tensor, v: Tensor, states: tuple[Tensor, ...], segment: int) -> Tensor:
    """All segments as one batch."""
    keys, values, log_w, lengths = states
    q, k, v = (x[0].view(x.shape[1], -1, segment, x.shape[3]).transpose(0, 1) for x in (q, k, v))
    return segment_attention(q, keys, values, log_w, k, v, prefix_lengths=lengths)[0]


def _first_error(q: Tensor, k: Tensor, v: Tensor, states: tuple[Tensor, ...], segment: int) -> float:
    """Of the first segment, which sees no past, against exact causal attention."""
    first = slice(0, segment)
    exact_q, exact_k, exact_v = (x[:, :, first].float() for x in (q, k, v))
    expected = scaled_dot_product_attention(exact_q, exact_k, exact_v, is_causal=True, enable_gqa=True)
    got = _segments(q, k, v, states, segment)[:1].float()
    return float((got - expected).norm() / expected.norm())


@contextlib.contextmanager
def _backend(name: str) -> Iterator[None]:
    before = os.environ.get("DOCEXPRESS_KERNELS")
    os.environ["DOCEXPRESS_KERNELS"] = name
    try:
        yield
    finally:
        del os.environ["DOCEXPRESS_KERNELS"]
        if before is not None:
            os.environ["DOCEXPRESS_KERNELS"] = before
