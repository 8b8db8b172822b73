"""Workers and an orchestrator as processes of their own, around one Valkey: production, made small."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch

from cache_store.connection import connect
from orchestrator.documents import Document
from orchestrator.events import Event
from orchestrator.job_store import JobStore
from orchestrator.jobs import Job, JobOptions, JobResult
from orchestrator.liveness import processes
from orchestrator.service import Service
from orchestrator.settings import Settings
from tests.kernel_worker.tiny import CONTROL_TOKENS, tiny_model, tiny_tokenizer

ROOT = Path(__file__).resolve().parents[1]
PATIENCE = 120.0  # to import torch and transformers on a busy machine
FAST = {
    "CLAIM_TTL": "1.5",
    "CLAIM_BEAT": "0.2",
    "REAPER_INTERVAL": "0.1",
    "LOST_MESSAGE_SECONDS": "1",
    "RETRY_BACKOFF": "0.1",
    "HEARTBEAT_SECONDS": "0.2",
    "REGISTRY_TTL_SECONDS": "1.5",
    "WORKER_WAIT_SECONDS": "100",
}
SEGMENT = 128
# Large enough that a stage takes long enough to be met in its middle, small enough for a test.
SHAPE: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": 0.1,
}


def text_of(sentences: int) -> str:
    """A text whose sentences all differ."""
    return " ".join(f"Sentence {n} says that {n * 7919 % 1009} follows on {n}." for n in range(sentences))


def save_talkative_model(folder: Path) -> str:
    """A tiny model that never ends its turn, so that a decode lasts as long as it is allowed to."""
    model, tokenizer = tiny_model(**SHAPE), tiny_tokenizer()
    with torch.no_grad():
        model.lm_head.weight[tokenizer.convert_tokens_to_ids(list(CONTROL_TOKENS))] = 0.0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


class Cluster:
    """Ends every process it started when it is left."""

    def __init__(self, valkey_url: str, folder: Path) -> None:
        self.model = save_talkative_model(folder / "model")
        self.settings = Settings(redis_url=valkey_url)
        self.client = connect(valkey_url)
        self.service = Service(self.settings)
        self.jobs = JobStore(self.client, self.settings)
        self._folder = folder
        self._stack = ExitStack()
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def worker(self, name: str) -> None:
        """Starts a worker with this id; `ready` waits for it."""
        self._start(name, "worker", WORKER_ID=name, MODEL=self.model, DEVICE="cpu")

    def orchestrator(self, **environment: str) -> None:
        """Starts one, with these variables in its environment, and waits until it consumes."""
        self._start("orchestrator", "orchestrate", environment=environment)
        self.until(lambda: processes(self.client), "the orchestrator consumes")

    def ready(self, *names: str) -> None:
        """Waits until exactly these workers are registered."""
        self.until(
            lambda: {record.id for record in self.service.workers()} == set(names),
            f"workers {names} are there",
        )

    def submit(self, text: str, **changes: Any) -> Job:
        values: dict[str, Any] = {"cache_entries": 96, "segment_tokens": SEGMENT, "max_new_tokens": 150}
        options = JobOptions(model=self.model, policy_parameters={"sinks": "4"}, **(values | changes))
        return self.service.submit(Document("test.txt", text), options)

    def run(self, text: str, **changes: Any) -> JobResult:
        return self.result(self.submit(text, **changes))

    def result(self, job: Job) -> JobResult:
        """The job's result, when it has ended."""
        self.events(job)
        return self.service.result(job.id)

    def events(self, job: Job) -> list[Event]:
        return list(self.service.events(job.id))

    def kill_in(self, job: Job, stage: str, *, after_token: int = 0) -> str:
        """SIGKILL to the worker that is in the middle of this stage of the job; its name.

        The worker is stopped first, so that what the job's record says holds while we look at it.
        """
        while True:
            found = self.service.job(job.id)
            assert not found.finished, f"the job ended before it was met in {stage}: {found.reason}"
            if found.status == stage and found.worker in self._started:
                process = self._started[found.worker]
                process.send_signal(signal.SIGSTOP)
                now = self.service.job(job.id)
                far = stage != "decode" or len(self.jobs.token_texts(job.tenant, job.id)) >= after_token
                if (now.status, now.worker) == (stage, found.worker) and far:
                    return self.kill(found.worker)
                process.send_signal(signal.SIGCONT)
            time.sleep(0.002)

    def kill(self, name: str) -> str:
        process = self._started.pop(name)
        process.kill()
        process.wait()
        return name

    def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            for name, process in self._started.items():
                assert process.poll() is None, f"{name} ended: {self._log(name).read_text()}"
            assert time.monotonic() < deadline, f"not within {PATIENCE:.0f} s: {what}"
            time.sleep(0.02)

    def _start(
        self, name: str, *command: str, environment: Mapping[str, str] | None = None, **settings: str
    ) -> None:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("DOCEXPRESS_")}
        own = {f"DOCEXPRESS_{key}": value for key, value in (FAST | settings).items()}
        own |= {
            "DOCEXPRESS_REDIS_URL": self.settings.redis_url,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }
        log = self._stack.enter_context(self._log(name).open("wb"))
        self._started[name] = subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli", *command],
            env=inherited | own | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._started):
            self.kill(name)
        self._stack.close()
        self.service.close()
        self.client.close()
