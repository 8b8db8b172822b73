"""An orchestrator without Celery: the test, or threads on its behalf, make the deliveries."""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cache_store.connection import connect
from cache_store.store import CacheStore
from orchestrator import event_stream, submission
from orchestrator.channels import Channels
from orchestrator.dispatch import Dispatcher
from orchestrator.documents import Document
from orchestrator.events import Event
from orchestrator.job_store import JobStore
from orchestrator.jobs import Job, JobOptions
from orchestrator.messages import StageMessage
from orchestrator.pool import Pool
from orchestrator.reaper import Reaper
from orchestrator.runner import Runner
from orchestrator.settings import Settings
from orchestrator.stores import Stores

SEGMENT = 16
DOCUMENT = "The first part.\nThe second one.\nThe end."  # 40 bytes: three segments


def until(condition: Callable[[], Any], what: str, seconds: float = 10.0) -> Any:
    """Waits for a condition, and fails when it does not come; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.01)
    return value


def options(**changes: Any) -> JobOptions:
    return JobOptions(
        **{"model": "tiny", "segment_tokens": SEGMENT, "cache_entries": 8, "max_new_tokens": 6, **changes}
    )


class LocalQueue:
    """Keeps messages until a delivery is made. Messages of `lose` never arrive."""

    def __init__(self) -> None:
        self.messages: queue.Queue[StageMessage] = queue.Queue()
        self.sent: list[StageMessage] = []
        self.lose: set[tuple[str, int]] = set()

    def send(self, message: StageMessage) -> None:
        self.sent.append(message)
        if (message.stage, message.segment) in self.lose:
            self.lose.remove((message.stage, message.segment))
        else:
            self.messages.put(message)


class Orchestrator:
    """Give it back with `close`. Several of them share jobs and workers, as processes would."""

    def __init__(self, settings: Settings, local: LocalQueue | None = None) -> None:
        self.settings = settings
        self.queue = LocalQueue() if local is None else local
        self.client = connect(settings.redis_url)
        self.stores = Stores(settings)
        self.channels = Channels(settings)
        self.jobs = JobStore(self.client, settings)
        self.pool = Pool(self.client, settings)
        self.dispatcher = Dispatcher(self.jobs, self.pool, self.queue, settings)
        self.runner = Runner(self.jobs, self.pool, self.channels, self.stores, self.dispatcher, settings)
        self.reaper = Reaper(self.client, self.jobs, self.dispatcher, settings, uuid.uuid4().hex)

    @property
    def store(self) -> CacheStore:
        return self.stores.of(self.settings.tenant)

    def submit(self, text: str = DOCUMENT, **changes: Any) -> Job:
        job = submission.submit(self.jobs, self.store, Document("a.txt", text), options(**changes))
        self.queue.send(StageMessage.of(job))
        return job

    def ask(self, asked: Job, question: str, **changes: Any) -> Job:
        known = self.job(asked)
        job = submission.ask(self.jobs, known, question, dataclasses.replace(known.options, **changes))
        self.queue.send(StageMessage.of(job))
        return job

    def job(self, job: Job) -> Job:
        return self.jobs.load(job.tenant, job.id)

    def deliver(self) -> StageMessage:
        """Delivers the next message and works on it, here and now."""
        message = self.queue.messages.get_nowait()
        self.runner.run(message)
        return message

    def deliver_to(self, stage: str, segment: int = 0) -> StageMessage:
        """Delivers until a message of this place is next, which is not delivered but returned."""
        while True:
            message = self.queue.messages.get_nowait()
            if (message.stage, message.segment) == (stage, segment):
                return message
            self.runner.run(message)

    def finish(self, job: Job, seconds: float = 15.0) -> Job:
        """Delivers and reaps in threads until the job has ended."""
        with self.running():
            until(lambda: self.job(job).finished, f"job {job.id} ends", seconds)
        return self.job(job)

    @contextmanager
    def running(self, threads: int = 3) -> Iterator[None]:
        """Threads that deliver messages, and one that reaps."""
        stop = threading.Event()

        def deliver() -> None:
            while not stop.is_set():
                try:
                    message = self.queue.messages.get(timeout=0.02)
                except queue.Empty:
                    continue
                self.runner.run(message)

        def reap() -> None:
            while not stop.wait(self.settings.reaper_interval):
                self.reaper.tick()

        working = [threading.Thread(target=deliver) for _ in range(threads)]
        working.append(threading.Thread(target=reap))
        for thread in working:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in working:
                thread.join()

    def events(self, job: Job) -> list[Event]:
        """All events of a finished job."""
        return list(event_stream.follow(self.jobs, job.tenant, job.id))

    def kinds(self, job: Job) -> list[str]:
        """The stages that a job began, and its other events but progress and tokens, in order."""
        return [
            f"{event.data['stage']} {event.data['segment']}" if event.kind == "stage" else event.kind
            for event in self.events(job)
            if event.kind not in ("progress", "token")
        ]

    def close(self) -> None:
        self.channels.close()
        self.stores.close()
        self.client.close()
