"""A sketch has the size it was asked for, stands for every token, and keeps both ends."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.sketch import sketch
from tests.kernels.streams import same, stream

TOKENS = stream(500)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(tokens=st.integers(1, 500), entries=st.integers(35, 200))
def test_size_weights_and_ends(tokens: int, entries: int) -> None:
    segment = TOKENS.slice(0, tokens)
    found = sketch(segment, entries, seed=3, first=8, last=11)
    assert len(found) == min(tokens, entries)
    assert torch.equal(found.weights.sum(-1), torch.full((2, 2), float(tokens)))
    assert bool((found.tokens.diff(dim=-1) > 0).all())
    kept = segment.gather(found.tokens.long())
    assert torch.equal(found.keys, kept.keys)
    assert torch.equal(found.values, kept.values)
    if tokens > entries:
        ends = [*range(8), *range(tokens - 11, tokens)]
        assert found.tokens[1, 0, [*range(8), *range(-11, 0)]].tolist() == ends
        assert bool((found.weights[..., :8] == 1.0).all())


def test_the_seed_decides() -> None:
    first, again, other = (sketch(TOKENS, 100, seed=seed) for seed in (1, 1, 2))
    assert same(first, again)
    assert not same(first, other)


def test_rows_draw_coins_of_their_own() -> None:
    alike = stream(500, rows=(1, 1))
    rows = type(alike)(*(tensor.expand(3, 4, *tensor.shape[2:]) for tensor in alike.tensors()))
    tokens = sketch(rows, 100, seed=1).tokens
    assert not bool((tokens == tokens[:1, :1]).all())


@pytest.mark.parametrize("entries", [1, 79])
def test_no_room_is_refused(entries: int) -> None:
    with pytest.raises(ValueError, match=f"entries is {entries}; allowed is 16 or more beside 32 first"):
        sketch(TOKENS, entries, seed=0)
