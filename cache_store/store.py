"""Objects in Redis: a manifest and numbered parts, whole or absent (see docs/state_format.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import redis
from pydantic import JsonValue

from cache_store.connection import connect
from cache_store.keys import TenantKeys
from cache_store.manifest import MAX_TTL_SECONDS, Manifest
from cache_store.settings import DEFAULT_BYTE_BUDGET, WEEK_SECONDS, StoreSettings


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant holds: bytes booked (uploads in progress included), the budget, whole objects."""

    bytes: int
    budget: int
    objects: int


class CacheStore:
    """The objects of one tenant. Safe to share between threads; holds no state but the client.

    Every method raises StoreUnavailable when the server cannot be reached, and ValueError for a kind or name
    that can never be right. Object names are 64 hex digits (`cache_store.naming`), kinds those of
    `cache_store.keys`.
    """

    def __init__(
        self,
        client: redis.Redis,
        tenant: str,
        *,
        ttl_seconds: int = WEEK_SECONDS,
        byte_budget: int = DEFAULT_BYTE_BUDGET,
    ) -> None:
        if not 1 <= ttl_seconds <= MAX_TTL_SECONDS:
            raise ValueError(f"ttl_seconds is {ttl_seconds}; allowed are 1 to {MAX_TTL_SECONDS}")
        self.client = client
        self.tenant = tenant
        self.keys = TenantKeys(tenant)
        self.ttl_seconds = ttl_seconds
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
        touched, and `parts` is not read at all, unless `replace` is set. Parts are 1 to 16 MiB each.
        `ttl` in seconds, the store's own by default. When anything goes wrong, nothing of it stays.

        Raises BudgetExceeded, StoreFull; ValueError for parts that are too large or more than `size` bytes.
        """
        raise NotImplementedError

    def manifest(self, kind: str, name: str) -> Manifest:
        """The manifest of an object; reading renews the object's TTL. Raises ObjectMissing, ObjectDamaged
        (the object is dropped), FormatMismatch."""
        raise NotImplementedError

    def exists(self, kind: str, names: Iterable[str]) -> list[bool]:
        """For each name, whether there is such an object; one round trip, renews nothing."""
        raise NotImplementedError

    def part(self, kind: str, name: str, index: int, manifest: Manifest | None = None) -> bytes:
        """One part, checked against its checksum. `manifest` saves reading it again.

        Raises IndexError; ObjectMissing or ObjectDamaged, and then the object has been dropped.
        """
        raise NotImplementedError

    def parts(
        self, kind: str, name: str, indices: Sequence[int] | None = None, manifest: Manifest | None = None
    ) -> Iterator[bytes]:
        """Parts in order, or those of `indices`; fetched in batches of 8 MiB. Raises what `part` raises."""
        raise NotImplementedError

    def keep(self, kind: str, name: str) -> None:
        """Marks an object so that `delete_superseded` leaves it alone. Raises ObjectMissing."""
        raise NotImplementedError

    def delete(self, kind: str, name: str) -> bool:
        """Deletes an object, kept or not; False if there was none."""
        raise NotImplementedError

    def delete_superseded(self, kind: str, name: str) -> bool:
        """Deletes an object unless it is kept (decided atomically); False if nothing was deleted."""
        raise NotImplementedError

    def delete_all(self) -> int:
        """Deletes everything of this tenant, uploads in progress included; the number of objects."""
        raise NotImplementedError

    def usage(self) -> Usage:
        """What the tenant holds now; expired objects do not count."""
        raise NotImplementedError

    def check_room(self, size: int) -> None:
        """Raises BudgetExceeded where an object of `size` bytes would not fit now. Reserves nothing."""
        raise NotImplementedError

    def list(self, kind: str) -> Sequence[Manifest]:
        """The manifests of all whole objects of a kind, oldest first; renews nothing."""
        raise NotImplementedError
