"""Express on its own: what stands for all tokens, and attention over it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels import WeightedKV, coreset_attention, express_coreset
from kernels.reference import weighted_attention
from tests.kernels.numeric import error_ratio
from tests.kernels.streams import stream

TOKENS = stream(400, rows=(2, 2), d=8)


def test_a_coreset_is_small_and_stands_for_all() -> None:
    coreset = express_coreset(TOKENS.keys, TOKENS.values, entries=64, seed=4)
    assert len(coreset) <= 64
    assert bool((coreset.weights.sum(-1) == 400).all())
    assert bool((coreset.tokens.diff() > 0).all())
    assert bool((coreset.tokens[..., -1] == 399).all())
    found = TOKENS.keys.gather(2, coreset.tokens.long().unsqueeze(-1).expand_as(coreset.keys))
    assert torch.equal(found, coreset.keys)


def test_attention_over_a_coreset() -> None:
    coreset = express_coreset(TOKENS.keys, TOKENS.values, entries=64)
    q = torch.randn(2, 6, 9, 8, generator=torch.Generator().manual_seed(0))
    exact, _ = weighted_attention(
        q.double(), coreset.keys.double(), coreset.values.double(), coreset.weights.double().log(), scale=0.5
    )
    assert error_ratio(coreset_attention(q, coreset, scale=0.5), exact) < 1e-6


@pytest.mark.parametrize("weight", [-1.0, 0.0, torch.nan, torch.inf])
def test_weights_that_no_entry_can_have(weight: float) -> None:
    weights = TOKENS.weights.clone()
    weights[1, 1, 7] = weight
    with pytest.raises(ValueError, match=r"weights (has|is) .*allowed"):
        coreset_attention(torch.zeros(2, 2, 1, 8), replace(TOKENS, weights=weights))


def test_what_is_refused() -> None:
    keys = TOKENS.keys.clone()
    keys[0, 0, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=r"k is nan at \(0, 0, 0, 0\)"):
        express_coreset(keys, TOKENS.values, entries=64)
    with pytest.raises(ValueError, match="entries is 63; allowed is an even number"):
        express_coreset(TOKENS.keys, TOKENS.values, entries=63)
    with pytest.raises(ValueError, match=r"keys has dtype .*32; allowed is .*64"):
        coreset_attention(torch.zeros(2, 2, 1, 8).double(), TOKENS)
    with pytest.raises(ValueError, match="keys has shape"):
        coreset_attention(torch.zeros(2, 2, 1, 6), WeightedKV.empty((2, 2), 8))
