"""Decodes of several callers at once: written together, each as if it were alone, beside what is read."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import torch

from cache_store.states import read_meta
from kernel_worker.engine import FOLD_EVERY
from kernel_worker.worker import Worker
from kernels.selection import CompressedKV
from tests.kernel_worker.server.harness import DEADLINE, Client, Gate, Lab, collect, refusal, text_of
from tests.kernel_worker.server.waiting import PATIENCE, until
from tests.metrics import Exposition

Code = grpc.StatusCode
ASKED: tuple[dict[str, Any], ...] = (
    {"max_new_tokens": 90},
    {"max_new_tokens": 75, "instruction": "And what else?", "temperature": 1.0, "seed": 4},
    {"max_new_tokens": 12, "repetition_penalty": 1.2},
    {"max_new_tokens": 70, "instruction": "Who minds?"},
)


class Passes:
    """Notes how many tokens went into each pass of a layer, in the order in which they were computed."""

    def __init__(self, lab: Lab) -> None:
        self.seen: list[tuple[int, int, int]] = []
        layers = lab.loaded.model.model.layers
        self._hooks = [
            layer.register_forward_pre_hook(lambda _, args, n=number: self._note(n, args[0]))
            for number, layer in enumerate(layers)
        ]

    def _note(self, layer: int, hidden: torch.Tensor) -> None:
        self.seen.append((layer, hidden.shape[0], hidden.shape[1]))

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


def test_decodes_are_written_together_and_each_as_alone(lab: Lab, worker: Worker, caller: Client) -> None:
    states = [caller.read(caller.document(text_of(n))) for n in (20, 24, 28, 31)]
    alone = [caller.decode(state, **asked).text for state, asked in zip(states, ASKED, strict=True)]
    passes = Passes(lab)
    # The first one waits in a step until all others wait for theirs: none can be through before.
    with Gate(lab.loaded, after=3) as gate, ThreadPoolExecutor(4) as pool:
        first = pool.submit(caller.decode, states[0], **ASKED[0])
        assert gate.reached.wait(PATIENCE)
        others = [
            pool.submit(caller.decode, state, **asked)
            for state, asked in zip(states[1:], ASKED[1:], strict=True)
        ]
        until(lambda: worker.desk.writers.load == 4)
        assert Exposition.of(worker.metrics.registry).value("worker_batch_rows") == 1
        gate.open()
        assert [each.result(PATIENCE).text for each in [first, *others]] == alone
    passes.remove()
    assert max(rows for _, rows, tokens in passes.seen if tokens == 1) == 4
    assert Exposition.of(worker.metrics.registry).value("worker_batch_rows") == 0


def test_who_finds_no_row_waits_for_one(lab: Lab) -> None:
    worker = lab.worker(decode_rows=1)
    caller = lab.caller(worker)
    state = caller.read(caller.document(text_of(9)))
    alone = caller.decode(state).text
    with Gate(lab.loaded, after=2) as gate, ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(caller.decode, state) for _ in range(3)]
        assert gate.reached.wait(PATIENCE)
        until(lambda: worker.desk.writers.load == 3)
        gate.open()
        assert [call.result(PATIENCE).text for call in calls] == [alone] * 3


def test_one_that_is_cancelled_leaves_the_others_alone(lab: Lab, worker: Worker, caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    alone = caller.decode(state, max_new_tokens=300).text
    leaving = caller.stub.Decode(caller.decode_request(state, max_new_tokens=1000), timeout=DEADLINE)
    until(lambda: len(worker.desk.batcher) == 1)  # so it is not the last row, which nobody takes the place of
    staying = caller.stub.Decode(caller.decode_request(state, max_new_tokens=300), timeout=DEADLINE)
    until(lambda: len(worker.desk.batcher) == 2)
    with Gate(lab.loaded) as gate:
        assert gate.reached.wait(PATIENCE)
        leaving.cancel()
        until(lambda: worker.desk.writers.load == 1)
        gate.open()
        assert collect(staying).text == alone
    until(lambda: worker.desk.load == 0)
    assert len(worker.desk.batcher) == 0


def test_a_decode_gets_its_turns_while_a_segment_is_read(lab: Lab, worker: Worker, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    batcher, layer = worker.desk.batcher, lab.loaded.model.model.layers[1]

    def last(_: object, args: tuple[torch.Tensor]) -> None:
        if args[0].shape[1] == 32:  # of the segment: it takes longer than the step before it
            until(lambda: time.monotonic() - batcher._ended > batcher._took)

    passes, hook = Passes(lab), layer.register_forward_pre_hook(last)
    events = caller.stub.Decode(caller.decode_request(start.state, max_new_tokens=5000), timeout=DEADLINE)
    until(lambda: len(batcher) == 1)
    assert caller.prefill(0, start.state).tokens == 32
    assert len(batcher) == 1, "the text is still being written"
    events.cancel()
    until(lambda: len(batcher) == 0)
    hook.remove()
    passes.remove()
    read = [number for number, (_, _, tokens) in enumerate(passes.seen) if tokens == 32]
    assert len(read) == lab.loaded.layers
    between = passes.seen[read[0] : read[-1]]
    assert any(tokens == 1 for _, _, tokens in between), "no token was written while the segment was read"


def test_a_text_begins_while_a_segment_is_read(lab: Lab, worker: Worker, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    prompt = len(lab.loaded.prompt.instruction_ids(caller.decode_request(start.state).instruction))
    passes = Passes(lab)
    with Gate(lab.loaded, layer=1) as gate, ThreadPoolExecutor(2) as pool:
        reading = pool.submit(caller.prefill, 0, start.state)
        assert gate.reached.wait(PATIENCE)
        writing = pool.submit(caller.decode, start.state)
        until(lambda: bool(worker.desk.batcher._seats))
        gate.open()
        assert reading.result(PATIENCE).tokens == 32
        assert writing.result(PATIENCE).done is not None
    passes.remove()
    last = max(number for number, (_, _, tokens) in enumerate(passes.seen) if tokens == 32)
    assert [tokens for _, _, tokens in passes.seen[:last]].count(prompt) == lab.loaded.layers


def test_what_goes_wrong_with_a_prompt_ends_that_text_alone(lab: Lab, worker: Worker, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    layer = lab.loaded.model.model.layers[2]

    def fail(_: object, args: tuple[torch.Tensor]) -> None:
        if args[0].shape[1] not in (1, 32):
            raise RuntimeError("the device is out of memory")

    with Gate(lab.loaded, layer=1) as gate, ThreadPoolExecutor(2) as pool:
        reading = pool.submit(caller.prefill, 0, start.state)
        assert gate.reached.wait(PATIENCE)
        hook = layer.register_forward_pre_hook(fail)
        writing = pool.submit(caller.decode, start.state)
        until(lambda: bool(worker.desk.batcher._seats))
        gate.open()
        assert refusal(lambda: writing.result(PATIENCE)).code() is Code.INTERNAL
        assert reading.result(PATIENCE).tokens == 32
    hook.remove()
    assert caller.decode(start.state).done is not None


def test_a_step_that_fails_ends_its_texts_and_nothing_else(lab: Lab, worker: Worker, caller: Client) -> None:
    state = caller.read(caller.document(text_of(9)))
    alone = caller.decode(state).text
    layer, broken = lab.loaded.model.model.layers[2], list[int]()

    def fail(_: object, args: tuple[torch.Tensor]) -> None:
        if args[0].shape[0] == 2 and len(worker.desk.batcher) == 2 and not broken:
            broken.append(1)
            raise RuntimeError("the device is out of memory")

    hook = layer.register_forward_pre_hook(fail)
    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(caller.decode, state, max_new_tokens=2000) for _ in range(2)]
        codes = {refusal(lambda call=call: call.result(PATIENCE)).code() for call in calls}
    hook.remove()
    assert codes == {Code.INTERNAL}
    assert len(worker.desk.batcher) == 0
    assert caller.decode(state).text == alone


def test_a_draining_worker_hands_all_its_decodes_on(lab: Lab, worker: Worker, caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    asked: list[dict[str, Any]] = [{"max_new_tokens": 150, "seed": n, "temperature": 1.0} for n in range(3)]
    whole = [caller.decode(state, **each).text for each in asked]
    calls = [caller.stub.Decode(caller.decode_request(state, **each), timeout=DEADLINE) for each in asked]
    until(lambda: len(worker.desk.batcher) == 3)
    worker.drain()
    for call in calls:
        error = refusal(lambda call=call: list(call))
        assert error.code() is Code.UNAVAILABLE
    assert worker.idle
    other = lab.caller(lab.worker())
    other.plan.CopyFrom(caller.plan)
    for each, text in zip(asked, whole, strict=True):
        resumed = other.decode(state, **each)
        assert resumed.started.resumed_tokens > FOLD_EVERY
        assert resumed.text == text


def test_stopping_ends_the_texts_that_are_being_written(lab: Lab) -> None:
    worker = lab.worker()
    caller = lab.caller(worker)
    state = caller.read(caller.document(text_of(9)))
    call = caller.stub.Decode(caller.decode_request(state, max_new_tokens=10000), timeout=DEADLINE)
    until(lambda: len(worker.desk.batcher) == 1)
    began = time.monotonic()
    worker.desk.batcher.close()
    assert refusal(lambda: list(call)).code() is Code.UNAVAILABLE
    assert time.monotonic() - began < PATIENCE


def test_a_text_lets_go_of_the_state_it_began_with(lab: Lab) -> None:
    worker = lab.worker(hot_states=0)
    caller = lab.caller(worker)
    state = caller.read(caller.document(text_of(37)))
    call = caller.stub.Decode(caller.decode_request(state, max_new_tokens=5000), timeout=DEADLINE)
    next(event for event in call if event.token.index > FOLD_EVERY)
    seen = read_meta(caller.store, caller.store.manifest("state", state)).seen
    with Gate(lab.loaded) as gate:
        assert gate.reached.wait(PATIENCE)
        gc.collect()
        assert not [s for s in gc.get_objects() if type(s) is CompressedKV and s.seen == seen]
        call.cancel()
