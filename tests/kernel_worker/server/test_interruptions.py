"""Calls that end early: cancelled by the caller, cut off by a drain, or by the death of a worker."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import torch

from cache_store.states import load_state
from cache_store.worker_registry import alive
from kernel_worker.engine import FOLD_EVERY
from kernel_worker.worker import Worker
from protos import kernel_worker_pb2 as pb
from tests.kernel_worker.server.harness import (
    DEADLINE,
    Client,
    Gate,
    Lab,
    collect,
    object_name,
    plan_of,
    refusal,
    text_of,
)
from tests.kernel_worker.server.waiting import PATIENCE, until

Code = grpc.StatusCode


def text_before_cut(events: Any) -> tuple[list[str], grpc.StatusCode]:
    """Texts of the tokens of a Decode that breaks off, and the status with which it does."""
    texts: list[str] = []

    def read() -> None:
        texts.extend(event.token.text for event in events if event.WhichOneof("event") == "token")

    return texts, refusal(read).code()


def elsewhere(lab: Lab, caller: Client) -> Client:
    """The same caller at another worker."""
    other = lab.caller(lab.worker())
    other.plan.CopyFrom(caller.plan)
    other.tokens = caller.tokens
    return other


def test_a_cancelled_prefill_stops_within_a_layer_and_frees_its_slot(
    lab: Lab, worker: Worker, caller: Client
) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    with Gate(lab.loaded, layer=1) as gate, Gate(lab.loaded, layer=2) as next_layer:
        next_layer.open()
        call = caller.stub.Prefill(caller.prefill_request(0, start.state), timeout=DEADLINE)
        assert gate.reached.wait(PATIENCE)
        assert len(worker.desk.leases) == 1
        _cancel(call, caller)
        gate.open()
        until(lambda: worker.desk.slots.load == 0)
        assert next_layer.passes == 0
    assert len(worker.desk.leases) == 0
    assert caller.prefill(0, start.state).tokens == 32


def _cancel(call: Any, caller: Client) -> None:
    """Returns once the worker knows: it hears of the calls of one connection in order."""
    call.cancel()
    caller.stub.Describe(pb.DescribeRequest(), timeout=DEADLINE)


def test_a_cancelled_call_leaves_the_queue(lab: Lab, worker: Worker, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    with Gate(lab.loaded) as gate, ThreadPoolExecutor(1) as pool:
        running = pool.submit(caller.prefill, 0, start.state)
        assert gate.reached.wait(PATIENCE)
        waiting = caller.stub.Decode(caller.decode_request(start.state), timeout=DEADLINE)
        until(lambda: worker.desk.load == 2)
        waiting.cancel()
        until(lambda: worker.desk.load == 1)
        gate.open()
        running.result(PATIENCE)


def test_a_caller_that_cancels_after_the_answer_keeps_its_lease(worker: Worker, caller: Client) -> None:
    """A caller may stop reading once it has the lease, before the stream has ended."""
    start = caller.ingest(caller.document(text_of(12)))
    call = caller.stub.Prefill(caller.prefill_request(0, start.state), timeout=DEADLINE)
    done = next(event.done for event in call if event.WhichOneof("event") == "done")
    call.cancel()
    assert caller.compress(0, start.state, done.lease).tokens_seen == 32


def test_a_cancelled_decode_ends_within_a_token(lab: Lab, worker: Worker, caller: Client) -> None:
    state = caller.read(caller.document(text_of(12)))
    # The prompt is the first pass; each token but the first takes one more.
    with Gate(lab.loaded, after=10) as gate:
        call = caller.stub.Decode(caller.decode_request(state, max_new_tokens=1000), timeout=DEADLINE)
        assert gate.reached.wait(PATIENCE)
        _cancel(call, caller)
        gate.open()
        until(lambda: worker.desk.load == 0)
        assert gate.passes == 11


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_broken_decode_goes_on_elsewhere_with_the_same_text(
    lab: Lab, caller: Client, temperature: float
) -> None:
    state = caller.read(caller.document(text_of(20)))
    asked = {"max_new_tokens": 180, "temperature": temperature, "seed": 3, "repetition_penalty": 1.2}
    whole = caller.decode(state, **asked)
    call = caller.stub.Decode(caller.decode_request(state, **asked), timeout=DEADLINE)
    for event in call:
        if event.token.index == FOLD_EVERY + 5:
            call.cancel()
            break
    until(lambda: lab.workers[0].desk.load == 0)
    resumed = elsewhere(lab, caller).decode(state, **asked)
    assert resumed.started.resumed_tokens > FOLD_EVERY
    assert resumed.started.checkpoint == whole.started.checkpoint
    assert [token.index for token in resumed.tokens] == list(range(180))
    assert resumed.text == whole.text
    assert caller.store.list("checkpoint") == []


def test_a_checkpoint_is_stored_before_any_token_after_it_is_sent(lab: Lab, caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    events = caller.stub.Decode(caller.decode_request(state, max_new_tokens=200), timeout=DEADLINE)
    name = next(events).started.checkpoint
    for event in events:
        if event.token.index >= FOLD_EVERY:
            assert caller.store.exists("checkpoint", [name]) == [True]
            events.cancel()
            break
    [manifest] = caller.store.list("checkpoint")
    extra: Any = manifest.meta["extra"]
    assert len(extra["ids"]) % FOLD_EVERY == 1
    assert manifest.ttl_seconds == 3600


def test_another_request_does_not_find_the_checkpoint(lab: Lab, caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    with Gate(lab.loaded, after=FOLD_EVERY + 2) as gate:
        call = caller.stub.Decode(caller.decode_request(state, max_new_tokens=100), timeout=DEADLINE)
        assert gate.reached.wait(PATIENCE)
        until(lambda: bool(caller.store.list("checkpoint")))  # stored by another thread than computes
        _cancel(call, caller)
    other = elsewhere(lab, caller)
    for changes in ({"max_new_tokens": 99}, {"seed": 5}, {"instruction": "Else?"}, {"temperature": 0.5}):
        answer = other.decode(state, **({"max_new_tokens": 100} | changes))
        assert answer.started.resumed_tokens == 0
    assert other.decode(state, max_new_tokens=100).started.resumed_tokens == FOLD_EVERY + 1


def test_a_damaged_checkpoint_only_costs_time(lab: Lab, caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    whole = caller.decode(state, max_new_tokens=100)
    with Gate(lab.loaded, after=FOLD_EVERY + 2) as gate:
        call = caller.stub.Decode(caller.decode_request(state, max_new_tokens=100), timeout=DEADLINE)
        assert gate.reached.wait(PATIENCE)
        until(lambda: bool(caller.store.list("checkpoint")))  # stored by another thread than computes
        _cancel(call, caller)
    [manifest] = caller.store.list("checkpoint")
    key = caller.store.keys.part("checkpoint", manifest.name, manifest.generation, 0)
    lab.client.setrange(key, 150, b"damage")
    again = elsewhere(lab, caller).decode(state, max_new_tokens=100)
    assert again.started.resumed_tokens == 0
    assert again.text == whole.text


def test_a_decode_without_room_for_checkpoints_still_writes(lab: Lab, caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    whole = caller.decode(state, max_new_tokens=100)
    full = lab.caller(lab.worker(tenant_byte_budget=caller.store.usage().bytes))
    full.plan.CopyFrom(caller.plan)
    assert full.decode(state, max_new_tokens=100).text == whole.text


def test_a_draining_worker_finishes_segments_and_takes_no_new_work(
    lab: Lab, worker: Worker, caller: Client
) -> None:
    document = caller.document(text_of(12))
    start = caller.ingest(document)
    with Gate(lab.loaded) as gate, ThreadPoolExecutor(2) as pool:
        running = pool.submit(caller.prefill, 0, start.state)
        assert gate.reached.wait(PATIENCE)
        waiting = pool.submit(caller.decode, start.state)
        until(lambda: worker.desk.load == 2)
        worker.drain()
        [record] = alive(lab.client)
        assert record.draining
        assert refusal(lambda: waiting.result(PATIENCE)).code() is Code.UNAVAILABLE
        for call in (
            lambda: caller.ingest(document),
            lambda: caller.prefill(0, start.state),
            lambda: caller.decode(start.state),
        ):
            error = refusal(call)
            assert error.code() is Code.UNAVAILABLE
            assert "shutting down" in error.details()
        assert not worker.idle
        gate.open()
        lease = running.result(PATIENCE).lease
    assert not worker.idle
    assert caller.compress(0, start.state, lease).tokens_seen == 32
    assert worker.idle
    caller.stub.Release(pb.ReleaseRequest(lease=lease), timeout=DEADLINE)
    caller.stub.Describe(pb.DescribeRequest(), timeout=DEADLINE)


def test_a_draining_worker_hands_its_decode_on(lab: Lab, worker: Worker, caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    whole = caller.decode(state, max_new_tokens=150)
    with Gate(lab.loaded, after=20) as gate:
        call = caller.stub.Decode(caller.decode_request(state, max_new_tokens=150), timeout=DEADLINE)
        assert gate.reached.wait(PATIENCE)
        worker.drain()
        gate.open()
        texts, code = text_before_cut(call)
    assert code is Code.UNAVAILABLE
    assert len(texts) <= FOLD_EVERY
    until(lambda: worker.idle)
    resumed = elsewhere(lab, caller).decode(state, max_new_tokens=150)
    assert resumed.started.resumed_tokens == FOLD_EVERY + 1
    assert resumed.text == whole.text
    assert resumed.text.startswith("".join(texts))


def test_a_draining_worker_finishes_a_decode_that_is_nearly_done(
    lab: Lab, worker: Worker, caller: Client
) -> None:
    state = caller.read(caller.document(text_of(20)))
    with Gate(lab.loaded, after=5) as gate:
        call = caller.stub.Decode(caller.decode_request(state, max_new_tokens=20), timeout=DEADLINE)
        assert gate.reached.wait(PATIENCE)
        worker.drain()
        gate.open()
        answer = collect(call)
    assert answer.done is not None
    assert answer.done.tokens_written == 20


def test_a_segment_lost_with_its_worker_is_done_again_with_the_same_bytes(lab: Lab, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    expected = caller.step(0, start.state).state
    before = load_state(caller.store, expected, plan_of(caller.plan))
    caller.store.delete("state", expected)
    lost = caller.prefill(0, start.state).lease
    other = elsewhere(lab, caller)
    assert refusal(lambda: other.compress(0, start.state, lost)).code() is Code.FAILED_PRECONDITION
    again = other.step(0, start.state).state
    assert again == expected
    after = load_state(caller.store, again, plan_of(caller.plan))
    for one, two in zip(before.entries.tensors(), after.entries.tensors(), strict=True):
        assert torch.equal(one, two)


def test_tenants_are_apart(lab: Lab, worker: Worker, caller: Client) -> None:
    """By name, by lease and in memory, although both have the very same document."""
    text = text_of(12)
    start = caller.ingest(caller.document(text))
    first = caller.step(0, start.state).state
    lease = caller.prefill(1, first).lease
    other = lab.caller(worker, tenant="other")
    found = other.ingest(other.document(text))
    assert (found.tokens, found.state, found.done_segments) == (start.tokens, start.state, 0)
    assert refusal(lambda: other.decode(first)).code() is Code.NOT_FOUND
    assert refusal(lambda: other.prefill(1, first)).code() is Code.NOT_FOUND
    assert refusal(lambda: other.compress(1, first, lease)).code() is Code.FAILED_PRECONDITION
    assert caller.compress(1, first, lease).tokens_seen == 64
    assert other.step(0, start.state).state == first
    other.store.delete_all()
    assert caller.decode(first).done is not None
    assert refusal(lambda: other.decode(first)).code() is Code.NOT_FOUND
    assert refusal(lambda: caller.decode(object_name("x"))).code() is Code.NOT_FOUND
