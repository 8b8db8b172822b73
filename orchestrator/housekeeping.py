"""The thread beside the tasks: reaps, says that this process consumes, closes channels of lost workers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import redis

from orchestrator import liveness
from orchestrator.channels import Channels
from orchestrator.errors import JobStoreUnavailable
from orchestrator.liveness import Consumption
from orchestrator.pool import Pool
from orchestrator.reaper import Reaper, queue_lengths
from orchestrator.settings import Settings

_log = logging.getLogger(__name__)
_ANNOUNCE_SECONDS = 3.0


class Housekeeping:
    """Runs inside `with`. `restart` is called when the process no longer consumes its `queues`."""

    def __init__(
        self,
        client: redis.Redis,
        reaper: Reaper,
        pool: Pool,
        channels: Channels,
        consumption: Consumption,
        settings: Settings,
        queues: Sequence[str],
        restart: Callable[[], None],
    ) -> None:
        self._client = client
        self._reaper = reaper
        self._pool = pool
        self._channels = channels
        self._consumption = consumption
        self._settings = settings
        self._queues = queues
        self._restart = restart
        self._announced = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(self._settings.reaper_interval):
            try:
                self._reaper.tick()
                if time.monotonic() - self._announced > _ANNOUNCE_SECONDS:
                    self._announced = time.monotonic()
                    self._look_after_process()
            except JobStoreUnavailable as error:
                _log.warning("housekeeping waits for Redis: %s", error)
            except Exception:
                # One bad record must not end the thread that all jobs depend on.
                _log.exception("a round of housekeeping failed")

    def _look_after_process(self) -> None:
        self._channels.prune(member.record for member in self._pool.members())
        neglected = self._consumption.neglected(sum(queue_lengths(self._client, self._queues).values()))
        if neglected > self._settings.stuck_seconds:
            _log.critical("messages have waited for %.0f s and none was taken: starting again", neglected)
            self._restart()
        elif neglected < self._settings.stuck_seconds / 2:
            liveness.announce(self._client, self._reaper.owner)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        try:
            self._reaper.release()
            liveness.withdraw(self._client, self._reaper.owner)
        except JobStoreUnavailable as unavailable:
            _log.warning("left without saying so: %s", unavailable)
