"""Token ids of a document: little-endian uint32 in parts of 1 MiB, of which any range can be read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pydantic import JsonValue

from cache_store.errors import ObjectDamaged
from cache_store.manifest import Manifest
from cache_store.store import CacheStore

TOKEN_BYTES = 4
PART_BYTES = 1024**2


def write_tokens(
    store: CacheStore,
    name: str,
    chunks: Iterable[bytes],
    *,
    max_count: int,
    meta: Mapping[str, JsonValue] | None = None,
) -> Manifest:
    """Stores the ids in `chunks` (bytes of little-endian uint32, cut anywhere), at most `max_count` of them.

    No more than a few MiB are held at a time. Raises ValueError for bytes that are no whole number of ids,
    and what `CacheStore.put` raises.
    """
    return store.put("tokens", name, _parts(chunks), size=max_count * TOKEN_BYTES, meta=meta)


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    total = 0
    for part in rechunked(chunks, PART_BYTES):
        total += len(part)
        yield part
    if total % TOKEN_BYTES:
        raise ValueError(f"the token ids have {total} bytes; allowed are multiples of {TOKEN_BYTES}")


def rechunked(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of `size` bytes; the last one may be shorter, and none is empty."""
    buffer = bytearray()
    for chunk in chunks:
        for start in range(0, len(chunk), size):
            buffer += chunk[start : start + size]
            if len(buffer) >= size:
                yield bytes(buffer[:size])
                del buffer[:size]
    if buffer:
        yield bytes(buffer)


def token_count(manifest: Manifest) -> int:
    """The number of token ids in an object of kind "tokens"."""
    return manifest.size // TOKEN_BYTES


def read_tokens(
    store: CacheStore, name: str, start: int, stop: int, manifest: Manifest | None = None
) -> bytes:
    """Token ids start..stop as little-endian uint32; only the parts they lie in are fetched.

    Raises ValueError for a range outside the document; what `CacheStore.parts` raises.
    """
    found = store.manifest("tokens", name) if manifest is None else manifest
    _check_layout(store, found)
    if not 0 <= start <= stop <= token_count(found):
        raise ValueError(f"token range is {start}..{stop}; allowed are 0..{token_count(found)}")
    first, last = start * TOKEN_BYTES, stop * TOKEN_BYTES
    indices = range(first // PART_BYTES, -(-last // PART_BYTES)) if start < stop else range(0)
    data = b"".join(store.parts("tokens", name, indices, found))
    offset = first - first // PART_BYTES * PART_BYTES
    return data[offset : offset + last - first]


def _check_layout(store: CacheStore, manifest: Manifest) -> None:
    full = all(part.size == PART_BYTES for part in manifest.parts[:-1])
    if not full or manifest.size % TOKEN_BYTES or any(part.size > PART_BYTES for part in manifest.parts):
        store.delete("tokens", manifest.name)
        raise ObjectDamaged(f"The tokens {manifest.name} are not cut into parts of 1 MiB; they were dropped.")
