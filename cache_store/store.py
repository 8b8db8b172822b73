"""Objects in Redis: a manifest and numbered parts, whole or absent (see docs/state_format.md)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import redis
from pydantic import JsonValue

from cache_store.connection import connect
from cache_store.errors import FormatMismatch, ObjectDamaged, ObjectMissing
from cache_store.keys import Kind, check_kind
from cache_store.link import Command, TenantLink
from cache_store.manifest import MAX_PART_BYTES, MAX_PARTS, MAX_TTL_SECONDS, Manifest
from cache_store.reader import Renew, read_manifest, read_parts
from cache_store.settings import DEFAULT_BYTE_BUDGET, WEEK_SECONDS, StoreSettings
from cache_store.upload import OBJECT_OVERHEAD, Upload, budget_exceeded

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant holds: bytes booked, its budget, and objects; uploads in progress count in both.

    An object is booked with the bytes of its parts and 4 KiB for everything around them.
    """

    bytes: int
    budget: int
    objects: int


class CacheStore:
    """The objects of one tenant. Safe to share between threads; holds no state but the client.

    Every method raises StoreUnavailable when the server cannot be reached, and ValueError for a kind or name
    that can never be right. Object names are 64 hex digits (`cache_store.naming`), kinds those of
    `cache_store.keys`. `byte_budget` counts unless the tenant has a budget of its own.
    """

    def __init__(
        self,
        client: redis.Redis,
        tenant: str,
        *,
        ttl_seconds: int = WEEK_SECONDS,
        byte_budget: int = DEFAULT_BYTE_BUDGET,
    ) -> None:
        self._link = TenantLink(client, tenant)
        self.client = client
        self.tenant = tenant
        self.keys = self._link.keys
        self.ttl_seconds = _check_ttl("ttl_seconds", ttl_seconds)
        self.byte_budget = byte_budget

    @classmethod
    def from_settings(
        cls, settings: StoreSettings, tenant: str, client: redis.Redis | None = None
    ) -> CacheStore:
        """A store at `settings.cache_url` (or on a client already connected there)."""
        return cls(
            connect(settings.cache_url) if client is None else client,
            tenant,
            ttl_seconds=settings.state_ttl_seconds,
            byte_budget=settings.tenant_byte_budget,
        )

    def put(
        self,
        kind: str,
        name: str,
        parts: Iterable[bytes],
        *,
        size: int,
        meta: Mapping[str, JsonValue] | None = None,
        ttl: int | None = None,
        replace: bool = False,
    ) -> Manifest:
        """Stores an object; `size` is the most bytes that `parts` will hold together.

        The bytes are reserved before the first part is drawn from `parts`. If the object exists, it is
        touched (and keeps the TTL it has), and `parts` is not read at all, unless `replace` is set. Parts are
        1 byte to 16 MiB each. `ttl` in seconds, the store's own by default. When anything goes wrong, nothing
        of the object stays.

        Raises BudgetExceeded, StoreFull; ValueError for parts that are too large or more than `size` bytes.
        """
        checked, ttl = check_kind(kind), self._check_sizes(size, ttl)
        if not replace and (existing := self._whole(checked, name)) is not None:
            return existing
        upload = Upload(
            self._link, checked, name, size=size, ttl=ttl, budget=self.byte_budget, replace=replace
        )
        try:
            upload.reserve()
            upload.send(parts)
            written = upload.commit(meta or {})
        except BaseException:
            upload.abandon()
            raise
        return self.manifest(kind, name) if written is None else written

    def _check_sizes(self, size: int, ttl: int | None) -> int:
        if not 0 <= size <= MAX_PARTS * MAX_PART_BYTES:
            raise ValueError(f"size is {size}; allowed are 0 to {MAX_PARTS * MAX_PART_BYTES} bytes")
        return _check_ttl("ttl", self.ttl_seconds if ttl is None else ttl)

    def _whole(self, kind: Kind, name: str) -> Manifest | None:
        """The manifest of an object with all its parts, touched; else None, and then there is no object."""
        try:
            return read_manifest(self._link, kind, name, Renew.ALWAYS)
        except (ObjectMissing, ObjectDamaged):
            return None
        except FormatMismatch:
            # Nobody can read it here, so it must not stand in the way of what can be read.
            self.delete(kind, name)
            return None

    def manifest(self, kind: str, name: str) -> Manifest:
        """The manifest of an object; reading renews the object's TTL.

        Raises ObjectMissing; ObjectDamaged, and then the object has been dropped; FormatMismatch.
        """
        return read_manifest(self._link, check_kind(kind), name, Renew.DUE)

    def exists(self, kind: str, names: Iterable[str]) -> list[bool]:
        """For each name, whether there is such an object; one round trip, renews nothing."""
        replies = self._link.pipeline([("EXISTS", self.keys.manifest(kind, name)) for name in names])
        self._link.raise_refused(replies)
        return [bool(reply) for reply in replies]

    def part(self, kind: str, name: str, index: int, manifest: Manifest | None = None) -> bytes:
        """One part, checked against its checksum. `manifest` saves reading it again.

        Raises IndexError; ObjectMissing or ObjectDamaged, and then the object has been dropped.
        """
        (part,) = self.parts(kind, name, (index,), manifest)
        return part

    def parts(
        self, kind: str, name: str, indices: Sequence[int] | None = None, manifest: Manifest | None = None
    ) -> Iterator[bytes]:
        """Parts in order, or those of `indices`; fetched in batches of 8 MiB. Raises what `part` raises."""
        found = self.manifest(kind, name) if manifest is None else manifest
        if (found.kind, found.name) != (kind, name):
            raise ValueError(f"the manifest belongs to {found.kind} {found.name}, not to {kind} {name}")
        wanted = range(len(found.parts)) if indices is None else indices
        for index in wanted:
            if not 0 <= index < len(found.parts):
                raise IndexError(
                    f"part {index} of {kind} {name} was asked for; it has {len(found.parts)} parts"
                )
        return read_parts(self._link, found, wanted)

    def keep(self, kind: str, name: str) -> None:
        """Marks an object so that `delete_superseded` leaves it alone. Raises ObjectMissing."""
        if not self._link.run("keep", self.keys.member(kind, name)):
            raise ObjectMissing(f"There is no stored {kind} {name}.")

    def delete(self, kind: str, name: str) -> bool:
        """Deletes an object, kept or not; False if there was none."""
        return bool(self._link.run("drop", self.keys.member(kind, name), "always", ""))

    def delete_superseded(self, kind: str, name: str) -> bool:
        """Deletes an object unless it is kept (decided atomically); False if nothing was deleted."""
        return bool(self._link.run("drop", self.keys.member(kind, name), "unkept", ""))

    def delete_all(self) -> int:
        """Deletes everything of this tenant, uploads in progress included; the number of objects."""
        removed, left = 0, 1
        while left:
            objects, left = self._link.run("clear", 100)
            removed += objects
        return removed

    def usage(self) -> Usage:
        """What the tenant holds now; expired objects do not count."""
        booked, members, budget = self._link.run("usage", self.byte_budget)
        return Usage(bytes=booked, budget=int(budget), objects=members)

    def set_budget(self, count: int | None) -> None:
        """Gives the tenant a budget of its own, for all who write from now on; None takes it away again.

        What is stored stays, also where it is more. Raises StoreFull.
        """
        if count is not None and count < 0:
            raise ValueError(f"the byte budget is {count}, but must be at least 0")
        key = self.keys.budget
        command: Command = ("DEL", key) if count is None else ("SET", key, count)
        self._link.raise_refused(self._link.pipeline([command]))

    def check_room(self, size: int) -> None:
        """Raises BudgetExceeded where an object of `size` bytes would not fit now. Reserves nothing."""
        usage = self.usage()
        if usage.bytes + size + OBJECT_OVERHEAD > usage.budget:
            raise budget_exceeded(self.tenant, size + OBJECT_OVERHEAD, usage.bytes, usage.budget)

    def list(self, kind: str) -> Sequence[Manifest]:
        """The manifests of all objects of a kind, oldest first; renews nothing, leaves out damaged ones."""
        checked = check_kind(kind)
        found = []
        for name in self._names(checked):
            try:
                found.append(read_manifest(self._link, checked, name, Renew.NEVER))
            except (ObjectMissing, ObjectDamaged, FormatMismatch) as error:
                log.info("Left out of a listing: %s", error)
        return sorted(found, key=lambda manifest: (manifest.created_ms, manifest.name))

    def _names(self, kind: Kind) -> Iterator[str]:
        (members,) = replies = self._link.pipeline([("ZRANGE", self.keys.expiry, 0, -1)])
        self._link.raise_refused(replies)
        for member in members:
            owner, _, name = member.decode().partition(":")
            if owner == kind:
                yield name


def _check_ttl(argument: str, seconds: int) -> int:
    if not 1 <= seconds <= MAX_TTL_SECONDS:
        raise ValueError(f"{argument} is {seconds}; allowed are 1 to {MAX_TTL_SECONDS} seconds")
    return seconds
