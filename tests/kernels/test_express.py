"""The Express stream and the policy around it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.express import ExpressStream
from kernels.halving import Halving, kernel_halving, uniform_halving
from kernels.schedule import Schedule
from kernels.seeds import derive, uniforms
from kernels.selection import make_policy
from kernels.weighted_kv import WeightedKV
from tests.kernels.streams import concat, folded, same, stream

TOKENS = stream(1100, d=5)


def first_of_each_pair(keys: Tensor, values: Tensor, randoms: Tensor) -> Tensor:
    """Any function that keeps half will do; this one is easily followed by hand."""
    return torch.arange(0, keys.shape[-2], 2).expand(*keys.shape[:-2], -1)


HALVINGS = [kernel_halving, partial(kernel_halving, rule="threshold"), uniform_halving, first_of_each_pair]
NAMES = ["greedy", "threshold", "uniform", "own"]


def pushed(express: ExpressStream, tokens: WeightedKV, lengths: Sequence[int]) -> WeightedKV:
    held, seen = tokens.slice(0, 0), 0
    for length in lengths:
        new = tokens.slice(seen, min(seen + length, len(tokens)))
        held, seen = express.push(held, seen, new), seen + len(new)
    return held


@pytest.mark.parametrize("halving", HALVINGS, ids=NAMES)
@pytest.mark.parametrize("m_bar", [0, 1, 2, 3], ids=lambda m: f"m_bar{m}")
def test_one_by_one_in_segments_and_at_once(halving: Halving, m_bar: int) -> None:
    express = ExpressStream(Schedule(4, m_bar), halving, seed=3)
    tokens = TOKENS.slice(0, 400)
    whole = pushed(express, tokens, [400])
    assert same(whole, pushed(express, tokens, [1] * 400))
    assert same(whole, pushed(express, tokens, [63, 111, 1, 37, 188]))
    assert len(whole) == express.schedule.size(400)


@pytest.mark.parametrize("m_bar", [0, 1, 2, 3], ids=lambda m: f"m_bar{m}")
def test_history_is_what_was_held_at_every_length(m_bar: int) -> None:
    express = ExpressStream(Schedule(4, m_bar), kernel_halving, seed=3)
    history = express.history(TOKENS.slice(0, 300))
    held = TOKENS.slice(0, 0)
    for tokens in range(300):
        assert same(history.held(tokens), held), tokens
        held = express.push(held, tokens, TOKENS.slice(tokens, tokens + 1))
    assert same(history.held(300), held)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(0, 400), max_size=8), log=st.integers(1, 5), seed=st.integers(0, 2**63 - 1)
)
def test_any_segmentation(lengths: list[int], log: int, seed: int) -> None:
    express = ExpressStream(Schedule.of(1 << log), kernel_halving, seed)
    total = min(sum(lengths), len(TOKENS))
    assert same(pushed(express, TOKENS, lengths), pushed(express, TOKENS, [total]))


@pytest.mark.parametrize("halving", HALVINGS, ids=NAMES)
def test_at_every_length(halving: Halving) -> None:
    """Weights sum to the tokens, sizes are the schedule's, exact below the threshold, order kept."""
    express = ExpressStream(Schedule.of(4), halving, seed=1)
    held = TOKENS.slice(0, 0)
    for seen in range(1, 500):
        held = express.push(held, seen - 1, TOKENS.slice(seen - 1, seen))
        assert len(held) == express.schedule.size(seen) <= express.schedule.bound
        assert torch.equal(held.weights.sum(-1), torch.full((2, 2), float(seen)))
        assert bool((held.tokens.diff(dim=-1) > 0).all())
        if seen < 16:
            assert same(held, TOKENS.slice(0, seen))
    origin = TOKENS.gather(held.tokens.long())
    assert torch.equal(origin.keys, held.keys)  # every entry is the token it says it is
    assert torch.equal(origin.values, held.values)


def test_the_stream_is_what_the_definition_says() -> None:
    """Rounds, chunks and levels written out, for complete chunks."""
    express = ExpressStream(Schedule(8, 4), kernel_halving, seed=9)

    def halve(points: WeightedKV, number: int, level: int, bucket: int) -> WeightedKV:
        half = len(points) // 2
        rows = torch.arange(4).view(2, 2, 1)
        randoms = uniforms(derive(9, 1, number, level), rows, torch.tensor(bucket), torch.arange(half + 1))
        return points.gather(kernel_halving(points.keys, points.values, randoms)).scaled(2.0)

    def compress2(points: WeightedKV, number: int, chunk: int) -> WeightedKV:
        for level in range(2 * number):
            size = (4 * 8 >> 2 * number) << level
            buckets = [points.slice(start, start + size) for start in range(0, len(points), size)]
            points = concat(
                [halve(x, number, level, chunk * len(buckets) + i) for i, x in enumerate(buckets)]
            )
        return points

    base, tokens = TOKENS.slice(0, 8), 8
    for number in range(3):
        parts = [base]
        for chunk in range(3):
            length = 8 * 4**number
            parts.append(compress2(TOKENS.slice(tokens, tokens + length), number, chunk))
            tokens += length
            if chunk < 2:
                assert same(concat(parts), pushed(express, TOKENS, [tokens]))
        base = concat(parts)
        for level in (2 * number, 2 * number + 1):
            base = halve(base, number, level, 0)
        assert same(base, pushed(express, TOKENS, [tokens]))


@pytest.mark.parametrize("m_bar", [0, 3])
@pytest.mark.parametrize("halving", [kernel_halving, uniform_halving])
def test_every_token_counts_once_on_average(halving: Halving, m_bar: int) -> None:
    """Over many independent rows the mean weight of every token is 1: nothing is favoured or lost."""
    tokens = 64 * 4 + 3
    one = stream(tokens, rows=(), d=3)
    rows = 3000
    many = WeightedKV(*(x.expand(rows, *x.shape) for x in one.tensors()))
    held = pushed(ExpressStream(Schedule(4, m_bar), halving, seed=0), many, [tokens])
    mean = torch.zeros(rows, tokens).scatter_(1, held.tokens.long(), held.weights).mean(0)
    error = held.weights.max() ** 0.5 / rows**0.5
    assert float((mean - 1).abs().max()) < 4.5 * float(error)


def test_seeds() -> None:
    schedule = Schedule.of(8)
    first, again, other = (
        pushed(ExpressStream(schedule, kernel_halving, seed), TOKENS, [1000]) for seed in (5, 5, 6)
    )
    assert same(first, again)
    assert not torch.equal(first.tokens, other.tokens)
    assert not torch.equal(first.tokens[0, 0], first.tokens[1, 1])


def test_held_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="held has 9 points; after so many tokens there are 10"):
        ExpressStream(Schedule.of(4), kernel_halving, 0).push(TOKENS.slice(0, 9), 10, TOKENS.slice(10, 11))


@pytest.mark.parametrize("entries", [84, 201])
def test_the_policy_at_every_length(entries: int) -> None:
    policy = make_policy("express", entries=entries, seed=2, parameters={"sinks": "7"})
    tokens, recent = stream(700, d=2), (entries + 1) // 2
    cache = folded(policy, tokens.slice(0, 0), [])
    for seen in range(1, len(tokens) + 1):
        cache = policy.fold(cache, tokens.slice(seen - 1, seen))
        assert len(cache.entries) <= policy.entries
        assert float(cache.entries.weights.sum(-1).sub(seen).abs().max()) == 0
        if seen <= entries:
            assert same(cache.entries, tokens.slice(0, seen))
    row = cache.entries.tokens[0, 0].tolist()
    assert row == sorted(row)
    assert row[:7] == list(range(7))
    assert row[-recent:] == list(range(700 - recent, 700))
    assert torch.equal(cache.entries.weights[..., -recent:], torch.ones(2, 2, recent))


def test_the_policy_wastes_nothing() -> None:
    """Full, but for what the last halvings freed: 5 n_out at the end of a round, far less elsewhere."""
    policy = make_policy("express", entries=512, seed=0)
    tokens, sizes = stream(2400, rows=(1,), d=2), []
    cache = folded(policy, tokens, [600])
    while cache.seen < len(tokens):
        cache = policy.fold(cache, tokens.slice(cache.seen, cache.seen + 20))
        sizes.append(len(cache.entries))
    assert min(sizes) >= 512 - 5 * 32
    assert sum(sizes) / len(sizes) > 0.97 * 512


def test_temper_and_parameters() -> None:
    policy = make_policy("express", entries=256, seed=4, parameters={"temper": "0.25", "m_bar": "3"})
    assert policy.parameters == {
        "entries": 256,
        "seed": 4,
        "sinks": 32,
        "temper": 0.25,
        "halving": "greedy",
        "centred": "true",
        "m_bar": 3,
    }
    cache = folded(policy, TOKENS, [1100])
    assert torch.equal(policy.log_weights(cache.entries), cache.entries.weights.log() * 0.25)
    paper = make_policy(
        "express", entries=256, seed=4, parameters={"halving": "threshold", "centred": "false", "temper": "1"}
    )
    assert not same(folded(paper, TOKENS, [1100]).entries, cache.entries)


@pytest.mark.parametrize(
    ("entries", "parameters", "message"),
    [
        (83, {}, "entries is 83; allowed is 84 or more: 32 sinks, 10 entries for the smallest stream"),
        (128, {"sinks": "-1"}, "sinks is -1; allowed is 0 or more"),
        (128, {"temper": "1.5"}, "temper is 1.5; allowed is 0 to 1"),
        (128, {"halving": "best"}, "halving is 'best'; allowed are greedy, threshold, uniform"),
        (128, {"m_bar": "-3"}, "m_bar is -3; allowed is 0 or more"),
        (128, {"centred": "yes"}, "centred is 'yes'; allowed are true and false"),
    ],
)
def test_bad_parameters_are_named(entries: int, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy("express", entries=entries, seed=0, parameters=parameters)
