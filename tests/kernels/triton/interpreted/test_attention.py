"""The attention program against the float64 reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.triton.attention import segment_attention
from kernels.triton.support import HEAD_SIZES
from tests.kernels.numeric import error_ratio
from tests.kernels.triton.interpreted.inputs import DTYPES, log_weights, normal, truth

# B, Hq, Hkv, S, C, S'
SHAPES = [
    pytest.param((1, 4, 2, 63, 111, 63), id="ragged"),
    pytest.param((2, 9, 3, 17, 40, 29), id="batch2-group3-earlier-keys"),
    pytest.param((1, 8, 1, 33, 0, 33), id="multi-query-no-prefix"),
    pytest.param((2, 3, 3, 1, 257, 1), id="multi-head-one-query"),
    pytest.param((1, 2, 1, 150, 1, 300), id="several-blocks"),
]


def _inputs(shape: tuple[int, ...], d: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    batch, heads, kv_heads, queries, entries, own = shape
    seed = sum(shape) + d
    return [
        normal(batch, queries, heads, d, seed=seed, dtype=dtype).transpose(1, 2),
        normal(batch, kv_heads, entries, d, seed=seed + 1, dtype=dtype),
        normal(batch, kv_heads, entries, d, seed=seed + 2, dtype=dtype),
        log_weights(batch, kv_heads, entries, seed=seed + 3),
        normal(batch, kv_heads, own, d, seed=seed + 4, dtype=dtype),
        normal(batch, own, kv_heads, d, seed=seed + 5, dtype=dtype).transpose(1, 2),
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: tuple[int, ...]) -> None:
    inputs = _inputs(shape, 64)
    out, lse = segment_attention(*inputs)
    expected_out, expected_lse = truth(*inputs)
    assert (out.shape, lse.shape, lse.dtype) == (expected_out.shape, expected_lse.shape, torch.float32)
    assert error_ratio(out, expected_out) < 2e-6
    assert error_ratio(lse, expected_lse) < 1e-6


@pytest.mark.parametrize(("dtype", "most"), DTYPES, ids=lambda x: str(x).removeprefix("torch."))
@pytest.mark.parametrize("d", HEAD_SIZES)
def test_every_head_size_and_dtype(d: int, dtype: torch.dtype, most: float) -> None:
    inputs = _inputs((1, 3, 1, 21, 37, 25), d, dtype)
    out, lse = segment_attention(*inputs)
    expected_out, expected_lse = truth(*inputs)
    assert out.dtype == dtype
    assert error_ratio(out, expected_out) < most
    assert error_ratio(lse, expected_lse) < 1e-6  # logits are exact products of the inputs in every dtype


def test_logits_of_size_80() -> None:
    """exp(80 * several) overflows float32; a softmax with a running maximum does not."""
    q, pk, pv, log_w, k, v = _inputs((1, 4, 2, 63, 111, 63), 64)
    out, lse = segment_attention(80 * q, pk, pv, log_w, k, v)
    expected_out, expected_lse = truth(80 * q, pk, pv, log_w, k, v)
    assert float(expected_lse.abs().max()) > 80
    assert error_ratio(out, expected_out) < 2e-4  # the float32 rounding of the logits themselves
    assert error_ratio(lse, expected_lse) < 1e-6


def test_a_given_scale() -> None:
    inputs = _inputs((1, 2, 1, 9, 20, 9), 64)
    out, _ = segment_attention(*inputs, scale=0.3)
    assert error_ratio(out, truth(*inputs, scale=0.3)[0]) < 2e-6


def test_sequences_of_unequal_length_never_read_their_pads() -> None:
    """Pads hold NaN: any that is read would show; a query in the pads gets zeros and -inf."""
    q, pk, pv, log_w, k, v = _inputs((3, 4, 2, 40, 70, 50), 80)
    prefix_lengths = torch.tensor([70, 0, 33], dtype=torch.int32)
    lengths = torch.tensor([50, 27, 5], dtype=torch.int32)
    for b in range(3):
        for tensor in (pk, pv, log_w):
            tensor[b, :, int(prefix_lengths[b]) :] = torch.nan
        for tensor in (k, v):
            tensor[b, :, int(lengths[b]) :] = torch.nan
        q[b, :, max(0, int(lengths[b]) - 10) :] = torch.nan
    q[0] = normal(4, 40, 80, seed=1)
    out, lse = segment_attention(q, pk, pv, log_w, k, v, prefix_lengths=prefix_lengths, lengths=lengths)
    for b in range(3):
        p, n = int(prefix_lengths[b]), int(lengths[b])
        alive = max(0, n - 10)  # queries belong to keys 10..49
        here = slice(b, b + 1)
        expected_out, expected_lse = truth(
            q[here, :, :alive],
            *(tensor[here, :, :p] for tensor in (pk, pv, log_w)),
            *(tensor[here, :, :n] for tensor in (k, v)),
        )
        if alive:
            assert error_ratio(out[here, :, :alive], expected_out) < 2e-6
            assert error_ratio(lse[here, :, :alive], expected_lse) < 1e-6
        assert bool((out[b, :, alive:] == 0).all())
        assert bool(lse[b, :, alive:].isneginf().all())


@pytest.mark.parametrize("seen", [slice(0, 5), slice(135, 140), slice(0, 0)], ids=["first", "last", "none"])
def test_hidden_entries_count_for_nothing(seen: slice) -> None:
    """A whole tile is hidden behind what is seen, or before it."""
    q, pk, pv, log_w, k, v = _inputs((1, 4, 2, 12, 140, 12), 64)
    hidden = torch.full_like(log_w, -torch.inf)
    hidden[:, :, seen] = log_w[:, :, seen]
    out, lse = segment_attention(q, pk, pv, hidden, k, v)
    alone_out, alone_lse = truth(q, pk[:, :, seen], pv[:, :, seen], log_w[:, :, seen], k, v)
    assert error_ratio(out, alone_out) < 2e-6
    assert error_ratio(lse, alone_lse) < 1e-6


def test_layouts_that_do_not_fit_are_copied() -> None:
    """Strides and addresses off 16 elements and bytes, a last dimension that is not contiguous."""
    q, pk, pv, log_w, k, v = _inputs((1, 4, 2, 9, 20, 9), 64)
    expected, _ = segment_attention(q, pk, pv, log_w, k, v)
    wide = torch.zeros(1, 2, 20, 67)
    wide[..., 3:] = pk
    crossed = torch.empty(1, 2, 64, 9).transpose(2, 3).copy_(v)
    out, _ = segment_attention(q, wide[..., 3:], pv, log_w, k, crossed)
    assert torch.equal(out, expected)


def test_what_it_does_not_take_is_named() -> None:
    q, pk, pv, log_w, k, v = _inputs((1, 4, 2, 6, 5, 6), 64)
    with pytest.raises(ValueError, match="keys has head size 60; allowed are 64, 80, 96, 128, 256"):
        segment_attention(q[..., :60], pk[..., :60], pv, log_w, k[..., :60], v)
    with pytest.raises(ValueError, match="values has head size 32; allowed is that of keys, 64"):
        segment_attention(q, pk, pv, log_w, k, v[..., :32])
    with pytest.raises(ValueError, match="another argument has head size 32; allowed is that of keys, 64"):
        segment_attention(q, pk, pv[..., :32], log_w, k, v)
    with pytest.raises(ValueError, match="prefix_keys has 1 KV heads; keys allows its own, 2"):
        segment_attention(q, pk[:, :1], pv[:, :1], log_w[:, :1], k, v)
    with pytest.raises(ValueError, match=r"keys has dtype torch\.float64"):
        segment_attention(q, pk, pv, log_w, k.double(), v)
    with pytest.raises(ValueError, match=r"is torch.bfloat16 on cpu; allowed is what keys is, torch.float32"):
        segment_attention(q.bfloat16(), pk, pv, log_w, k, v)
    with pytest.raises(ValueError, match=r"scale is -1\.0; allowed is more than 0"):
        segment_attention(q, pk, pv, log_w, k, v, scale=-1.0)
    with pytest.raises(ValueError, match="keys has 3 entries; q has 6 queries"):
        segment_attention(q, pk, pv, log_w, k[:, :, :3], v[:, :, :3])
    with pytest.raises(
        ValueError, match=r"lengths is torch.int64 of shape \(1,\) on cpu; allowed is torch.int32"
    ):
        segment_attention(q, pk, pv, log_w, k, v, lengths=torch.tensor([6]))
