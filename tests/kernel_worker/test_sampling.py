"""Choosing a token: greedy, nucleus, penalty, and randomness that depends on (seed, index) alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from kernel_worker.errors import InvalidRequest
from kernel_worker.sampling import Sampling, choose, uniform

LOGITS = torch.tensor([1.0, 3.0, 2.0, -1.0])


def drawn(sampling: Sampling, count: int = 4000) -> Counter[int]:
    return Counter(choose(LOGITS, [0] * index, sampling) for index in range(count))


def test_temperature_0_takes_the_largest() -> None:
    assert choose(LOGITS, (), Sampling()) == 1


def test_frequencies_are_those_of_the_softmax() -> None:
    expected = torch.softmax(LOGITS / 1.5, dim=-1)
    counts = drawn(Sampling(temperature=1.5, seed=3))
    for token in range(4):
        assert counts[token] / 4000 == pytest.approx(float(expected[token]), abs=0.03)


def test_top_p_leaves_the_smallest_set_that_reaches_it() -> None:
    # Probabilities .09, .66, .24, .01: two reach .85, three reach .92.
    assert set(drawn(Sampling(temperature=1.0, top_p=0.85), 500)) == {1, 2}
    assert set(drawn(Sampling(temperature=1.0, top_p=0.92), 500)) == {0, 1, 2}
    assert set(drawn(Sampling(temperature=1.0, top_p=1e-6), 100)) == {1}


def test_a_draw_depends_on_seed_and_index_alone() -> None:
    # Fixed numbers: another process, platform or version must draw the same.
    assert uniform(0, 0) == pytest.approx(0.8344336729487916, abs=1e-15)
    assert len({uniform(seed, index) for seed in range(10) for index in range(10)}) == 100
    assert all(0 <= uniform(7, index) < 1 for index in range(1000))


def test_the_penalty_lowers_what_was_written_whatever_its_sign() -> None:
    assert choose(LOGITS, [1], Sampling(repetition_penalty=2.0)) == 2
    assert choose(-LOGITS - 3, [3], Sampling(repetition_penalty=3.0)) == 0
    assert choose(LOGITS, [1], Sampling(repetition_penalty=1.0)) == 1


def test_logits_are_not_changed() -> None:
    logits = LOGITS.clone()
    choose(logits, [1, 1, 2], Sampling(repetition_penalty=2.0, temperature=0.5, top_p=0.5))
    assert torch.equal(logits, LOGITS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_new_tokens", 0),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("repetition_penalty", 0.0),
        ("seed", -1),
        ("seed", 2**64),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"{name} is"):
        Sampling(**{name: value})
