"""The right to work on a job's stage: kept up by a thread, and noticed at once when it is gone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from orchestrator.errors import ClaimLost, JobStoreUnavailable
from orchestrator.job_store import JobStore
from orchestrator.jobs import Job
from orchestrator.settings import Settings

_log = logging.getLogger(__name__)


class Claim:
    """A claim that is held already; inside `with` a thread renews it every `claim_beat` seconds.

    It counts as lost when the store says so (the job was cancelled or taken over), or when it could not be
    renewed for as long as it lives. A call that has been put under `cancelling` is then cancelled.
    """

    def __init__(self, jobs: JobStore, job: Job, token: str, settings: Settings) -> None:
        self.job = job
        self.token = token
        self.worker_id: str | None = None  # whose reservation is renewed along with the claim
        self._jobs = jobs
        self._settings = settings
        self._lock = threading.Lock()
        self._lost = False
        self._cancel: Callable[[], object] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._renew, name=f"claim-{job.id}", daemon=True)

    @property
    def lost(self) -> bool:
        return self._lost

    def check(self) -> None:
        """Raises ClaimLost."""
        if self._lost:
            raise ClaimLost(f"job {self.job.id} is no longer this task's")

    @contextmanager
    def cancelling(self, cancel: Callable[[], object]) -> Iterator[None]:
        """Calls `cancel` as soon as the claim is lost, at once if it is lost already."""
        with self._lock:
            self._cancel = cancel
            lost = self._lost
        if lost:
            cancel()
        try:
            yield
        finally:
            with self._lock:
                self._cancel = None

    def _renew(self) -> None:
        renewed = time.monotonic()
        while not self._stop.wait(self._settings.claim_beat):
            try:
                if not self._jobs.beat(self.job, self.token, self.worker_id):
                    return self._lose()
                renewed = time.monotonic()
            except JobStoreUnavailable as error:
                _log.warning("the claim on job %s could not be renewed: %s", self.job.id, error)
                if time.monotonic() - renewed > self._settings.claim_ttl:
                    return self._lose()
        return None

    def _lose(self) -> None:
        with self._lock:
            self._lost = True
            cancel = self._cancel
        if cancel is not None:
            cancel()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
