"""segment_attention, decode_attention and their parts against the float64 reference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from kernels.attention import attend, segment_attention
from kernels.decode import decode_attention
from kernels.reference import weighted_attention
from tests.kernels.numeric import error_ratio

# B, Hq, Hkv, S, C, S', d, d_v
SHAPES = [
    pytest.param((1, 4, 2, 63, 111, 63, 64, 64), id="ragged"),
    pytest.param((2, 9, 3, 17, 40, 29, 60, 60), id="batch2-gqa3-head60-earlier-keys"),
    pytest.param((1, 8, 1, 130, 0, 130, 100, 100), id="multi-query-no-prefix-head100"),
    pytest.param((2, 3, 3, 1, 257, 1, 16, 16), id="multi-head-one-query"),
    pytest.param((1, 4, 2, 300, 65, 301, 24, 40), id="values-wider-than-keys"),
    pytest.param((1, 2, 1, 5, 1, 700, 8, 8), id="long-past-short-segment"),
]


def _inputs(shape: tuple[int, ...], size: float = 1.0) -> tuple[Tensor, ...]:
    """q, prefix keys, values and log-weights (weights 1 to 2^20), keys, values; q strided as a model's is."""
    batch, heads, kv_heads, queries, entries, own, d, d_v = shape
    random = torch.Generator().manual_seed(sum(shape))

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=random)

    powers = torch.randint(0, 21, (batch, kv_heads, entries), generator=random)
    return (
        normal(batch, queries, heads, d).transpose(1, 2) * size,
        normal(batch, kv_heads, entries, d),
        normal(batch, kv_heads, entries, d_v),
        powers * torch.tensor(2.0).log(),
        normal(batch, kv_heads, own, d),
        normal(batch, kv_heads, own, d_v),
    )


def _expected(
    q: Tensor, pk: Tensor, pv: Tensor, log_w: Tensor, k: Tensor, v: Tensor
) -> tuple[Tensor, Tensor]:
    return weighted_attention(
        q.double(),
        torch.cat([pk, k], 2).double(),
        torch.cat([pv, v], 2).double(),
        torch.cat([log_w, log_w.new_zeros(k.shape[:3])], 2).double(),
        causal_from=pk.shape[2] + k.shape[2] - q.shape[2],
    )


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    """Fresh memory is NaN, so that an element no kernel writes fails its test."""
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = before


@pytest.mark.parametrize("implementation", ["torch", "reference"])
@pytest.mark.parametrize("shape", SHAPES)
def test_segment_agrees_with_fp64(
    shape: tuple[int, ...], implementation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCEXPRESS_KERNELS", implementation)
    inputs = _inputs(shape)
    out, lse = segment_attention(*inputs)
    expected_out, expected_lse = _expected(*inputs)
    assert out.shape == expected_out.shape
    assert lse.shape == expected_lse.shape
    assert lse.dtype == torch.float32
    assert error_ratio(out, expected_out) < 2e-6
    assert error_ratio(lse, expected_lse) < 1e-6


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_logits_of_size_80_stay_finite(shape: tuple[int, ...]) -> None:
    """exp(80 * several) overflows float32; a softmax with a running maximum does not."""
    q, pk, pv, log_w, k, v = _inputs(shape, size=80.0)
    out, lse = segment_attention(q, pk, pv, log_w, k, v)
    expected_out, expected_lse = _expected(q, pk, pv, log_w, k, v)
    assert float(expected_lse.abs().max()) > 80
    assert error_ratio(out, expected_out) < 2e-4  # the float32 rounding of the logits themselves
    assert error_ratio(lse, expected_lse) < 1e-6


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_other_dtypes(dtype: torch.dtype) -> None:
    q, pk, pv, log_w, k, v = _inputs((1, 4, 2, 63, 111, 70, 64, 64))
    q, pk, pv, k, v = (tensor.to(dtype) for tensor in (q, pk, pv, k, v))
    out, lse = segment_attention(q, pk, pv, log_w, k, v)
    expected_out, expected_lse = _expected(q, pk, pv, log_w, k, v)
    assert out.dtype == dtype
    assert lse.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert error_ratio(out, expected_out) < 4 * torch.finfo(dtype).eps + 1e-7  # log weights are float32
    assert error_ratio(lse, expected_lse) < 1e-5


@pytest.mark.parametrize("queries", [1, 2, 8])
@pytest.mark.parametrize("implementation", ["torch", "reference"])
def test_decode_agrees_with_fp64(queries: int, implementation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCEXPRESS_KERNELS", implementation)
    q, keys, values, log_w, *_ = _inputs((2, 6, 2, queries, 111, 0, 60, 60))
    log_w[:, :, :30] = -torch.inf  # a cache may hide entries, for example to pad a batch
    out, lse = decode_attention(q, keys, values, log_w)
    expected_out, expected_lse = weighted_attention(
        q.double(), keys.double(), values.double(), log_w.double(), causal_from=111 - queries
    )
    assert error_ratio(out, expected_out) < 2e-6
    assert error_ratio(lse, expected_lse) < 1e-6


@pytest.mark.parametrize("d_v", [64, 32], ids=["flash", "portable"])
def test_a_query_that_sees_nothing_gets_zeros(d_v: int) -> None:
    q, keys, values, log_w, own_keys, own_values = _inputs((2, 4, 2, 5, 600, 5, 64, d_v))
    log_w[1] = -torch.inf
    for out, lse in (
        attend(q, keys, values, log_weights=log_w),
        weighted_attention(q, keys, values, log_w),
        weighted_attention(q, keys[:, :, :0], values[:, :, :0], log_w[:, :, :0]),
    ):
        assert torch.equal(out[1], torch.zeros_like(out[1]))
        assert torch.equal(lse[1], torch.full_like(lse[1], -torch.inf))
    alone, _ = segment_attention(q, keys[:, :, :0], values[:, :, :0], log_w[:, :, :0], own_keys, own_values)
    hidden, _ = segment_attention(q, keys, values, log_w, own_keys, own_values)
    assert torch.equal(alone[1], hidden[1])
    out, lse = decode_attention(q[:, :, :1], keys, values, log_w)
    assert not out.isnan().any()
    assert bool(lse[1].isneginf().all())
    assert not bool(lse[0].isinf().any())


def test_a_weight_counts_like_copies() -> None:
    """Three copies of an entry and one entry of weight 3 are the same attention."""
    q, keys, values, _, own_keys, own_values = _inputs((1, 2, 1, 7, 20, 7, 16, 16))
    copies = segment_attention(
        q,
        torch.cat([keys] * 3, 2),
        torch.cat([values] * 3, 2),
        torch.zeros(1, 1, 60),
        own_keys,
        own_values,
    )
    once = segment_attention(q, keys, values, torch.full((1, 1, 20), 3.0).log(), own_keys, own_values)
    assert error_ratio(once[0], copies[0]) < 1e-6
    assert error_ratio(once[1], copies[1]) < 1e-6


def test_shapes_that_do_not_fit_are_named() -> None:
    q, pk, pv, log_w, k, v = _inputs((1, 4, 2, 6, 5, 6, 8, 8))
    with pytest.raises(ValueError, match="keys has 3 entries; q has 6 queries"):
        segment_attention(q, pk, pv, log_w, k[:, :, :3], v[:, :, :3])
    with pytest.raises(ValueError, match="prefix_log_weights has shape"):
        segment_attention(q, pk, pv, log_w[:, :, :2], k, v)
    with pytest.raises(ValueError, match="prefix_values has shape"):
        segment_attention(q, pk, pv[:, :, :2], log_w, k, v)
    with pytest.raises(ValueError, match="KV heads that divide"):
        segment_attention(q[:, :3], pk, pv, log_w, k, v)
    with pytest.raises(ValueError, match="q has 6 queries; allowed are 1 to 5"):
        decode_attention(q, pk, pv, log_w)
    with pytest.raises(ValueError, match="dimensions"):
        decode_attention(q[0], pk, pv, log_w)
