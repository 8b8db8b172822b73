"""DOCEXPRESS_KERNELS=triton has attention, decode and halving run the programs."""

from __future__ import annotations

import pytest
import torch

from kernels.attention import segment_attention
from kernels.decode import decode_attention
from kernels.halving import kernel_halving
from kernels.triton import attention, decode, halving
from kernels.weighted_kv import WeightedKV
from tests.kernels.triton.interpreted.inputs import log_weights, normal


def test_the_dispatch_reaches_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCEXPRESS_KERNELS", "triton")
    q, pk, pv, k, v = (normal(1, 2, 10, 64, seed=i) for i in range(5))
    log_w = log_weights(1, 2, 10, seed=5)
    segment = (q, pk, pv, log_w, k, v)
    # Bits in common tell that it was the same program: torch's own sums are in another order.
    assert torch.equal(segment_attention(*segment)[0], attention.segment_attention(*segment)[0])
    assert torch.equal(
        decode_attention(q[:, :, :2], pk, pv, log_w)[0],
        decode.decode_attention(q[:, :, :2], pk, pv, log_w)[0],
    )
    randoms = torch.rand(1, 2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    assert torch.equal(kernel_halving(k, v, randoms), halving.kernel_halving(k, v, randoms))
    entries = WeightedKV.exact(k, v)
    with pytest.raises(ValueError, match=r"index is torch\.int32"):  # torch would say it in other words
        entries.gather(torch.zeros(1, 2, 3, dtype=torch.int32))
    monkeypatch.setenv("DOCEXPRESS_KERNELS", "torch")
    assert not torch.equal(segment_attention(*segment)[1], attention.segment_attention(*segment)[1])
