"""Documents: UTF-8 text in parts of at most 1 MiB, each of which ends between two characters."""

from __future__ import annotations

import codecs
import hashlib
from collections.abc import Iterable, Iterator, Mapping

from pydantic import JsonValue

from cache_store.errors import ObjectDamaged
from cache_store.manifest import Manifest
from cache_store.store import CacheStore
from cache_store.tokens import rechunked

PART_BYTES = 1024**2

# Characters encoded at a time; each takes at most 4 bytes.
_SLICE = PART_BYTES // 4


def text_chunks(text: str) -> Iterator[bytes]:
    """The text as UTF-8, a slice at a time. Raises UnicodeEncodeError for lone surrogates."""
    for start in range(0, len(text), _SLICE):
        yield text[start : start + _SLICE].encode()


def write_document(
    store: CacheStore,
    name: str,
    chunks: Iterable[bytes],
    *,
    size: int,
    meta: Mapping[str, JsonValue] | None = None,
    ttl: int | None = None,
) -> Manifest:
    """Stores UTF-8 bytes, cut anywhere, under `document_name` of them; `size` is the most bytes there may be.

    Raises ValueError where the bytes are not UTF-8 (UnicodeDecodeError) or not those of the name; what
    `CacheStore.put` raises.
    """
    return store.put("document", name, _verified(name, chunks), size=size, meta=meta, ttl=ttl)


def _verified(name: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for part in _parts(chunks):
        digest.update(part)
        yield part
    if digest.hexdigest() != name:
        raise ValueError(f"the document's bytes have the name {digest.hexdigest()}, not {name}")


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    # Up to 3 bytes of a character that a piece has cut come first in the next part.
    for piece in rechunked(chunks, PART_BYTES - 3):
        if text := decoder.decode(piece):
            yield text.encode()
    decoder.decode(b"", final=True)


def read_document(store: CacheStore, name: str) -> Iterator[str]:
    """The text of a document, a part at a time. Raises what `CacheStore.parts` raises."""
    manifest = store.manifest("document", name)
    return _decoded(store, manifest)


def _decoded(store: CacheStore, manifest: Manifest) -> Iterator[str]:
    for part in store.parts("document", manifest.name, manifest=manifest):
        try:
            yield part.decode()
        except UnicodeDecodeError as error:
            store.delete("document", manifest.name)
            raise ObjectDamaged(f"The document {manifest.name} is not UTF-8; it was dropped.") from error
