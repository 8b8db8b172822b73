"""Reading one object: nothing is done on the word of a manifest, or with a part, before it is checked."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

from cache_store.errors import ObjectDamaged, ObjectMissing, StoreFull, StoreUnavailable
from cache_store.keys import Kind
from cache_store.link import TenantLink
from cache_store.manifest import MAX_MANIFEST_BYTES, Manifest, parse_manifest
from cache_store.upload import BATCH_BYTES

log = logging.getLogger(__name__)


class Renew(Enum):
    """When reading a manifest renews the object's TTL."""

    NEVER = 0
    DUE = 1  # once an eighth of it has passed: reads rarely pay for it, and a used object never expires
    ALWAYS = 2  # and makes sure that all parts are there


def read_manifest(link: TenantLink, kind: Kind, name: str, renew: Renew) -> Manifest:
    """The manifest of an object. Raises ObjectMissing, ObjectDamaged (dropped then), FormatMismatch."""
    key = link.keys.manifest(kind, name)
    raw, left_ms = link.pipeline([("GETRANGE", key, 0, MAX_MANIFEST_BYTES), ("PTTL", key)])
    if not isinstance(raw, bytes):
        _refuse_reply(link, f"The manifest of {kind} {name}", raw)
        link.run("drop", link.keys.member(kind, name), "always", "")
        raise ObjectDamaged(f"Something else was stored in place of the {kind} {name}; it was dropped.")
    if not raw:
        # Whatever the index still knows of it is worth nothing without a manifest.
        link.run("drop", link.keys.member(kind, name), "absent", "")
        raise ObjectMissing(f"There is no stored {kind} {name}.")
    try:
        manifest = _own_manifest(raw, kind, name)
    except ObjectDamaged:
        _distrust_connections(link)
        link.run("drop", link.keys.member(kind, name), "holds", raw)
        raise
    ttl_ms = manifest.ttl_seconds * 1000
    if renew is Renew.ALWAYS or (renew is Renew.DUE and left_ms < ttl_ms * 7 // 8):
        _renew(link, manifest)
    return manifest


def _own_manifest(raw: bytes, kind: Kind, name: str) -> Manifest:
    manifest = parse_manifest(raw, f"{kind} {name}")
    if (manifest.kind, manifest.name) != (kind, name):
        raise ObjectDamaged(f"The manifest of {kind} {name} belongs to another object.")
    return manifest


def _renew(link: TenantLink, manifest: Manifest) -> None:
    member = link.keys.member(manifest.kind, manifest.name)
    try:
        outcome = link.run("renew", member, manifest.generation, manifest.ttl_seconds * 1000)
    except StoreFull as error:
        # Reading goes on at the server's memory limit; the object only keeps its old time of expiry.
        log.warning("The TTL of %s was not renewed: %s", member, error)
        return
    if outcome == b"gone":
        raise ObjectMissing(f"The stored {manifest.kind} {manifest.name} was removed while it was read.")
    if outcome == b"lost":
        raise ObjectMissing(f"A part of the {manifest.kind} {manifest.name} is gone; the rest was dropped.")


def _refuse_reply(link: TenantLink, what: str, reply: Any) -> None:
    """Raises for a reply that is not bytes, unless it says that a value of another type stands there."""
    if not str(reply).startswith("WRONGTYPE"):
        _distrust_connections(link)
        link.raise_refused([reply])
        raise StoreUnavailable(f"{what} was answered with {type(reply).__name__} instead of bytes.")


def _distrust_connections(link: TenantLink) -> None:
    # A reply that belongs to another command looks like damage: no connection that may be off is used again.
    link.client.connection_pool.disconnect(inuse_connections=False)


def read_parts(link: TenantLink, manifest: Manifest, indices: Sequence[int]) -> Iterator[bytes]:
    """The parts `indices` of an object, checked; about 8 MiB are fetched at a time.

    Raises ObjectMissing or ObjectDamaged, and the object has been dropped then.
    """
    for batch in _batches(manifest, indices):
        keys = [link.keys.part(manifest.kind, manifest.name, manifest.generation, index) for index in batch]
        # One byte more than there should be is enough to see that a part is too long.
        commands = [
            ("GETRANGE", key, 0, manifest.parts[index].size) for key, index in zip(keys, batch, strict=True)
        ]
        replies = link.pipeline(commands)
        replies.reverse()
        for index in batch:
            yield _checked(link, manifest, index, replies.pop())


def _batches(manifest: Manifest, indices: Sequence[int]) -> Iterator[list[int]]:
    batch: list[int] = []
    size = 0
    for index in indices:
        part = manifest.parts[index].size
        if batch and size + part > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(index)
        size += part
    if batch:
        yield batch


def _checked(link: TenantLink, manifest: Manifest, index: int, reply: Any) -> bytes:
    what = f"Part {index} of the {manifest.kind} {manifest.name}"
    info = manifest.parts[index]
    if not isinstance(reply, bytes):
        _refuse_reply(link, what, reply)
    elif len(reply) == info.size and hashlib.sha256(reply).hexdigest() == info.sha256:
        return reply
    _distrust_connections(link)
    link.run("drop", link.keys.member(manifest.kind, manifest.name), "holds", manifest.generation)
    if reply == b"":
        raise ObjectMissing(f"{what} is gone; the rest was dropped.")
    raise ObjectDamaged(f"{what} does not match its checksum; the object was dropped.")
