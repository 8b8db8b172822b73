"""The worker as a process: what it prints, how it ends, and that it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import redis

from cache_store.store import CacheStore
from cache_store.worker_registry import WorkerRecord, alive
from kernel_worker.errors import DeviceUnknown
from kernel_worker.loading import device_of
from kernel_worker.server import CUT_OFF, DRAINED, NOT_STARTED, drain, main, own_compile_cache
from kernel_worker.signals import StopSignals
from tests.kernel_worker.server.harness import Client, Gate, Lab, plan_message, refusal, stub_of, text_of
from tests.kernel_worker.server.waiting import PATIENCE, until
from tests.kernel_worker.tiny import save_tiny, tiny_loaded

START_SECONDS = 120.0  # to import torch and transformers on a busy machine


def start(worker_id: str, redis_url: str, model: Path) -> subprocess.Popen[str]:
    """`python -m kernel_worker` with nothing of our own environment but the paths."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
        "DOCEXPRESS_REDIS_URL": redis_url,
        "DOCEXPRESS_DEVICE": "cpu",
        "DOCEXPRESS_MODEL": str(model),
        "DOCEXPRESS_WORKER_ID": worker_id,
    }
    return subprocess.Popen(
        [sys.executable, "-m", "kernel_worker"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


Processes = dict[str, subprocess.Popen[str]]


@pytest.fixture
def processes(valkey_url: str, redis_client: redis.Redis, tmp_path: Path) -> Iterator[Processes]:
    """Two workers, started together, because the start is what takes long."""
    model = save_tiny(tmp_path)
    processes = {name: start(name, valkey_url, model) for name in ("patient", "hurried")}
    yield processes
    for process in processes.values():
        if process.poll() is None:
            process.kill()
        process.communicate()


def announced(client: redis.Redis, processes: Processes) -> dict[str, WorkerRecord]:
    """The records of the workers, once all are there."""

    def settled() -> bool:
        died = any(process.poll() is not None for process in processes.values())
        return died or len(alive(client)) == len(processes)

    until(settled, START_SECONDS)
    for process in processes.values():
        assert process.poll() is None, process.communicate()[1]
    return {record.id: record for record in alive(client)}


def holding_a_lease(client: redis.Redis, record: WorkerRecord) -> tuple[Client, str, str]:
    """A caller of the worker, the empty state, and the lease of the first segment."""
    channel = grpc.insecure_channel(record.address)
    plan = plan_message(tiny_loaded(), model_fingerprint=record.model_fingerprint)
    caller = Client(stub_of(channel), CacheStore(client, "default"), plan)
    empty = caller.ingest(caller.document(text_of(12))).state
    return caller, empty, caller.prefill(0, empty).lease


def test_a_worker_drains_on_sigterm_and_hurries_on_the_second_signal(
    redis_client: redis.Redis, processes: Processes
) -> None:
    records = announced(redis_client, processes)
    caller, empty, lease = holding_a_lease(redis_client, records["patient"])
    holding_a_lease(redis_client, records["hurried"])
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    until(lambda: all(record.draining for record in alive(redis_client)))
    assert len(alive(redis_client)) == 2

    processes["hurried"].send_signal(signal.SIGINT)
    _, errors = processes["hurried"].communicate(timeout=PATIENCE)
    assert processes["hurried"].returncode == 1, errors
    assert "Traceback" not in errors
    assert [record.id for record in alive(redis_client)] == ["patient"]

    assert refusal(lambda: caller.prefill(0, empty)).code() is grpc.StatusCode.UNAVAILABLE
    assert caller.compress(0, empty, lease).tokens_seen == 32
    output, errors = processes["patient"].communicate(timeout=PATIENCE)
    assert processes["patient"].returncode == 0, errors
    assert "Traceback" not in errors
    assert alive(redis_client) == []
    [line] = output.splitlines()
    assert line.startswith("docexpress worker patient serves ")
    assert line.endswith(f" at {records['patient'].address}")


def test_the_drain_has_an_end(lab: Lab) -> None:
    worker = lab.worker()
    caller = lab.caller(worker)
    caller.prefill(0, caller.ingest(caller.document(text_of(12))).state)
    with StopSignals() as signals:
        assert drain(worker, signals, 0.0) == CUT_OFF
    assert alive(lab.client) == []


def test_a_second_signal_ends_the_drain(lab: Lab) -> None:
    worker = lab.worker()
    caller = lab.caller(worker)
    caller.prefill(0, caller.ingest(caller.document(text_of(12))).state)
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.wait()
        assert not signals.wait(0.0)
        os.kill(os.getpid(), signal.SIGINT)
        assert drain(worker, signals, PATIENCE) == CUT_OFF


def test_an_idle_worker_drains_at_once(lab: Lab) -> None:
    worker = lab.worker()
    with StopSignals() as signals:
        assert drain(worker, signals, 0.0) == DRAINED
    assert alive(lab.client) == []


def test_the_drain_waits_for_what_runs(lab: Lab) -> None:
    worker = lab.worker()
    caller = lab.caller(worker)
    start = caller.ingest(caller.document(text_of(12)))
    with Gate(lab.loaded) as gate:
        call = caller.stub.Prefill(caller.prefill_request(0, start.state))
        assert gate.reached.wait(PATIENCE)
        with StopSignals() as signals:
            assert drain(worker, signals, 0.0) == CUT_OFF
    assert "done" in [event.WhichOneof("event") for event in call]


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a worker printed that did not start."""
    assert main() == NOT_STARTED
    output, errors = capsys.readouterr()
    assert output == ""
    [line] = errors.splitlines()
    return line


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, valkey_url: str) -> pytest.MonkeyPatch:
    for name in os.environ:
        if name.startswith("DOCEXPRESS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DOCEXPRESS_REDIS_URL", valkey_url)
    return monkeypatch


def test_a_redis_that_cannot_be_reached_is_told_in_a_sentence(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody answers there
        environment.setenv("DOCEXPRESS_REDIS_URL", f"redis://:secret@127.0.0.1:{taken.getsockname()[1]}/0")
        sentence = refused(capsys)
    assert "cannot be reached" in sentence
    assert "secret" not in sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DOCEXPRESS_CAPACITY", "none"),
        ("DOCEXPRESS_CAPACITY", "0"),
        ("DOCEXPRESS_REDIS_URL", "http://x"),
        ("DOCEXPRESS_LISTEN", "nowhere"),
        ("DOCEXPRESS_DTYPE", "int8"),
    ],
)
def test_a_wrong_setting_is_told_in_a_sentence(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    environment.setenv(name, value)
    assert name in refused(capsys)


@pytest.mark.parametrize(
    ("name", "value"), [("DOCEXPRESS_MODEL", "no-such-model"), ("DOCEXPRESS_DEVICE", "cuda:99")]
)
def test_what_cannot_be_loaded_is_told_in_a_sentence(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str
) -> None:
    environment.setenv(name, value)
    assert value in refused(capsys)


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:99", ""])
def test_a_device_that_is_not_there_is_unknown(name: str) -> None:
    with pytest.raises(DeviceUnknown, match="device"):
        device_of(name)


def test_the_compile_cache_is_one_processes_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for parent in (None, str(tmp_path)):
        if parent is None:
            monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
        else:
            monkeypatch.setenv("TRITON_CACHE_DIR", parent)
        with own_compile_cache():
            first = os.environ["TRITON_CACHE_DIR"]
            with own_compile_cache():
                assert os.environ["TRITON_CACHE_DIR"] != first
            assert Path(first).is_dir()
        assert not Path(first).exists()
        assert os.environ.get("TRITON_CACHE_DIR") == parent


def test_the_settings_know_nothing_of_torch() -> None:
    """So that a wrong one is told before anything heavy is imported."""
    code = "import sys, kernel_worker.server, kernel_worker.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
