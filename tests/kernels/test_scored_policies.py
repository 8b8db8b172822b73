"""Policies that choose by scores: each keeps the promises of `SelectionPolicy` and does what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kernels.selection import make_policy
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV, concat
from tests.kernels.observations import Looking, folded_observing, looking_at, random_look
from tests.kernels.streams import same, stream

OBSERVING = ("snapkv", "pyramidkv", "expected_attention", "kvzip", "importance", "passages")
SCORED = (*OBSERVING, "keydiff", "knorm")
COMPOSED = ("snapkv+express", "importance+express", "passages+express")
TOKENS = stream(700)


@pytest.mark.parametrize("name", SCORED)
def test_a_long_stream_stays_within_its_entries_and_gives_the_same_bytes_again(name: str) -> None:
    policy = make_policy(name, entries=128, seed=3)
    first, again = (folded_observing(policy, TOKENS, 100) for _ in range(2))
    assert len(first.entries) == policy.entries
    assert first.seen == 700
    assert same(first.entries, again.entries)
    tokens = first.entries.tokens
    assert bool((tokens.diff(dim=-1) > 0).all()), "entries are not in the order of their tokens"
    assert tokens[0, 0, :32].tolist() == list(range(32))
    assert tokens[1, 1, -16:].tolist() == list(range(684, 700))
    chosen = TOKENS.gather(tokens.long())
    assert torch.equal(first.entries.keys, chosen.keys)
    assert torch.equal(first.entries.values, chosen.values)


@pytest.mark.parametrize("name", SCORED)
def test_what_fits_is_kept_exactly(name: str) -> None:
    tokens = TOKENS.slice(0, 128)
    assert same(folded_observing(make_policy(name, entries=128, seed=0), tokens, 60).entries, tokens)


@pytest.mark.parametrize("name", SCORED)
def test_fold_changes_no_argument(name: str) -> None:
    policy = make_policy(name, entries=200, seed=0)
    cache = folded_observing(policy, TOKENS.slice(0, 300), 300)
    before = [tensor.clone() for tensor in (*cache.entries.tensors(), cache.scores) if tensor is not None]
    new = TOKENS.slice(300, 500)
    policy.fold(cache, new, random_look(concat([cache.entries, new]), 1))
    after = [tensor for tensor in (*cache.entries.tensors(), cache.scores) if tensor is not None]
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert same(TOKENS, stream(700))


@pytest.mark.parametrize("name", OBSERVING)
def test_a_missing_observation_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"observed is missing; the policy '{name}'"):
        make_policy(name, entries=128, seed=0).fold(CompressedKV(TOKENS.slice(0, 0), 0), TOKENS)


@pytest.mark.parametrize("shared", ["false", "true"])
@pytest.mark.parametrize("name", ["snapkv", "importance", "kvzip"])
def test_what_the_probe_saw_once_stays_although_later_probes_look_elsewhere(name: str, shared: str) -> None:
    policy = make_policy(name, entries=200, seed=0, parameters={"shared": shared})
    tokens = stream(700, d=32)
    cache = CompressedKV(tokens.slice(0, 0), 0)
    for start in range(0, 700, 100):
        new = tokens.slice(start, start + 100)
        known = concat([cache.entries, new])
        cache = policy.fold(cache, new, looking_at(known, [len(known) - 60]))
    kept = cache.entries.tokens
    for seen in range(40, 700, 100):
        assert bool((kept == seen).any(-1).all()), f"token {seen} is gone"


def test_shared_scores_make_all_rows_keep_the_same_tokens() -> None:
    policy = make_policy("snapkv", entries=100, seed=0, parameters={"shared": "true"})
    tokens = folded_observing(policy, TOKENS, 150).entries.tokens
    assert bool((tokens == tokens[0, 0]).all())
    alone = folded_observing(replace(policy, shared=False), TOKENS, 150).entries.tokens
    assert not bool((alone == alone[0, 0]).all())


def test_snapkv_keeps_the_neighbours_of_what_the_probe_looks_at() -> None:
    policy = make_policy("snapkv", entries=60, seed=0, parameters={"width": "9"})
    cache = policy.fold(CompressedKV(TOKENS.slice(0, 0), 0), TOKENS, looking_at(TOKENS, [300], strength=30.0))
    kept = set(cache.entries.tokens[0, 1].tolist())
    assert set(range(296, 305)) <= kept


def test_passages_reach_further_behind_a_token_than_before_it() -> None:
    policy = make_policy("passages", entries=32 + 11 + 8, seed=0, parameters={"before": "3", "after": "12"})
    tokens = stream(700, d=32)
    cache = policy.fold(CompressedKV(tokens.slice(0, 0), 0), tokens, looking_at(tokens, [300], strength=30.0))
    assert policy.kept == 13
    assert cache.entries.tokens[0, 1, 32:-6].tolist() == list(range(297, 310))


def test_pyramidkv_gives_lower_layers_more() -> None:
    tokens = stream(700, rows=(5, 2))
    policy = make_policy("pyramidkv", entries=132, seed=0)
    entries = folded_observing(policy, tokens, 100).entries
    shown = (entries.weights == 1.0).sum(-1)
    assert shown[:, 0].tolist() == sorted(shown[:, 0].tolist(), reverse=True)
    assert int(shown[0, 0]) == len(entries) == policy.entries
    assert float(shown.double().mean()) == pytest.approx(132, abs=1)
    assert bool((policy.log_weights(entries)[entries.weights != 1.0] < -60).all())


def test_importance_sums_are_right_on_average() -> None:
    tokens = stream(400, rows=(1, 500), d=4)
    one = WeightedKV(*(tensor[:, :1].expand(1, 500, *tensor.shape[2:]) for tensor in tokens.tensors()))
    observed = Looking(one, torch.ones(1, 500, 1, 1, 4))
    policy = make_policy("importance", entries=100, seed=1, parameters={"floor": "0.2"})
    cache = policy.fold(CompressedKV(one.slice(0, 0), 0), one, observed)
    weights = cache.entries.weights.double()
    assert float(weights.min()) >= 1.0
    assert float(weights.max()) > 2.0
    sums = weights.sum(-1)[0]
    error = sums.std() / len(sums) ** 0.5
    assert abs(float(sums.mean()) - 400) < 4 * float(error) + 1e-6
    values = (cache.entries.values[..., 0].double() * weights).sum(-1)[0]
    assert abs(float(values.mean() - one.values[0, 0, :, 0].sum())) < 4 * float(values.std() / 500**0.5)


def test_a_window_with_a_sample_of_what_came_before_it() -> None:
    policy = make_policy("streaming+importance", entries=160, seed=0)
    tokens = stream(700, d=32)
    cache = policy.fold(CompressedKV(tokens.slice(0, 0), 0), tokens, looking_at(tokens, [300], strength=30.0))
    kept, weights = cache.entries.tokens[0, 1], cache.entries.weights[0, 1]
    assert kept[-120:].tolist() == list(range(580, 700))
    assert bool((weights[-120:] == 1.0).all())
    assert float(weights[kept == 300]) == 1.0
    sampled = (kept >= 32) & (kept < 580) & (kept != 300)
    assert int(sampled.sum()) == 7
    assert bool((weights[sampled] > 1.0).all()), "what is drawn stands for others, too"
    assert torch.equal(policy.log_weights(cache.entries), cache.entries.weights.log() / 2)


@pytest.mark.parametrize("name", COMPOSED)
def test_a_composition_represents_every_token(name: str) -> None:
    policy = make_policy(name, entries=160, seed=3)
    for tokens in (150, 161, 300, 333, 699):
        cache, again = (folded_observing(policy, TOKENS.slice(0, tokens), 90) for _ in range(2))
        entries = cache.entries
        assert same(entries, again.entries)
        assert len(entries) <= 160
        assert torch.equal(entries.weights.sum(-1), torch.full((2, 2), float(tokens)))
        assert all(len(set(row.tolist())) == len(entries) for row in entries.tokens.flatten(0, 1))
        assert entries.tokens[0, 1, :32].tolist() == list(range(32))
        assert entries.tokens[1, 0, -20:].tolist() == list(range(tokens - 20, tokens))
        assert torch.equal(entries.keys, TOKENS.gather(entries.tokens.long()).keys)
    assert float(entries.weights.max()) >= 4.0


def test_a_composition_keeps_exactly_what_its_selector_likes() -> None:
    policy = make_policy("snapkv+express", entries=200, seed=0)
    tokens = stream(700, d=32)
    cache = CompressedKV(tokens.slice(0, 0), 0)
    for start in range(0, 700, 100):
        new = tokens.slice(start, start + 100)
        known = concat([cache.entries, new])
        cache = policy.fold(cache, new, looking_at(known, [len(known) - 60]))
    for seen in range(40, 700, 100):
        exact = (cache.entries.tokens == seen) & (cache.entries.weights == 1.0)
        assert bool(exact.any(-1).all()), f"token {seen} is not exact any more"


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("snapkv+express", {"stream": "0.9"}, "entries is 128; allowed is room for 32 sinks, 16 recent"),
        ("snapkv", {"width": "4"}, "width is 4; allowed are odd numbers"),
        ("snapkv", {"recent": "1.5"}, "recent is 1.5; allowed is 0 to 1"),
        ("snapkv", {"tail": "0"}, "tail is 0; allowed is 1 or more"),
        ("knorm", {"sinks": "128"}, "entries is 128; allowed is more than its 128 sinks"),
        ("streaming+importance", {}, "entries is 128; allowed is more than its 32 sinks and 96 recent"),
        ("importance", {"floor": "0"}, "floor is 0.0; allowed is more than 0"),
        ("pyramidkv", {"steepness": "2"}, "steepness is 2.0; allowed is 0 to 1"),
    ],
)
def test_bad_parameters_are_named(name: str, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(name, entries=128, seed=0, parameters=parameters)
