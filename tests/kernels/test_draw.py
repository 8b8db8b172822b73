"""Chances and draws of the weighted sample."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.selection.draw import inclusion, systematic


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    entries=st.integers(2, 80),
    share=st.floats(0.01, 1.0),
    spread=st.floats(0.0, 12.0),
    seed=st.integers(0, 9),
)
def test_chances_sum_to_the_count_and_draws_follow_them(
    entries: int, share: float, spread: float, seed: int
) -> None:
    count = max(1, int(entries * share))
    random = torch.Generator().manual_seed(seed)
    mass = (spread * torch.randn(3, entries, generator=random)).exp()
    chances = inclusion(mass, torch.ones(3, entries), count, 0.01)
    assert torch.allclose(chances.sum(-1), torch.full((3,), float(count), dtype=torch.float64))
    assert bool(((chances > 0) & (chances <= 1)).all())
    places = systematic(chances, count, seed, 7)
    assert bool((places.diff(dim=-1) > 0).all())
    for row in range(3):
        sure = (chances[row] > 1 - 1e-9).nonzero()[:, 0]
        assert set(sure.tolist()) <= set(places[row].tolist())


def test_entries_are_drawn_as_often_as_their_chances_say() -> None:
    mass = torch.linspace(0.0, 1.0, 40)
    chances = inclusion(mass.expand(4000, 40), torch.ones(4000, 40), 10, 0.05)
    places = systematic(chances, 10, 1, 2)
    often = torch.zeros(4000, 40).scatter_(1, places, 1.0).double().mean(0)
    assert float((often - chances[0]).abs().max()) < 0.035  # 4 standard errors


def test_rows_without_any_mass_follow_their_base() -> None:
    chances = inclusion(torch.zeros(1, 8), torch.ones(1, 8), 4, 0.01)
    assert torch.allclose(chances, torch.full((1, 8), 0.5, dtype=torch.float64))
