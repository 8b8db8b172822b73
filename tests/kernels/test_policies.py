"""Every policy keeps the promises of `SelectionPolicy`; the simple ones keep what they say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.selection import make_policy
from kernels.selection.policy import CompressedKV
from tests.kernels.streams import folded, same, stream

TOKENS = stream(700)
# The others choose by what they observe after each segment, and have their own tests.
BY_TOKENS = ("exact", "streaming", "uniform", "express", "compactor")


@settings(max_examples=25, deadline=None, derandomize=True)
@given(name=st.sampled_from(BY_TOKENS), lengths=st.lists(st.integers(1, 200), min_size=4, max_size=12))
def test_the_cache_does_not_depend_on_the_segmentation(name: str, lengths: list[int]) -> None:
    total = min(sum(lengths), len(TOKENS))
    policy = make_policy(name, entries=700 if name == "exact" else 128, seed=5)
    cut = folded(policy, TOKENS.slice(0, total), lengths)
    whole = folded(policy, TOKENS.slice(0, total), [total])
    assert cut.seen == whole.seen == total
    assert len(cut.entries) <= policy.entries
    assert same(cut.entries, whole.entries)


@pytest.mark.parametrize("name", BY_TOKENS)
def test_what_fits_is_kept_exactly(name: str) -> None:
    cache = folded(make_policy(name, entries=128, seed=0), TOKENS.slice(0, 128), [60, 68])
    assert same(cache.entries, TOKENS.slice(0, 128))


@pytest.mark.parametrize("name", BY_TOKENS)
def test_fold_changes_no_argument(name: str) -> None:
    policy = make_policy(name, entries=500, seed=0)
    cache = folded(policy, TOKENS.slice(0, 300), [300])
    before = [tensor.clone() for tensor in cache.entries.tensors()]
    policy.fold(cache, TOKENS.slice(300, 500))
    assert all(torch.equal(a, b) for a, b in zip(before, cache.entries.tensors(), strict=True))
    assert same(TOKENS, stream(700))


@pytest.mark.parametrize("name", BY_TOKENS)
def test_a_segment_of_another_shape_is_refused(name: str) -> None:
    policy = make_policy(name, entries=128, seed=0)
    cache = CompressedKV(TOKENS.slice(0, 0), 0)
    with pytest.raises(ValueError, match=r"segment has keys .*the cache allows"):
        policy.fold(cache, stream(5, rows=(2, 3)))
    with pytest.raises(ValueError, match=r"segment has keys .*the cache allows"):
        policy.fold(cache, stream(5, d=7))


def test_streaming_keeps_both_ends() -> None:
    cache = folded(make_policy("streaming", entries=40, seed=0, parameters={"sinks": "8"}), TOKENS, [100] * 7)
    expected = [*range(8), *range(700 - 32, 700)]
    assert cache.entries.tokens[1, 1].tolist() == expected
    assert torch.equal(cache.entries.weights, torch.ones(2, 2, 40))


def test_exact_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"701; the policy 'exact'.*entries=700"):
        folded(make_policy("exact", entries=700, seed=0), stream(701), [701])


def test_uniform_is_uniform_and_its_weights_sum_to_the_tokens() -> None:
    rows = 400
    cache = folded(make_policy("uniform", entries=66, seed=1), stream(300, rows=(rows,), d=2), [300])
    assert torch.allclose(cache.entries.weights.sum(-1), torch.full((rows,), 300.0))
    sampled = cache.entries.tokens[:, 32:-33]
    assert int(sampled.min()) >= 32
    assert abs(float(sampled.double().mean()) - (32 + 266) / 2) < 10  # 3 standard errors


@pytest.mark.parametrize(
    ("name", "entries", "parameters", "message"),
    [
        ("nothing", 64, {}, "policy is 'nothing'; allowed are exact"),
        ("exact", 0, {}, "entries is 0; allowed is 1 or more"),
        ("streaming", 32, {}, "sinks is 32; entries=32 allows 0 to 31"),
        ("streaming", 64, {"sinks": "many"}, "sinks is 'many'; allowed is a whole number"),
        ("streaming", 64, {"sink": "3"}, "parameter 'sink' is none of 'streaming'; allowed are: sinks"),
        ("uniform", 64, {}, "entries is 64; allowed is more than 65"),
        ("uniform", 128, {"temper": "2"}, "temper is 2.0; allowed is 0 to 1"),
    ],
)
def test_bad_parameters_are_named(name: str, entries: int, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(name, entries=entries, seed=0, parameters=parameters)
