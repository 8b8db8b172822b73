"""Hot states: the least recently used goes first, tenants apart."""

from __future__ import annotations

import torch

from kernel_worker.hot_states import HotStates
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV


def state(tokens: int = 4) -> CompressedKV:
    keys = torch.zeros(1, 1, tokens, 2)
    return CompressedKV(WeightedKV.exact(keys, keys), seen=tokens)


def test_the_least_recently_used_state_goes_first() -> None:
    hot = HotStates(count=2, nbytes=10**6)
    first = state()
    hot.put("default", "a", first)
    hot.put("default", "b", state())
    assert hot.get("default", "a") is first
    hot.put("default", "c", state())
    assert hot.names() == ("a", "c")


def test_bytes_are_bounded_and_a_state_too_large_is_not_kept() -> None:
    size = state(4).entries.nbytes
    hot = HotStates(count=10, nbytes=2 * size)
    for name in ("a", "b", "c"):
        hot.put("default", name, state(4))
    assert hot.names() == ("b", "c")
    hot.put("default", "large", state(100))
    assert "large" not in hot.names()


def test_no_tenant_finds_the_state_of_another() -> None:
    hot = HotStates(count=2, nbytes=10**6)
    hot.put("one", "a", state())
    assert hot.get("two", "a") is None
    hot.discard("two", "a")
    assert hot.get("one", "a") is not None
    hot.discard("one", "a")
    assert hot.get("one", "a") is None


def test_none_are_kept_when_none_may_be() -> None:
    hot = HotStates(count=0, nbytes=10**6)
    hot.put("default", "a", state())
    assert hot.names() == ()
