"""Every program against its specification, in float64, on the device itself."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.gpu_check.machine import Machine
from kernels.halving_reference import kernel_halving_reference
from kernels.reference import weighted_attention
from kernels.triton.attention import segment_attention
from kernels.triton.decode import decode_attention, decode_attention_packed
from kernels.triton.gather import gather
from kernels.triton.halving import halve
from kernels.triton.support import DTYPES, HEAD_SIZES
from kernels.weighted_kv import WeightedKV

# Largest root mean square of the error over that of the truth. float32 goes through the tensor cores in three
# passes, so its limit tells whether tf32 is off.
LIMITS = {torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
# Decisions are float32's: a bucket in ten may part from float64 at a sum that is nearly nought.
SHARE_OF_BUCKETS = 0.1


def cases(machine: Machine) -> Iterator[dict[str, object]]:
    """{case, error, limit, ok}, one after the other."""
    for d in HEAD_SIZES if machine.gpu else HEAD_SIZES[:2]:
        for dtype in DTYPES:
            name = f"{str(dtype).removeprefix('torch.')} d={d}"
            yield _case(f"attention {name}", _attention(machine, d, dtype), LIMITS[dtype])
            yield _case(f"decode {name}", _decode(machine, d, dtype), LIMITS[dtype])
            yield _case(f"halving {name}", _halving(machine, d, dtype), SHARE_OF_BUCKETS)
            yield _case(f"gather {name}", _gather(machine, d, dtype), 0.0)
    yield _case("attention, logits of size 80", _attention(machine, 64, torch.float32, size=80.0), 5e-4)
    yield _case("decode, unequal sizes, packed", _packed(machine), LIMITS[torch.float32])


def _case(name: str, error: float, limit: float) -> dict[str, object]:
    return {"case": name, "error": error, "limit": limit, "ok": error <= limit}


def _error(got: Tensor, expected: Tensor) -> float:
    difference = (got.double() - expected.double()).square().mean().sqrt()
    return float(difference / expected.double().square().mean().sqrt())


def _normal(machine: Machine, dtype: torch.dtype, *sizes: int) -> Tensor:
    return torch.randn(sizes, device=machine.device).to(dtype)


def _log_weights(machine: Machine, *sizes: int) -> Tensor:
    """Of weights from 1 to 2^20."""
    return torch.randint(0, 21, sizes, device=machine.device) * torch.tensor(2.0).log()


def _attention(machine: Machine, d: int, dtype: torch.dtype, size: float = 1.0) -> float:
    queries, entries, own = (301, 520, 333) if machine.gpu else (30, 52, 33)
    q = _normal(machine, dtype, 2, queries, 6, d).transpose(1, 2) * size
    pk, pv = (_normal(machine, dtype, 2, 2, entries, d) for _ in range(2))
    k, v = (_normal(machine, dtype, 2, 2, own, d) for _ in range(2))
    log_w = _log_weights(machine, 2, 2, entries)
    out, lse = segment_attention(q, pk, pv, log_w, k, v)
    everything = torch.cat([log_w, log_w.new_zeros(2, 2, own)], 2).double()
    expected = weighted_attention(
        q.double(),
        torch.cat([pk, k], 2).double(),
        torch.cat([pv, v], 2).double(),
        everything,
        causal_from=entries + own - queries,
    )
    return max(_error(out, expected[0]), _error(lse, expected[1]))


def _decode(machine: Machine, d: int, dtype: torch.dtype) -> float:
    entries = 1111 if machine.gpu else 300
    q = _normal(machine, dtype, 3, 8, 3, d)
    keys, values = (_normal(machine, dtype, 3, 2, entries, d) for _ in range(2))
    log_w = _log_weights(machine, 3, 2, entries)
    out, lse = decode_attention(q, keys, values, log_w)
    exact = (x.double() for x in (q, keys, values, log_w))
    expected = weighted_attention(*exact, causal_from=entries - 3)
    return max(_error(out, expected[0]), _error(lse, expected[1]))


def _packed(machine: Machine) -> float:
    sizes = [700, 256, 9] if machine.gpu else [70, 25, 9]
    q = _normal(machine, torch.float32, 3, 8, 2, 64)
    keys, values = (_normal(machine, torch.float32, 2, sum(sizes), 64) for _ in range(2))
    log_w = _log_weights(machine, 2, sum(sizes))
    ends = torch.tensor([0, *sizes], device=machine.device).cumsum(0).to(torch.int32)
    out, _ = decode_attention_packed(q, keys, values, log_w, ends)
    errors = []
    for b, (start, size) in enumerate(zip(ends.tolist(), sizes, strict=False)):
        pieces = (x[None, :, start : start + size].double() for x in (keys, values, log_w))
        expected, _ = weighted_attention(q[b : b + 1].double(), *pieces, causal_from=size - 2)
        errors.append(_error(out[b : b + 1], expected))
    return max(errors)


def _halving(machine: Machine, d: int, dtype: torch.dtype) -> float:
    """Share of buckets that keep other points than float64 does; 1 where what is returned is not that."""
    buckets, points = (16, 512) if machine.gpu else (1, 40)
    keys, values = (_normal(machine, dtype, buckets, points, d) for _ in range(2))
    randoms = torch.rand(buckets, points // 2 + 1, device=machine.device, dtype=torch.float64)
    kept, kept_keys, kept_values = halve(keys, values, randoms)
    index = kept.unsqueeze(-1).expand(*kept.shape, d)
    if not (
        torch.equal(kept_keys, keys.gather(1, index)) and torch.equal(kept_values, values.gather(1, index))
    ):
        return 1.0
    expected = kernel_halving_reference(keys.cpu(), values.cpu(), randoms.cpu())
    return float((kept.cpu() != expected).any(-1).double().mean())


def _gather(machine: Machine, d: int, dtype: torch.dtype) -> float:
    keys, values = (_normal(machine, dtype, 4, 90, d) for _ in range(2))
    entries = WeightedKV.exact(keys, values)
    index = torch.randint(0, 90, (4, 37), device=machine.device)
    got, expected = gather(entries, index, factor=2.0), entries.gather(index).scaled(2.0)
    pairs = zip(got.tensors(), expected.tensors(), strict=True)
    return 0.0 if all(torch.equal(a, b) for a, b in pairs) else 1.0
