"""The decode programs against the float64 reference."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.reference import weighted_attention
from kernels.triton.decode import PART, decode_attention, decode_attention_packed
from kernels.triton.support import HEAD_SIZES
from tests.kernels.numeric import error_ratio
from tests.kernels.triton.interpreted.inputs import DTYPES, log_weights, normal


def _inputs(
    batch: int,
    heads: int,
    kv_heads: int,
    queries: int,
    entries: int,
    d: int,
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    seed = batch + heads + queries + entries + d
    return [
        normal(batch, queries, heads, d, seed=seed, dtype=dtype).transpose(1, 2),
        normal(batch, kv_heads, entries, d, seed=seed + 1, dtype=dtype),
        normal(batch, kv_heads, entries, d, seed=seed + 2, dtype=dtype),
        log_weights(batch, kv_heads, entries, seed=seed + 3),
    ]


def _truth(q: Tensor, keys: Tensor, values: Tensor, log_w: Tensor) -> tuple[Tensor, Tensor]:
    q, keys, values, log_w = (tensor.double() for tensor in (q, keys, values, log_w))
    return weighted_attention(q, keys, values, log_w, causal_from=keys.shape[2] - q.shape[2])


@pytest.mark.parametrize("queries", [1, 3, 8])
@pytest.mark.parametrize("entries", [9, PART, 2 * PART + 63])
def test_queries_and_parts(queries: int, entries: int) -> None:
    inputs = _inputs(1, 6, 2, queries, entries, 64)
    out, lse = decode_attention(*inputs)
    expected_out, expected_lse = _truth(*inputs)
    assert (out.shape, lse.shape, lse.dtype) == (expected_out.shape, expected_lse.shape, torch.float32)
    assert error_ratio(out, expected_out) < 2e-6
    assert error_ratio(lse, expected_lse) < 1e-6


@pytest.mark.parametrize(("dtype", "most"), DTYPES, ids=lambda x: str(x).removeprefix("torch."))
@pytest.mark.parametrize("d", HEAD_SIZES)
def test_every_head_size_and_dtype(d: int, dtype: torch.dtype, most: float) -> None:
    inputs = _inputs(1, 2, 1, 2, 270, d, dtype)
    out, lse = decode_attention(*inputs)
    expected_out, expected_lse = _truth(*inputs)
    assert out.dtype == dtype
    assert error_ratio(out, expected_out) < most
    assert error_ratio(lse, expected_lse) < 1e-6


def test_more_parts_than_are_merged_at_a_time() -> None:
    """The largest part comes last, so what was merged before shrinks."""
    q, keys, values, log_w = _inputs(1, 1, 1, 1, 17 * PART + 5, 64)
    log_w[..., : 16 * PART] -= 9.0
    assert error_ratio(decode_attention(q, keys, values, log_w)[0], _truth(q, keys, values, log_w)[0]) < 2e-6


def test_hidden_entries_count_for_nothing() -> None:
    q, keys, values, log_w = _inputs(2, 4, 2, 2, 300, 64)
    log_w[0, :, 10:] = -torch.inf
    log_w[1] = -torch.inf
    out, lse = decode_attention(q, keys, values, log_w)
    expected_out, expected_lse = _truth(q[:1], keys[:1], values[:1], log_w[:1])
    assert error_ratio(out[:1], expected_out) < 2e-6
    assert error_ratio(lse[:1], expected_lse) < 1e-6
    assert bool((out[1] == 0).all())
    assert bool(lse[1].isneginf().all())


def test_more_rows_than_one_program_takes() -> None:
    inputs = _inputs(1, 20, 1, 3, 40, 64)
    assert error_ratio(decode_attention(*inputs)[0], _truth(*inputs)[0]) < 2e-6


def test_logits_of_size_80() -> None:
    q, keys, values, log_w = _inputs(1, 4, 2, 2, 300, 64)
    out, lse = decode_attention(80 * q, keys, values, log_w)
    expected_out, expected_lse = _truth(80 * q, keys, values, log_w)
    assert error_ratio(out, expected_out) < 2e-4  # the float32 rounding of the logits themselves
    assert error_ratio(lse, expected_lse) < 1e-6


def test_sequences_of_unequal_size_padded_and_packed() -> None:
    """Pads hold NaN; the third sequence has fewer entries than queries, the fourth has none."""
    sizes = [300, 41, 2, 0]
    q, keys, values, log_w = _inputs(4, 4, 2, 3, 300, 64)
    for b, size in enumerate(sizes):
        for tensor in (keys, values, log_w):
            tensor[b, :, size:] = torch.nan
    lengths = torch.tensor(sizes, dtype=torch.int32)
    padded = decode_attention(q, keys, values, log_w, lengths=lengths)
    pieces = [[x[b, :, :size] for b, size in enumerate(sizes)] for x in (keys, values, log_w)]
    offsets = torch.tensor([0, *lengths.cumsum(0).tolist()], dtype=torch.int32)
    packed = decode_attention_packed(q, *(torch.cat(piece, 1) for piece in pieces), offsets)
    for b, size in enumerate(sizes):
        seeing = slice(max(0, 3 - size), 3)  # a query before the first entry sees nothing
        here = slice(b, b + 1)
        expected = _truth(q[here, :, seeing], *(tensor[here, :, :size] for tensor in (keys, values, log_w)))
        for out, lse in (padded, packed):
            if size:
                assert error_ratio(out[here, :, seeing], expected[0]) < 2e-6
                assert error_ratio(lse[here, :, seeing], expected[1]) < 1e-6
            assert bool((out[b, :, : max(0, 3 - size)] == 0).all())
            assert bool(lse[b, :, : max(0, 3 - size)].isneginf().all())


def test_a_result_is_the_same_bits_in_any_batch() -> None:
    q, keys, values, log_w = _inputs(3, 2, 1, 1, 600, 64)
    lengths = torch.tensor([70, 290, 600], dtype=torch.int32)
    out, lse = decode_attention(q, keys, values, log_w, lengths=lengths)
    alone = decode_attention(q[1:2], *(x[1:2, :, :290] for x in (keys, values, log_w)))
    assert torch.equal(out[1:2], alone[0])
    assert torch.equal(lse[1:2], alone[1])


def test_what_it_does_not_take_is_named() -> None:
    q, keys, values, log_w = _inputs(1, 2, 1, 1, 20, 64)
    with pytest.raises(ValueError, match="q has 9 queries; allowed are 1 to 8"):
        decode_attention(q.expand(1, 2, 9, 64), keys, values, log_w)
    with pytest.raises(ValueError, match="log_weights has shape"):
        decode_attention(q, keys, values, log_w[..., :3])
    with pytest.raises(ValueError, match=r"offsets is torch.int32 of shape \(3,\)"):
        decode_attention_packed(q, keys[0], values[0], log_w[0], torch.tensor([0, 1, 20], dtype=torch.int32))
    with pytest.raises(ValueError, match="keys has 4 dimensions; allowed are 3"):
        decode_attention_packed(q, keys, values[0], log_w[0], torch.tensor([0, 20], dtype=torch.int32))
    with pytest.raises(ValueError, match="keys has head size 32"):
        decode_attention(q[..., :32], keys[..., :32], values[..., :32], log_w)
