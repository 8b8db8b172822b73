"""What a worker tells Prometheus about itself, over its own port."""

from __future__ import annotations

import urllib.request
from collections.abc import Generator

import pytest

from cache_store.exposition import MetricsAddressUnusable, check_address, exposed
from kernel_worker.metrics import Metrics
from kernel_worker.settings import WorkerSettings
from kernel_worker.worker import Worker
from tests.kernel_worker.server.harness import Gate, Lab, object_name, refusal, text_of
from tests.kernel_worker.server.waiting import until
from tests.metrics import Exposition


def scraped(worker: Worker) -> Exposition:
    with urllib.request.urlopen(f"http://127.0.0.1:{worker.metrics_port}/metrics", timeout=10) as answer:
        return Exposition(answer.read().decode())


def test_calls_tokens_bytes_and_times_are_measured(lab: Lab) -> None:
    worker = lab.worker(metrics_listen="127.0.0.1:0")
    caller = lab.caller(worker)
    found = caller.ingest(caller.document(text_of(3)))
    state, stored = found.state, 0
    for segment in range(found.segments):
        answer = caller.step(segment, state)
        state, stored = answer.state, stored + answer.state_bytes
    written = caller.decode(state)
    refusal(lambda: caller.decode(object_name("missing")))
    now = scraped(worker)
    assert now.value("worker_tokens_read_total") == found.token_count
    assert now.value("worker_tokens_written_total") == len(written.tokens) == 20
    assert now.value("worker_state_stored_bytes_total") == stored
    assert now.value("worker_calls_total", method="Prefill", code="OK") == found.segments
    assert now.value("worker_calls_total", method="Decode", code="NOT_FOUND") == 1
    assert now.value("worker_call_seconds_count", method="Decode") == 1
    assert now.value("worker_compute_seconds_count", stage="compress") == found.segments
    assert now.value("worker_first_token_seconds_count") == 1
    assert now.value("worker_hot_state_lookups_total", result="hit") > 0
    assert now.value("worker_ready") == 1
    assert now.value("worker_hot_states") == len(worker.desk.hot.names())
    assert set(now.labels()) <= {"method", "code", "stage", "le", "result", "model", "device", "version"}


def test_occupancy_and_an_end_by_the_caller(lab: Lab) -> None:
    worker = lab.worker()
    caller = lab.caller(worker)
    state = caller.read(caller.document(text_of(2)))
    with Gate(lab.loaded) as gate:
        running = caller.stub.Decode(caller.decode_request(state), timeout=30)
        assert gate.reached.wait(30)
        now = Exposition.of(worker.metrics.registry)
        assert now.value("worker_decoding_calls") == 1
        assert now.value("worker_running_calls") == now.value("worker_waiting_calls") == 0
        running.cancel()
        until(lambda: worker.desk.load == 0)
        gate.open()
    worker.drain()
    worker.stop()  # waits for the threads of calls
    ended = Exposition.of(worker.metrics.registry)
    assert ended.value("worker_calls_total", method="Decode", code="CANCELLED") == 1
    assert ended.value("worker_running_calls") == 0
    assert ended.value("worker_draining") == 1


def test_without_an_address_there_is_no_port(worker: Worker) -> None:
    assert worker.metrics_port is None


def test_an_address_that_is_taken_is_refused_in_one_sentence(lab: Lab) -> None:
    registry = lab.worker().metrics.registry
    with (
        exposed(registry, "127.0.0.1:0") as port,
        pytest.raises(MetricsAddressUnusable, match=f"cannot be served on 127.0.0.1:{port}"),
    ):
        lab.worker(metrics_listen=f"127.0.0.1:{port}")


@pytest.mark.parametrize("address", ["9464", "host", "::1:9464", "h:x", "h:123456", "a b:1", ""])
def test_bad_addresses_are_refused(address: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        WorkerSettings(metrics_listen=address)


@pytest.mark.parametrize("address", [None, ":9464", "0.0.0.0:9464", "[::1]:9464", "localhost:0"])
def test_good_addresses_are_taken(address: str | None) -> None:
    assert check_address(address) == address


def test_a_stream_that_is_closed_between_two_answers_was_cancelled() -> None:
    metrics = Metrics()

    def stream() -> Generator[int]:
        with metrics.call("Decode", None):
            yield 1

    answers = stream()
    next(answers)
    answers.close()
    ended = Exposition.of(metrics.registry)
    assert ended.value("worker_calls_total", method="Decode", code="CANCELLED") == 1
