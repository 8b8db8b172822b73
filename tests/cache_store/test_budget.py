"""The byte budget of a tenant: refused before the work, never overrun, never leaking (reports row 7)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from cache_store.errors import BudgetExceeded, LargerThanBudget
from cache_store.link import TenantLink
from cache_store.store import CacheStore
from cache_store.upload import OBJECT_OVERHEAD, Upload
from tests.cache_store.helpers import NeverRead, keys_of, name_of, put, wait_until

# Room for ten objects of 1,000 bytes.
BUDGET = 10 * (1000 + OBJECT_OVERHEAD)
PART = bytes(1000)


@pytest.fixture
def small(redis_client: redis.Redis, tenant: str) -> CacheStore:
    return CacheStore(redis_client, tenant, byte_budget=BUDGET)


def fill(store: CacheStore, objects: int) -> None:
    for index in range(objects):
        put(store, name_of(str(index)), PART)


def test_exactly_the_budget_fits(small: CacheStore) -> None:
    fill(small, 10)
    assert small.usage().bytes == small.usage().budget == BUDGET


def test_refused_before_the_first_part_is_made(small: CacheStore, redis_client: redis.Redis) -> None:
    fill(small, 9)
    before = keys_of(redis_client)
    with pytest.raises(BudgetExceeded, match=r"needs 0\.0 MiB, and tenant .* left of its budget"):
        small.put("state", name_of("too much"), NeverRead(), size=1001)
    assert keys_of(redis_client) == before
    assert small.usage().bytes == 9 * (1000 + OBJECT_OVERHEAD)


def test_check_room_says_the_same(small: CacheStore) -> None:
    fill(small, 9)
    small.check_room(1000)
    with pytest.raises(BudgetExceeded):
        small.check_room(1001)
    put(small, name_of("last"), PART)


def test_deleting_makes_room(small: CacheStore) -> None:
    fill(small, 10)
    with pytest.raises(BudgetExceeded):
        put(small, name_of("new"), PART)
    small.delete("state", name_of("3"))
    put(small, name_of("new"), PART)


def test_reserved_bytes_that_were_not_needed_are_given_back(small: CacheStore) -> None:
    small.put("state", name_of("short"), [PART], size=BUDGET - OBJECT_OVERHEAD)
    assert small.usage().bytes == 1000 + OBJECT_OVERHEAD


def test_an_upload_in_progress_counts(small: CacheStore) -> None:
    def parts() -> Iterator[bytes]:
        assert small.usage().bytes == BUDGET
        with pytest.raises(BudgetExceeded):
            put(small, name_of("other"), b"")
        yield PART

    small.put("state", name_of("big"), parts(), size=BUDGET - OBJECT_OVERHEAD)


def test_replacing_does_not_need_room_for_both_at_the_end(small: CacheStore) -> None:
    fill(small, 5)
    small.put("state", name_of("0"), [PART], size=1000, replace=True)
    assert small.usage().bytes == 5 * (1000 + OBJECT_OVERHEAD)


def test_expired_objects_do_not_count(small: CacheStore, redis_client: redis.Redis) -> None:
    for index in range(10):
        put(small, name_of(str(index)), PART, ttl=1)
    with pytest.raises(BudgetExceeded):
        put(small, name_of("new"), PART)
    wait_until(lambda: not any(small.exists("state", [name_of(str(index)) for index in range(10)])))
    put(small, name_of("new"), PART)
    assert small.usage().objects == 1
    assert len(keys_of(redis_client)) == 4, "what has expired leaves no parts behind"


def test_many_writers_never_overrun_the_budget(small: CacheStore) -> None:
    start = threading.Barrier(8, timeout=20)

    def write(writer: int) -> int:
        start.wait()
        stored = 0
        for index in range(5):
            try:
                put(small, name_of(f"{writer}/{index}"), PART)
                stored += 1
            except BudgetExceeded:
                assert small.usage().bytes <= BUDGET
        return stored

    with ThreadPoolExecutor(8) as pool:
        stored = sum(pool.map(write, range(8)))
    assert stored == len(small.list("state")) <= 10
    assert small.usage().bytes == stored * (1000 + OBJECT_OVERHEAD)


def test_a_budget_is_one_tenants(small: CacheStore, redis_client: redis.Redis) -> None:
    fill(small, 10)
    fill(CacheStore(redis_client, "other", byte_budget=BUDGET), 10)


def test_a_tenant_may_have_a_budget_of_its_own(small: CacheStore, redis_client: redis.Redis) -> None:
    """It holds for all who write, whatever their settings say, and for this tenant alone."""
    small.set_budget(2 * (1000 + OBJECT_OVERHEAD))
    elsewhere = CacheStore(redis_client, small.tenant, byte_budget=2**40)
    assert elsewhere.usage().budget == 2 * (1000 + OBJECT_OVERHEAD)
    fill(elsewhere, 2)
    for store in (small, elsewhere):
        with pytest.raises(BudgetExceeded, match=r"0\.0 MiB left of its budget"):
            put(store, name_of("new"), PART)
        with pytest.raises(BudgetExceeded):
            store.check_room(0)
    fill(CacheStore(redis_client, "other", byte_budget=BUDGET), 10)
    small.set_budget(None)
    fill(small, 10)
    with pytest.raises(BudgetExceeded):
        put(small, name_of("new"), PART)


def test_a_budget_of_ones_own_may_be_larger_and_outlives_what_is_stored(small: CacheStore) -> None:
    small.set_budget(11 * (1000 + OBJECT_OVERHEAD))
    fill(small, 11)
    small.delete_all()
    assert (small.usage().bytes, small.usage().budget) == (0, 11 * (1000 + OBJECT_OVERHEAD))


def test_a_budget_that_is_lowered_leaves_what_is_stored_and_refuses_more(small: CacheStore) -> None:
    fill(small, 3)
    small.set_budget(0)
    assert small.part("state", name_of("0"), 0) == PART
    with pytest.raises(BudgetExceeded):
        put(small, name_of("new"), PART)
    with pytest.raises(ValueError, match="byte budget is -1"):
        small.set_budget(-1)


def test_a_budget_that_is_lowered_in_the_middle_of_an_upload_holds(small: CacheStore) -> None:
    def parts() -> Iterator[bytes]:
        yield PART
        small.set_budget(1000)

    with pytest.raises(BudgetExceeded):
        small.put("state", name_of("late"), parts(), size=1000)
    assert small.usage().objects == 0


def test_a_budget_that_is_lowered_before_an_upload_is_committed_holds(small: CacheStore) -> None:
    name = name_of("late")
    link = TenantLink(small.client, small.tenant)
    upload = Upload(link, "state", name, size=1000, ttl=60, budget=BUDGET, replace=False)
    upload.reserve()
    upload.send([PART])
    small.set_budget(1000)
    with pytest.raises(BudgetExceeded, match=r"needs 0\.0 MiB"):
        upload.commit({})
    assert small.usage().objects == 0


def test_a_budget_may_be_larger_than_any_server(redis_client: redis.Redis, tenant: str) -> None:
    """Where someone writes "no limit" as the largest number at hand."""
    store = CacheStore(redis_client, tenant, byte_budget=2**64)
    put(store, name_of("one"), PART)
    assert store.usage().budget == 2**64
    store.set_budget(2**63 - 1)
    put(store, name_of("two"), PART)
    assert store.usage().budget == 2**63 - 1
    store.check_room(2**40)


def test_what_no_deleting_makes_room_for_is_told_apart(small: CacheStore) -> None:
    with pytest.raises(LargerThanBudget, match=r"more than all of tenant .* budget"):
        small.put("state", name_of("huge"), NeverRead(), size=BUDGET)
    fill(small, 10)
    with pytest.raises(BudgetExceeded) as caught:
        put(small, name_of("new"), PART)
    assert not isinstance(caught.value, LargerThanBudget)
