"""Puts the parts of an orchestrator process together."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from celery import Celery

from cache_store.connection import connect
from orchestrator.channels import Channels
from orchestrator.connection import job_store_errors
from orchestrator.dispatch import Dispatcher
from orchestrator.housekeeping import Housekeeping
from orchestrator.job_store import JobStore
from orchestrator.liveness import Consumption
from orchestrator.messages import StageMessage
from orchestrator.pool import Pool
from orchestrator.reaper import Reaper
from orchestrator.runner import Runner
from orchestrator.settings import Settings
from orchestrator.stores import Stores
from orchestrator.tasks import CelerySender


class Runtime:
    """Everything that tasks need. Built in the process that uses it; inside `with`, its housekeeping runs.

    Raises JobStoreUnavailable when Redis cannot be reached at the start.
    """

    def __init__(
        self,
        settings: Settings,
        app: Celery,
        *,
        concurrency: int,
        queues: Sequence[str],
        restart: Callable[[], None],
    ) -> None:
        self._client = connect(settings.redis_url)
        with job_store_errors(self._client):
            self._client.ping()
        self._channels = Channels(settings)
        self._stores = Stores(settings)
        self._consumption = Consumption(concurrency)
        jobs = JobStore(self._client, settings)
        pool = Pool(self._client, settings)
        dispatcher = Dispatcher(jobs, pool, CelerySender(app), settings)
        reaper = Reaper(self._client, jobs, dispatcher, settings, f"{socket.gethostname()}:{os.getpid()}")
        self._runner = Runner(jobs, pool, self._channels, self._stores, dispatcher, settings)
        self._housekeeping = Housekeeping(
            self._client, reaper, pool, self._channels, self._consumption, settings, queues, restart
        )

    def run(self, message: StageMessage) -> None:
        """What the Celery task does."""
        with self._consumption.task():
            self._runner.run(message)

    def __enter__(self) -> Self:
        self._housekeeping.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._housekeeping.__exit__(kind, error, trace)
        self._channels.close()
        self._stores.close()
        self._client.close()
