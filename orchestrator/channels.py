"""gRPC channels to kernel workers: one per worker and address, opened by the process that uses it.

No channel may be open when a process forks (it would hang in the child): nothing here runs at import, and the
orchestrator never forks.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import grpc

from cache_store.worker_registry import WorkerRecord
from orchestrator.settings import Settings
from orchestrator.worker_tls import ChannelOpener
from protos.kernel_worker_pb2_grpc import KernelWorkerStub

# A worker's id, its address and what its server asks for: one that is started again keeps its id, and may
# listen elsewhere before anybody has seen it gone.
_Place = tuple[str, str, str]


@dataclasses.dataclass(slots=True)
class _Open:
    channel: grpc.Channel
    users: int = 0


class Channels:
    """Channels by the place a worker's record names. Safe to share between threads."""

    def __init__(self, settings: Settings) -> None:
        self._options = _options(settings)
        self._opener = ChannelOpener(settings)
        self._lock = threading.Lock()
        self._open: dict[_Place, _Open] = {}

    @contextmanager
    def stub(self, record: WorkerRecord) -> Iterator[KernelWorkerStub]:
        """A stub for one worker; its channel stays open at least as long as the block.

        Raises WorkerInsecure.
        """
        with self._lock:
            entry = self._open.get(_place(record))
            if entry is None:
                channel = self._opener.open(record, self._options)
                entry = self._open[_place(record)] = _Open(channel)
            entry.users += 1
        try:
            yield KernelWorkerStub(entry.channel)  # type: ignore[no-untyped-call]  # generated
        finally:
            with self._lock:
                entry.users -= 1

    def prune(self, alive: Iterable[WorkerRecord]) -> None:
        """Closes the channels to places where no worker is registered now, unless a call still runs."""
        places = {_place(record) for record in alive}
        with self._lock:
            gone = [place for place, entry in self._open.items() if place not in places and not entry.users]
            channels = [self._open.pop(place).channel for place in gone]
        for channel in channels:
            channel.close()

    def close(self) -> None:
        """Closes all channels; running calls end as cancelled."""
        with self._lock:
            entries = list(self._open.values())
            self._open.clear()
        for entry in entries:
            entry.channel.close()


def _place(record: WorkerRecord) -> _Place:
    return record.id, record.address, record.tls


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        ("grpc.keepalive_time_ms", int(settings.keepalive_seconds * 1000)),
        ("grpc.keepalive_timeout_ms", int(settings.keepalive_timeout_seconds * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
        # Failures are the state machine's business; a worker that comes back is to be seen within seconds.
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 3000),
        # A new worker on an old address must not inherit the dead one's connection.
        ("grpc.use_local_subchannel_pool", 1),
    ]
