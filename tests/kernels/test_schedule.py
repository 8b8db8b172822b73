"""What an Express stream holds, at every number of tokens: arithmetic alone."""

from __future__ import annotations

import pytest

from kernels.compress2 import Levels
from kernels.schedule import Schedule

ALL = [Schedule(1 << log, m_bar) for log in range(5) for m_bar in range(log + 2)]


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: f"{s.n_out}-{s.m_bar}")
def test_every_number_of_tokens(schedule: Schedule) -> None:
    """Weights sum to the tokens; exact below 4 n_out; the bound is reached and never exceeded."""
    before, most = 0, 0
    for tokens in range(schedule.end(schedule.m_bar // 2 + 2) + 1):
        blocks = schedule.blocks(tokens)
        size = sum(block.size for block in blocks)
        assert size == schedule.size(tokens)
        assert sum(block.size * block.weight for block in blocks) == tokens
        assert size <= before + 1  # what the policy's bisection stands on
        if tokens < 4 * schedule.n_out:
            assert size == tokens
        before, most = size, max(most, size)
    assert most == schedule.bound


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: f"{s.n_out}-{s.m_bar}")
def test_rounds_end_in_their_base(schedule: Schedule) -> None:
    for number in range(9):
        end = schedule.end(number)
        assert schedule.round_of(end - 1) == number
        assert schedule.round_of(end) == number + 1
        assert schedule.start(number + 1) == end
        assert schedule.size(end) == schedule.n_out
        assert schedule.blocks(end)[0].weight == 4 ** (number + 1)


def test_the_bound_is_about_six_times_the_output() -> None:
    for log in range(2, 16):
        schedule = Schedule.of(1 << log)
        assert 5 * schedule.n_out < schedule.bound < 6 * schedule.n_out
        assert schedule.size(10**15 + 12345) <= schedule.bound


def test_levels_keep_one_in_two_to_the_m() -> None:
    """Buckets of 4, 8, 16 points: 64 points fill each level once or more and leave 64 / 8."""
    levels = Levels(4, 3)
    assert levels.arrived(64) == (64, 32, 16, 8)
    assert levels.sizes(64) == (0, 0, 0, 8)
    assert levels.sizes(63) == (3, 6, 12, 0)
    assert Levels(4, 0).sizes(5) == (5,)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule(12, 2), "n_out is 12; allowed is a power of two"),
        (lambda: Schedule(8, 5), "m_bar is 5; n_out=8 allows 0 to 4"),
        (lambda: Schedule(8, -1), "m_bar is -1"),
        (lambda: Levels(3, 1), "smallest is 3; allowed is an even number"),
        (lambda: Levels(0, 1), "smallest is 0"),
        (lambda: Levels(4, -1), "count is -1"),
    ],
)
def test_bad_sizes_are_named(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
