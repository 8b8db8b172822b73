"""Leases: bounded in number, bytes and time, and found again by what they are for."""

from __future__ import annotations

import pytest
import torch

from kernel_worker.errors import InvalidRequest, LeaseLost, WorkerBusy
from kernel_worker.estimate import ReadSegment
from kernel_worker.leases import LeaseKey, Leases
from kernels.weighted_kv import WeightedKV

KEY = LeaseKey("default", "child")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def segment(tokens: int = 4) -> ReadSegment:
    keys = torch.zeros(1, 1, tokens, 2)
    return ReadSegment(WeightedKV.exact(keys, keys), keys[:, :, :1], 1.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leases(clock: Clock) -> Leases:
    return Leases(count=2, nbytes=1000, seconds=10, clock=clock)


def granted(leases: Leases, key: LeaseKey = KEY) -> str:
    kv = segment()
    lease = leases.reserve(key, kv.nbytes)
    leases.fill(lease, kv)
    return lease


def test_a_segment_stays_until_it_is_released(leases: Leases) -> None:
    lease = granted(leases)
    assert len(leases.take(lease, KEY)) == 4
    assert len(leases.take(lease, KEY)) == 4
    leases.release(lease)
    leases.release(lease)
    with pytest.raises(LeaseLost, match="Prefill"):
        leases.take(lease, KEY)
    assert (len(leases), leases.nbytes) == (0, 0)


@pytest.mark.parametrize("key", [LeaseKey("other", "child"), LeaseKey("default", "another")])
def test_a_lease_is_for_one_tenant_and_one_state(leases: Leases, key: LeaseKey) -> None:
    lease = granted(leases)
    assert leases.find(key) is None
    with pytest.raises(LeaseLost):
        leases.take(lease, key)


def test_a_lease_expires_after_its_last_use(leases: Leases, clock: Clock) -> None:
    lease = granted(leases)
    clock.now = 9.0
    leases.take(lease, KEY)
    clock.now = 18.0
    assert leases.find(KEY) == lease
    clock.now = 28.0
    with pytest.raises(LeaseLost):
        leases.take(lease, KEY)
    assert leases.nbytes == 0


def test_a_reserved_lease_does_not_expire_and_cannot_be_taken(leases: Leases, clock: Clock) -> None:
    lease = leases.reserve(KEY, 10)
    clock.now = 1e6
    assert len(leases) == 1
    assert leases.find(KEY) is None
    with pytest.raises(LeaseLost):
        leases.take(lease, KEY)


def test_the_number_is_bounded_until_time_frees_one(leases: Leases, clock: Clock) -> None:
    granted(leases)
    granted(leases, LeaseKey("default", "second"))
    with pytest.raises(WorkerBusy, match="2 segments"):
        leases.reserve(LeaseKey("default", "third"), 10)
    clock.now = 10.0
    leases.reserve(LeaseKey("default", "third"), 10)


def test_bytes_are_bounded(leases: Leases) -> None:
    leases.reserve(KEY, 600)
    with pytest.raises(WorkerBusy):
        leases.reserve(LeaseKey("default", "second"), 401)
    leases.reserve(LeaseKey("default", "second"), 400)


def test_a_segment_that_can_never_fit_is_refused_for_good(leases: Leases) -> None:
    with pytest.raises(InvalidRequest, match="1001 bytes"):
        leases.reserve(KEY, 1001)
