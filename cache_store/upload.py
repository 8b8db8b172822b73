"""Writing one object: bytes reserved first, parts next, the manifest last."""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from cache_store.errors import BudgetExceeded, LargerThanBudget, ObjectMissing, StoreError
from cache_store.keys import Kind
from cache_store.link import Command, TenantLink
from cache_store.manifest import MAX_MANIFEST_BYTES, MAX_PART_BYTES, MAX_PARTS, Manifest, PartInfo

log = logging.getLogger(__name__)

# Bytes sent, or read, in one round trip: large enough for the network, small beside everything else.
BATCH_BYTES = 8 * 1024**2

# How long an upload may pause between two batches before its parts and its reservation go.
LEASE_MS = 600_000

# What an object is booked for beyond its parts: manifest, keys, the server's own structures.
OBJECT_OVERHEAD = 4096


class Upload:
    """One object on its way into the store. `abandon` leaves nothing behind; after a crash the leases end."""

    def __init__(
        self, link: TenantLink, kind: Kind, name: str, *, size: int, ttl: int, budget: int, replace: bool
    ) -> None:
        self.link, self.kind, self.name = link, kind, name
        self.size, self.ttl, self.budget, self.replace = size, ttl, budget, replace
        self.limit = budget  # what the store said last: the tenant may have a budget of its own
        self.generation = secrets.token_hex(16)
        self.member = link.keys.member(kind, name)
        self.parts: list[PartInfo] = []
        self.sent = 0

    def reserve(self) -> None:
        """Books `size` bytes, or renews the booking. Raises BudgetExceeded."""
        booked = self.size + OBJECT_OVERHEAD
        fits, others, limit = self.link.run(
            "reserve",
            self.link.keys.upload(self.generation),
            self.member,
            self.generation,
            len(self.parts),
            booked,
            LEASE_MS,
            self.budget,
        )
        self.limit = int(limit)
        if not fits:
            raise budget_exceeded(self.link.keys.tenant, booked, others, self.limit)

    def send(self, parts: Iterable[bytes]) -> None:
        """Sends all parts in batches, each of them checked before it leaves."""
        batch: list[Command] = []
        waiting = 0
        for part in parts:
            if batch and waiting + len(part) > BATCH_BYTES:
                self._send_batch(batch)
                batch, waiting = [], 0
            batch.append(self._command(part))
            waiting += len(part)
        if batch:
            self._send_batch(batch)

    def _command(self, part: bytes) -> Command:
        index = len(self.parts)
        if not 1 <= len(part) <= MAX_PART_BYTES:
            raise ValueError(f"part {index} has {len(part)} bytes; allowed are 1 to {MAX_PART_BYTES}")
        if index == MAX_PARTS:
            raise ValueError(f"there are more than {MAX_PARTS} parts")
        self.sent += len(part)
        if self.sent > self.size:
            raise ValueError(f"the parts hold more than the {self.size} bytes announced")
        self.parts.append(PartInfo(size=len(part), sha256=hashlib.sha256(part).hexdigest()))
        key = self.link.keys.part(self.kind, self.name, self.generation, index)
        return ("SET", key, part, "PX", LEASE_MS)

    def _send_batch(self, batch: list[Command]) -> None:
        self.reserve()
        self.link.raise_refused(self.link.pipeline(batch))

    def commit(self, meta: Mapping[str, JsonValue]) -> Manifest | None:
        """Makes the object visible; None if another writer was first, and nothing of this one is left."""
        manifest = Manifest(
            kind=self.kind,
            name=self.name,
            generation=self.generation,
            created_ms=time.time_ns() // 1_000_000,
            ttl_seconds=self.ttl,
            size=self.sent,
            parts=tuple(self.parts),
            meta=dict(meta),
        )
        outcome = self._commit(encode_manifest(manifest))
        if outcome == b"full":
            needed = self.sent + OBJECT_OVERHEAD
            raise budget_exceeded(self.link.keys.tenant, needed, self.limit, self.limit)
        if outcome == b"lost":
            raise ObjectMissing(
                f"Parts of the {self.kind} {self.name} were gone before its upload had ended."
            )
        return manifest if outcome == b"ok" else None

    def _commit(self, raw: bytes) -> bytes:
        reply: bytes = self.link.run(
            "commit",
            self.link.keys.upload(self.generation),
            self.member,
            self.generation,
            len(self.parts),
            self.sent + OBJECT_OVERHEAD,
            self.ttl * 1000,
            self.budget,
            int(self.replace),
            raw,
        )
        return reply

    def abandon(self) -> None:
        """Gives the reservation back and removes the parts sent so far."""
        try:
            self.link.run("drop", self.link.keys.upload(self.generation), "always", "")
        except StoreError as error:
            # The caller has the first error to tell; the lease ends by itself.
            log.warning("An unfinished upload stays for %d s: %s", LEASE_MS // 1000, error)


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes stored for a manifest; ValueError where its meta makes it too long."""
    raw = manifest.model_dump_json().encode()
    if len(raw) > MAX_MANIFEST_BYTES:
        raise ValueError(f"the manifest has {len(raw)} bytes; allowed are {MAX_MANIFEST_BYTES}")
    return raw


def budget_exceeded(tenant: str, needed: int, used: int, budget: int) -> BudgetExceeded:
    """The error for an object of `needed` bytes where `used` of `budget` bytes are taken."""
    remedy = f"have the budget raised (docexpress keys budget {tenant} SIZE)."
    if needed > budget:
        return LargerThanBudget(
            f"The object needs {_mib(needed)}, more than all of tenant {tenant}'s budget of {_mib(budget)}; "
            f"{remedy}"
        )
    return BudgetExceeded(
        f"The object needs {_mib(needed)}, and tenant {tenant} has {_mib(max(budget - used, 0))} left of its "
        f"budget of {_mib(budget)}; delete stored states or {remedy}"
    )


def _mib(count: int) -> str:
    return f"{count / 1024**2:,.1f} MiB"
