"""Token ids: any range, few bytes fetched, bounded memory."""

from __future__ import annotations

import array
import sys
import tracemalloc

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from cache_store.errors import ObjectDamaged
from cache_store.store import CacheStore
from cache_store.tokens import PART_BYTES, read_tokens, rechunked, token_count, write_tokens
from tests.cache_store.helpers import name_of, part_key, put

NAME = name_of("tokens")
PER_PART = PART_BYTES // 4


def ids_bytes(start: int, stop: int) -> bytes:
    ids = array.array("I", range(start, stop))
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tobytes()


@given(st.lists(st.binary(max_size=50)), st.integers(1, 20))
def test_rechunked_keeps_all_bytes(chunks: list[bytes], size: int) -> None:
    pieces = list(rechunked(chunks, size))
    assert b"".join(pieces) == b"".join(chunks)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert all(0 < len(piece) <= size for piece in pieces)


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        (0, 0),
        (0, 1),
        (5, 5),
        (PER_PART - 1, PER_PART),
        (PER_PART, PER_PART + 1),
        (PER_PART - 3, 2 * PER_PART + 3),
        (2 * PER_PART + 76, 2 * PER_PART + 77),
        (2 * PER_PART + 77, 2 * PER_PART + 77),
        (0, 2 * PER_PART + 77),
    ],
)
def test_any_range(store: CacheStore, start: int, stop: int) -> None:
    count = 2 * PER_PART + 77
    manifest = write_tokens(store, NAME, [ids_bytes(0, 100_001), ids_bytes(100_001, count)], max_count=count)
    assert token_count(manifest) == count
    assert read_tokens(store, NAME, start, stop) == ids_bytes(start, stop)


def test_only_the_parts_of_the_range_are_fetched(store: CacheStore, redis_client: redis.Redis) -> None:
    manifest = write_tokens(store, NAME, [ids_bytes(0, 3 * PER_PART)], max_count=3 * PER_PART)
    redis_client.delete(part_key(store, manifest, 0))
    assert read_tokens(store, NAME, PER_PART, 2 * PER_PART) == ids_bytes(PER_PART, 2 * PER_PART)


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 11)])
def test_range_outside(store: CacheStore, start: int, stop: int) -> None:
    write_tokens(store, NAME, [ids_bytes(0, 10)], max_count=10)
    with pytest.raises(ValueError, match=r"token range is .* allowed are 0\.\.10"):
        read_tokens(store, NAME, start, stop)


def test_half_an_id(store: CacheStore) -> None:
    with pytest.raises(ValueError, match="have 7 bytes"):
        write_tokens(store, NAME, [bytes(7)], max_count=2)
    assert store.exists("tokens", [NAME]) == [False]


def test_parts_of_another_length_are_damage(store: CacheStore) -> None:
    put(store, NAME, bytes(8), bytes(8), kind="tokens")
    with pytest.raises(ObjectDamaged, match="not cut into parts"):
        read_tokens(store, NAME, 0, 1)
    assert store.exists("tokens", [NAME]) == [False]


def test_16_million_ids_in_bounded_memory(store: CacheStore) -> None:
    count, step = 16 * 1024**2, 65536

    def block(index: int) -> bytes:
        return index.to_bytes(4, "little") * step

    tracemalloc.start()
    write_tokens(store, NAME, (block(index) for index in range(count // step)), max_count=count)
    last = read_tokens(store, NAME, count - step - 1, count)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert last == block(count // step - 2)[:4] + block(count // step - 1)
    assert peak < 24 * 1024**2, f"{peak} bytes at once for 64 MiB of ids"
