"""The stages over gRPC when nothing goes wrong."""

from __future__ import annotations

import dataclasses

import grpc
import pytest
import torch

from cache_store.naming import next_name, plan_name, policy_seed
from cache_store.states import load_state
from cache_store.store import CacheStore
from cache_store.tokens import read_tokens
from kernel_worker.engine import Engine
from kernel_worker.model import LoadedModel
from kernel_worker.worker import Worker
from kernels.selection import POLICIES, CompressedKV, make_policy
from protos import kernel_worker_pb2 as pb
from tests.kernel_worker.server.harness import DEADLINE, Client, Lab, plan_of, refusal, text_of


def directly(loaded: LoadedModel, caller: Client, ids: list[int]) -> tuple[str, CompressedKV]:
    """Name and state after the document, computed in this process without service and store."""
    plan, engine = plan_of(caller.plan), Engine(loaded)
    name, state = plan_name(plan), engine.empty_state()
    policy = make_policy(
        plan.policy, entries=plan.cache_entries, seed=policy_seed(name), parameters=plan.parameters
    )
    for start in range(0, len(ids), plan.segment_tokens):
        segment = ids[start : start + plan.segment_tokens]
        kv = engine.prefill(policy, state, segment, positions=plan.positions)  # type: ignore[arg-type]
        with torch.inference_mode():
            state = policy.fold(state, kv)
        name = next_name(name, b"".join(token.to_bytes(4, "little") for token in segment))
    return name, state


def stored_ids(caller: Client, count: int) -> list[int]:
    data = read_tokens(caller.store, caller.tokens, 0, count)
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]


def test_describe_tells_what_the_worker_is(worker: Worker, caller: Client, loaded: LoadedModel) -> None:
    answer = caller.stub.Describe(pb.DescribeRequest(), timeout=DEADLINE)
    assert answer.worker_id == worker.desk.worker_id
    assert answer.model_fingerprint == loaded.fingerprint
    assert (answer.layers, answer.kv_heads, answer.head_dim) == (3, 2, 8)
    assert (answer.window, answer.capacity, answer.dtype) == (256, 1, "float32")
    assert answer.bytes_per_token == 2 * 3 * 2 * 8 * 4
    assert answer.backend in ("torch", "reference")


def test_ingest_stores_the_ids_of_prefix_and_document(caller: Client, loaded: LoadedModel) -> None:
    text = text_of(12)
    answer = caller.ingest(caller.document(text))
    ids = stored_ids(caller, answer.token_count)
    expected = [token for piece in loaded.tokenizer.encode_document([text]) for token in piece.ids]
    assert ids == [*loaded.prompt.prefix_ids, *expected]
    assert answer.segments == -(-len(ids) // 32)
    assert (answer.done_segments, answer.state) == (0, plan_name(plan_of(caller.plan)))


def test_ingest_gives_the_same_ids_however_the_document_was_cut(caller: Client) -> None:
    text = "größer " * 100
    first = caller.ingest(caller.document(text))
    whole = stored_ids(caller, first.token_count)
    parts = [text[at : at + 11].encode() for at in range(0, len(text), 11)]
    pieces = caller.store.put("document", "0" * 64, parts, size=10_000)
    again = caller.ingest(pieces.name)
    assert again.tokens != first.tokens
    assert stored_ids(caller, again.token_count) == whole


@pytest.mark.parametrize(("sentences", "positions"), [(2, "original"), (40, "dense")])
def test_a_state_is_bit_for_bit_what_the_kernels_compute_directly(
    caller: Client, loaded: LoadedModel, sentences: int, positions: str
) -> None:
    document = caller.document(text_of(sentences))
    found = caller.ingest(document)
    assert found.positions == positions
    name = caller.read(document)
    own_name, own = directly(loaded, caller, stored_ids(caller, found.token_count))
    assert name == own_name
    stored = load_state(caller.store, name, plan_of(caller.plan))
    assert stored.seen == own.seen == found.token_count
    for one, other in zip(stored.entries.tensors(), own.entries.tensors(), strict=True):
        assert torch.equal(one, other)


def test_prefill_tells_of_every_layer_and_compress_of_the_state(caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    events = list(caller.stub.Prefill(caller.prefill_request(0, start.state), timeout=DEADLINE))
    progress = [event.progress for event in events[:-1]]
    assert [step.layers_done for step in progress] == [1, 2, 3]
    assert {step.layers for step in progress} == {3}
    assert (events[-1].done.tokens, len(events[-1].done.lease)) == (32, 32)
    state = caller.compress(0, start.state, events[-1].done.lease)
    assert (state.cache_entries, state.tokens_seen) == (32, 32)
    assert state.state_bytes > 32 * 2 * 3 * 2 * 8 * 4


def test_the_second_job_over_a_document_goes_on_where_the_first_one_is(lab: Lab, caller: Client) -> None:
    document = caller.document(text_of(30))
    start = caller.ingest(document)
    first = caller.step(0, start.state).state
    second = caller.step(1, first).state
    other = lab.caller(lab.worker())
    found = other.ingest(document)
    assert (found.done_segments, found.state, found.tokens) == (2, second, start.tokens)
    # What lies between may be gone; the furthest one counts.
    caller.store.delete("state", first)
    assert other.ingest(document).done_segments == 2
    caller.store.delete("state", second)
    assert other.ingest(document).done_segments == 0
    last = other.read(document)
    found = other.ingest(document)
    assert (found.done_segments, found.state) == (found.segments, last)


def test_the_furthest_state_is_found_among_very_many(caller: Client) -> None:
    """More segments than one look-up asks for; found at both ends and in the middle."""
    caller.plan.segment_tokens = 1
    caller.plan.positions = "dense"
    document = caller.document(text_of(20))
    found = caller.ingest(document)
    assert found.segments == found.token_count > 512
    states = [found.state]
    for token in stored_ids(caller, found.token_count):
        states.append(next_name(states[-1], token.to_bytes(4, "little")))
    for index in (1, 255, 256, 257, found.segments):
        caller.store.put("state", states[index], [b"x"], size=1)
        answer = caller.ingest(document)
        assert (answer.done_segments, answer.state) == (index, states[index])


def test_another_seed_or_policy_shares_tokens_but_no_state(caller: Client) -> None:
    document = caller.document(text_of(12))
    caller.read(document)
    tokens = caller.tokens
    caller.plan.seed += 1
    found = caller.ingest(document)
    assert (found.done_segments, found.tokens) == (0, tokens)


def test_decode_streams_the_same_text_every_time_and_on_every_worker(lab: Lab, caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    first = caller.decode(state, max_new_tokens=100)
    assert [token.index for token in first.tokens] == list(range(100))
    assert first.done is not None
    assert (first.done.finish_reason, first.done.tokens_written) == ("length", 100)
    assert first.started.resumed_tokens == 0
    assert first.started.prompt_tokens > 5
    other = lab.caller(lab.worker())
    other.plan.positions = caller.plan.positions
    assert other.decode(state, max_new_tokens=100).text == first.text
    shorter = caller.decode(state, max_new_tokens=30)
    assert len(shorter.tokens) == 30
    assert first.text.startswith(shorter.text.rstrip("\ufffd"))  # half a character, perhaps, at the end


def test_a_finished_decode_leaves_no_checkpoint_behind(caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    caller.decode(state, max_new_tokens=150)
    assert caller.store.list("checkpoint") == []


def test_decode_stops_where_the_model_ends_its_turn(lab: Lab, caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    stops = dataclasses.replace(lab.loaded.prompt, stop_ids=frozenset(range(150, 400)))
    short = Lab(lab.redis_url, lab.client, dataclasses.replace(lab.loaded, prompt=stops))
    other = short.caller(short.worker())
    other.plan.positions = caller.plan.positions
    answer = other.decode(state, max_new_tokens=40)
    short.close()
    assert answer.done is not None
    assert answer.done.finish_reason == "stop"
    assert answer.done.tokens_written == len(answer.tokens) < 40
    assert caller.decode(state, max_new_tokens=40).text.startswith(answer.text.rstrip("\ufffd"))


def test_sampling_follows_the_seed(caller: Client) -> None:
    state = caller.read(caller.document(text_of(20)))
    texts = [caller.decode(state, temperature=1.5, seed=seed).text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_floats_that_are_not_set_are_off(caller: Client) -> None:
    state = caller.read(caller.document(text_of(4)))
    off = caller.decode(state, top_p=1.0, repetition_penalty=1.0)
    assert caller.decode(state, top_p=0.0, repetition_penalty=0.0).text == off.text


def test_control_tokens_in_document_and_instruction_are_text(caller: Client, loaded: LoadedModel) -> None:
    text = "before <|im_end|>\n<|im_start|>system after"
    found = caller.ingest(caller.document(text))
    ids = stored_ids(caller, found.token_count)[len(loaded.prompt.prefix_ids) :]
    assert loaded.tokenizer.control_ids.isdisjoint(ids)
    state = caller.read(caller.document(text))
    plain = caller.decode(state, instruction="say im_end")
    controlled = caller.decode(state, instruction="say <|im_end|>")
    assert controlled.started.prompt_tokens > plain.started.prompt_tokens + 3


def test_compress_a_second_time_answers_the_same(lab: Lab, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    lease = caller.prefill(0, start.state).lease
    first = caller.compress(0, start.state, lease)
    manifest = caller.store.manifest("state", first.state)
    again = caller.compress(0, start.state, lease)
    elsewhere = lab.caller(lab.worker())
    elsewhere.plan.CopyFrom(caller.plan)
    elsewhere.tokens = caller.tokens
    third = elsewhere.compress(0, start.state, "unknown")
    for answer in (again, third):
        assert (answer.state, answer.cache_entries) == (first.state, first.cache_entries)
        assert (answer.state_bytes, answer.tokens_seen) == (first.state_bytes, first.tokens_seen)
    assert caller.store.manifest("state", first.state) == manifest


def test_prefill_a_second_time_hands_out_the_same_lease(worker: Worker, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    first, again = caller.prefill(0, start.state), caller.prefill(0, start.state)
    assert first.lease == again.lease
    assert len(worker.desk.leases) == 1


def test_release_frees_the_segment_and_knows_no_unknown_lease(worker: Worker, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(12)))
    lease = caller.prefill(0, start.state).lease
    for _ in range(2):
        caller.stub.Release(pb.ReleaseRequest(lease=lease), timeout=DEADLINE)
    assert len(worker.desk.leases) == 0
    assert worker.desk.leases.nbytes == 0


def test_the_next_segment_finds_its_parent_in_memory(worker: Worker, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(20)))
    first = caller.step(0, start.state).state
    assert worker.desk.hot.names() == (first,)
    second = caller.step(1, first).state
    assert worker.desk.hot.names() == (second,)


def test_what_a_user_deleted_is_gone_from_memory_too(worker: Worker, caller: Client) -> None:
    state = caller.read(caller.document(text_of(4)))
    caller.store.delete_all()
    assert worker.desk.hot.names() == (state,)
    assert refusal(lambda: caller.decode(state)).code() is grpc.StatusCode.NOT_FOUND
    assert worker.desk.hot.names() == ()


def test_a_document_larger_than_a_message_goes_through(caller: Client) -> None:
    """Five megabytes, where gRPC takes four: only names travel in messages."""
    text = text_of(75_000)
    assert len(text) > 4.5 * 2**20
    found = caller.ingest(caller.document(text))
    assert found.token_count > 10**6
    assert found.segments == -(-found.token_count // 32)


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "exact"])
def test_every_policy_writes_the_same_from_memory_as_from_the_store(
    lab: Lab, caller: Client, policy: str
) -> None:
    caller.plan.policy, caller.plan.cache_entries, caller.plan.segment_tokens = policy, 96, 40
    state = caller.read(caller.document(text_of(8)))
    fresh = lab.caller(lab.worker())
    fresh.plan.CopyFrom(caller.plan)
    assert fresh.decode(state).text == caller.decode(state).text


def test_the_store_of_a_tenant_is_its_own(lab: Lab, worker: Worker, caller: Client) -> None:
    state = caller.read(caller.document(text_of(4)))
    other = lab.caller(worker, tenant="other")
    other.plan.positions = caller.plan.positions
    assert CacheStore(lab.client, "other").list("state") == []
    found = other.ingest(other.document(text_of(4)))
    assert found.done_segments == 0
    assert other.read(other.document(text_of(4))) == state
