"""What the model made of segments, between Prefill and Compress: few, bounded in bytes, and not for long."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock

from kernel_worker.errors import InvalidRequest, LeaseLost, WorkerBusy
from kernel_worker.estimate import ReadSegment


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """What a leased segment is for. `child` names the state it becomes, hence plan, parent and tokens."""

    tenant: str
    child: str


@dataclass(slots=True)
class _Lease:
    key: LeaseKey
    nbytes: int
    segment: ReadSegment | None = None  # None while its Prefill runs; such a lease does not expire
    expires: float = float("inf")


class Leases:
    """Holds at most `count` segments of at most `nbytes` in all, each for `seconds` after its last use.

    Thread-safe. Expired leases go with the next call of any method, and with `sweep`.
    """

    def __init__(
        self, *, count: int, nbytes: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._nbytes, self._seconds, self._clock = count, nbytes, seconds, clock
        self._lock = RLock()
        self._leases: dict[str, _Lease] = {}

    def __len__(self) -> int:
        self.sweep()
        return len(self._leases)

    @property
    def nbytes(self) -> int:
        """Bytes held or reserved."""
        with self._lock:
            return sum(lease.nbytes for lease in self._leases.values())

    def reserve(self, key: LeaseKey, nbytes: int) -> str:
        """A lease with nothing in it yet; whoever reserves must `fill` or `release` it.

        Raises WorkerBusy when others hold the room, InvalidRequest when it could never fit.
        """
        if nbytes > self._nbytes:
            raise InvalidRequest(
                f"One segment takes {nbytes} bytes and this worker holds at most {self._nbytes}; "
                "use a smaller segment_tokens."
            )
        with self._lock:
            self.sweep()
            if len(self._leases) >= self._count or self.nbytes + nbytes > self._nbytes:
                raise WorkerBusy(
                    f"This worker already holds {len(self._leases)} segments that wait to be compressed."
                )
            lease = secrets.token_hex(16)
            self._leases[lease] = _Lease(key, nbytes)
            return lease

    def fill(self, lease: str, segment: ReadSegment) -> None:
        """Puts the segment under the lease, whose time begins now."""
        with self._lock:
            held = self._leases[lease]
            held.segment, held.nbytes = segment, segment.nbytes
            held.expires = self._clock() + self._seconds

    def find(self, key: LeaseKey) -> str | None:
        """A filled lease with this key, renewed: the segment need not be computed again."""
        with self._lock:
            self.sweep()
            for name, lease in self._leases.items():
                if lease.key == key and lease.segment is not None:
                    lease.expires = self._clock() + self._seconds
                    return name
        return None

    def take(self, lease: str, key: LeaseKey) -> ReadSegment:
        """The segment under the lease, renewed; it stays until `release`. Raises LeaseLost."""
        with self._lock:
            self.sweep()
            held = self._leases.get(lease)
            if held is None or held.segment is None or held.key != key:
                raise LeaseLost("The segment is no longer held on this worker; run its Prefill again.")
            held.expires = self._clock() + self._seconds
            return held.segment

    def release(self, lease: str) -> None:
        """Frees what the lease holds; an unknown lease is none."""
        with self._lock:
            self._leases.pop(lease, None)

    def sweep(self) -> None:
        """Frees what has expired."""
        with self._lock:
            now = self._clock()
            for name in [name for name, lease in self._leases.items() if lease.expires <= now]:
                del self._leases[name]
