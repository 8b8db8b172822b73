"""This worker's entry in the registry: announced again and again, and taken out at the end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import redis

from cache_store.errors import StoreError
from cache_store.worker_registry import WorkerRecord, announce, withdraw

log = logging.getLogger(__name__)


class Registration:
    """Announces `record()` every `every` seconds, for `ttl` seconds each time, on a thread of its own.

    While the registry is away the worker goes on; once it is back, the next announcement enters it anew.
    `record()` gives None while the worker should not be seen.
    """

    def __init__(
        self, client: redis.Redis, record: Callable[[], WorkerRecord | None], *, every: float, ttl: float
    ) -> None:
        self._client, self._record, self._every, self._ttl = client, record, every, ttl
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._lost = False
        self._id: str | None = None
        self._thread = threading.Thread(target=self._run, name="registration", daemon=True)

    def start(self) -> None:
        """Announces once, then goes on in the background. Raises StoreError where that first one fails."""
        self._announce()
        self._thread.start()

    def refresh(self) -> None:
        """Announces now, because something has changed; a failure is left to the next heartbeat."""
        try:
            self._announce()
        except StoreError as error:
            self._note(error)

    def close(self) -> None:
        """Ends the heartbeat and withdraws the worker, if the registry can be reached."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._id is not None:
            try:
                withdraw(self._client, self._id)
            except StoreError as error:
                self._note(error)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self.refresh()

    def _announce(self) -> None:
        with self._lock:  # an older record must not overwrite a newer one
            record = self._record()
            if record is not None:
                announce(self._client, record, self._ttl)
                self._id = record.id
            elif self._id is not None:
                withdraw(self._client, self._id)
        if self._lost:
            log.info("The registry is back; this worker is announced again.")
            self._lost = False

    def _note(self, error: StoreError) -> None:
        if not self._lost:
            log.warning("This worker could not be announced: %s", error)
            self._lost = True
