"""The one Celery task: a delivery of a stage."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from celery import Celery
from kombu.exceptions import OperationalError

from cache_store.tracing import TRACEPARENT, carrier, span
from orchestrator.messages import QUEUE_OF, TASK_NAME, StageMessage

_log = logging.getLogger(__name__)


def register(app: Celery, run: Callable[[StageMessage], None]) -> None:
    """Makes `run` what the application does with a message."""

    def stage(task: Any, **message: Any) -> None:
        told = StageMessage(**message)
        parent = {TRACEPARENT: task.request.get(TRACEPARENT) or ""}
        with span(f"stage {told.stage}", "CONSUMER", parent, job=told.job, segment=told.segment):
            run(told)

    app.task(stage, name=TASK_NAME, bind=True)


class CelerySender:
    """Sends messages through Celery. One that cannot be sent is not lost: the reaper sends it later, because
    the job's record says where it stands."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def send(self, message: StageMessage) -> None:
        try:
            self._app.send_task(
                TASK_NAME,
                kwargs=dataclasses.asdict(message),
                queue=QUEUE_OF[message.stage],
                headers=carrier(),
            )
        except OperationalError as error:
            _log.warning("message of job %s not sent: %s", message.job, type(error).__name__)

    def close(self) -> None:
        """Gives the connections back."""
        self._app.close()
