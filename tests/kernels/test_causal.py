"""Causal attention in segments: what it sees, how far it is from exact, what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from kernels import express_attention
from kernels.causal import Past, schedule_for
from kernels.express import ExpressStream
from kernels.halving import kernel_halving
from kernels.reference import weighted_attention
from kernels.weighted_kv import WeightedKV, concat
from tests.kernels.distributions import low_rank
from tests.kernels.numeric import error_ratio
from tests.kernels.streams import same


def inputs(
    tokens: int, heads: int = 6, kv_heads: int = 2, d: int = 8, d_v: int = 8, batch: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(tokens)
    shapes = ((heads, d), (kv_heads, d), (kv_heads, d_v))
    q, k, v = (torch.randn(batch, count, tokens, size, generator=random) for count, size in shapes)
    return q, k, v


@pytest.mark.parametrize("tokens", [1, 31, 96], ids=lambda n: f"{n}tokens")
def test_exact_as_long_as_the_entries_hold_everything(tokens: int) -> None:
    q, k, v = inputs(tokens)
    out = express_attention(q, k, v, entries=64, segment=32)
    exact = scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True, enable_gqa=True)
    assert error_ratio(out, exact) < 1e-6


@pytest.mark.parametrize("segment", [32, 45], ids=lambda n: f"segment{n}")
@pytest.mark.parametrize("scale", [None, 0.9], ids=lambda s: f"scale{s}")
def test_every_query_sees_its_segment_and_the_stream_before_it(segment: int, scale: float | None) -> None:
    q, k, v = inputs(611, d_v=5)
    out = express_attention(q, k, v, entries=40, segment=segment, seed=3, scale=scale)
    expected = torch.cat(
        [_segment(q, k, v, start, segment, scale) for start in range(0, 611, segment)], dim=2
    )
    assert error_ratio(out, expected) < 1e-6


def _segment(q: Tensor, k: Tensor, v: Tensor, start: int, segment: int, scale: float | None) -> Tensor:
    """The specification: tokens pushed one segment after the other, and attention in float64."""
    tokens, schedule = WeightedKV.exact(k, v), schedule_for(40)
    stream = ExpressStream(schedule, lambda *points: kernel_halving(*points, scale=scale), 3)
    held, pushed = tokens.slice(0, 0), 0
    for end in range(0, start + 1, segment):
        streamed = schedule.streamed(end, 40)
        held, pushed = stream.push(held, pushed, tokens.slice(pushed, streamed)), streamed
    stop = min(start + segment, len(tokens))
    seen = concat([held, tokens.slice(pushed, stop)])
    assert float(seen.weights[0, 0].sum()) == stop
    assert len(held) + start - pushed <= 40
    out, _ = weighted_attention(
        q[:, :, start:stop].double(),
        seen.keys.double(),
        seen.values.double(),
        seen.weights.double().log(),
        scale=scale,
        causal_from=len(seen) - (stop - start),
    )
    return out


def test_the_error_falls_as_the_entries_grow() -> None:
    problem = low_rank(4, 4096, seed=0)
    k, v = (x.unsqueeze(0) for x in (problem.tokens.keys, problem.tokens.values))
    q = k.roll(1000, dims=2)
    exact = scaled_dot_product_attention(q, k, v, is_causal=True)
    errors = [
        error_ratio(express_attention(q, k, v, entries=entries, segment=256)[:, :, 2048:], exact[:, :, 2048:])
        for entries in (64, 256, 1024)
    ]
    assert errors[0] > 1.5 * errors[1] > 3 * errors[2]


def test_same_arguments_same_bytes_and_another_seed_others() -> None:
    q, k, v = inputs(500)
    first, again, other = (express_attention(q, k, v, entries=32, segment=64, seed=s) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(dtype: torch.dtype) -> None:
    q, k, v = (x.to(dtype) for x in inputs(300))
    out = express_attention(q, k, v, entries=64, segment=64)
    wide = express_attention(q.double(), k.double(), v.double(), entries=64, segment=64)
    assert out.dtype == dtype
    assert error_ratio(out, wide) < 0.02


def test_an_input_of_no_tokens() -> None:
    q, k, v = inputs(0)
    assert express_attention(q, k, v, entries=64).shape == q.shape


def test_past_of_every_length_is_that_of_its_tokens_alone() -> None:
    _, k, v = inputs(700)
    past = Past.of(k, v, entries=32, seed=5)
    for tokens in (0, 1, 32, 33, 200, 555, 700):
        alone = Past.of(k[:, :, :tokens], v[:, :, :tokens], entries=32, seed=5)
        assert same(past.before(tokens), alone.before(tokens))


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "odd": ({"entries": 65}, r"entries is 65; allowed is an even number, \d+ or more"),
    "none": ({"entries": 0}, "entries is 0; allowed is"),
    "negative": ({"entries": -2}, "entries is -2; allowed is"),
    "segment": ({"segment": 0}, "segment is 0; allowed is 1 or more"),
    "seed": ({"seed": -1}, "seed is -1; allowed is 0 to"),
    "nan": ({"q": torch.full((2, 6, 10, 8), torch.nan)}, r"q is nan at \(0, 0, 0, 0\); allowed are finite"),
    "infinite": ({"v": torch.full((2, 2, 10, 8), torch.inf)}, "v is inf at"),
    "dtype": ({"k": torch.zeros(2, 2, 10, 8).half()}, "k has dtype torch.float16; allowed is torch.float32"),
    "integers": ({"q": torch.zeros(2, 6, 10, 8, dtype=torch.int64)}, "q has dtype torch.int64; allowed is"),
    "heads": ({"k": torch.zeros(2, 4, 10, 8)}, "k has shape .* KV heads that divide"),
    "tokens": ({"k": torch.zeros(2, 2, 9, 8), "v": torch.zeros(2, 2, 9, 8)}, "k has 9 tokens; q has 10"),
    "values": ({"v": torch.zeros(2, 2, 9, 8)}, "v has shape .* k allow"),
    "dimensions": ({"q": torch.zeros(6, 10, 8)}, "q, k and v have 3, 4 and 4 dimensions"),
    "gradient": ({"q": torch.zeros(2, 6, 10, 8, requires_grad=True)}, "requires a gradient"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    q, k, v = inputs(10)
    with pytest.raises(ValueError, match=message):
        express_attention(**({"q": q, "k": k, "v": v, "entries": 64} | changes))
