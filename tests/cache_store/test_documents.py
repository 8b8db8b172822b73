"""Documents: cut between characters, named by their bytes, bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import pytest
import redis

from cache_store.documents import PART_BYTES, read_document, text_chunks, write_document
from cache_store.errors import ObjectDamaged
from cache_store.naming import document_name
from cache_store.store import CacheStore
from tests.cache_store.helpers import keys_of, put, store_document

CASES = {
    "empty": "",
    "short": "Grüße, 世界 🌍",
    "ascii": "a" * (2 * PART_BYTES + 5),
    "two bytes": "ä" * (PART_BYTES + 3),
    "three bytes": "a" + "世" * PART_BYTES,
    "four bytes": "ab" + "🌍" * (PART_BYTES // 2),
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES.keys())
def test_what_is_stored_is_read(store: CacheStore, text: str) -> None:
    manifest = store_document(store, text)
    assert manifest.name == document_name([text.encode()])
    assert "".join(read_document(store, manifest.name)) == text
    for part in store.parts("document", manifest.name):
        assert len(part) <= PART_BYTES
        part.decode()  # each part by itself is text


def test_cuts_of_the_input_do_not_matter(store: CacheStore) -> None:
    data = "世🌍ä".encode() * 100
    chunks = [data[at : at + 1] for at in range(len(data))]
    manifest = write_document(store, document_name(chunks), chunks, size=len(data))
    assert "".join(read_document(store, manifest.name)) == data.decode()


@pytest.mark.parametrize("data", [b"\xff", "世".encode()[:2], b"ok \xed\xa0\x80"])
def test_bytes_that_are_not_utf8(store: CacheStore, redis_client: redis.Redis, data: bytes) -> None:
    with pytest.raises(ValueError, match="utf-8"):
        write_document(store, document_name([data]), [data], size=len(data))
    assert keys_of(redis_client) == set()


def test_bytes_of_another_name(store: CacheStore, redis_client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="document's bytes have the name"):
        write_document(store, document_name([b"one"]), [b"two"], size=3)
    assert keys_of(redis_client) == set()


def test_stored_bytes_that_are_not_utf8_are_damage(store: CacheStore) -> None:
    put(store, "0" * 64, b"\xff", kind="document")
    with pytest.raises(ObjectDamaged, match="not UTF-8"):
        list(read_document(store, "0" * 64))
    assert store.exists("document", ["0" * 64]) == [False]


def test_64_mb_in_bounded_memory(store: CacheStore) -> None:
    """Reports row 15: no value and no message grows with the document."""
    size = 64 * 1024**2

    def chunks() -> Iterator[bytes]:
        for index in range(1024):
            yield f"{index:<65536}".encode()

    name = document_name(chunks())
    tracemalloc.start()
    manifest = write_document(store, name, chunks(), size=size)
    read = sum(len(text) for text in read_document(store, name))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == size
    assert max(part.size for part in manifest.parts) <= PART_BYTES
    assert peak < 40 * 1024**2, f"{peak} bytes at once for a document of {size}"


def test_text_chunks_are_the_text() -> None:
    text = "ä🌍" * 400_000
    assert b"".join(text_chunks(text)) == text.encode()
