"""Rank and a Decode that reads again, over gRPC: what is found, what is read, what a broken one gives."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import torch

from kernel_worker.engine import FOLD_EVERY, Engine
from kernel_worker.model import LoadedModel
from kernel_worker.sampling import Sampling
from kernel_worker.stages.reread import gap_ids
from kernel_worker.text_pieces import PIECE_CHARACTERS
from kernel_worker.worker import Worker
from kernels.selection import make_policy
from protos import kernel_worker_pb2 as pb
from tests.kernel_worker.server.harness import (
    DEADLINE,
    Client,
    Gate,
    Lab,
    endless,
    object_name,
    refusal,
    text_of,
)
from tests.kernel_worker.server.test_stages import stored_ids
from tests.kernel_worker.server.waiting import PATIENCE, until
from tests.kernel_worker.tiny import tiny_loaded

Code = grpc.StatusCode
INSTRUCTION = "Say it."
FACTS = ("Marta Quillen keeps a lynx.", "The vault opens at 48-13.", "Zoltán 住在 東京 市。")


def document(*, sentences: int = 100, facts: Sequence[str] = FACTS) -> str:
    """A long text with the facts far from each other, in their order."""
    lines = text_of(sentences).split("\n")
    for number, fact in enumerate(facts):
        lines.insert((number + 1) * len(lines) // (len(facts) + 2), fact)
    return "\n".join(lines)


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    """With a window that holds some passages of the tiny tokenizer's tokens, most of which are one letter."""
    return endless(tiny_loaded(max_position_embeddings=1024))


@pytest.fixture
def caller(lab: Lab, worker: Worker) -> Client:
    """Passages of 128 tokens."""
    return lab.caller(worker, segment_tokens=256)


def rank(caller: Client, name: str, question: str, **changes: Any) -> pb.RankResponse:
    values: dict[str, Any] = {"instruction": INSTRUCTION, "max_new_tokens": 20, "count": 3} | changes
    request = pb.RankRequest(
        tenant=caller.tenant,
        plan=caller.plan,
        document=name,
        tokens=caller.tokens,
        question=question,
        **values,
    )
    answer: pb.RankResponse = caller.stub.Rank(request, timeout=DEADLINE)
    return answer


def spans_of(answer: pb.RankResponse) -> list[pb.TokenSpan]:
    return [passage.span for passage in answer.passages]


@pytest.mark.parametrize(
    ("question", "fact"),
    [("What does Quillen keep?", 0), ("When does the VAULT open?", 1), ("東京?", 2)],
    ids=["name", "folded", "unspaced"],
)
def test_the_passage_that_holds_the_fact_is_the_best(caller: Client, question: str, fact: int) -> None:
    text = document()
    name = caller.document(text)
    found = caller.ingest(name)
    answer = rank(caller, name, question)
    best = max(answer.passages, key=lambda passage: passage.score)
    assert FACTS[fact] in text[best.start : best.end]
    assert best.segment == best.span.first // 256
    starts = [passage.start for passage in answer.passages]
    assert starts == sorted(starts)
    assert all(passage.span.first + passage.span.count <= found.token_count for passage in answer.passages)


def test_characters_and_tokens_of_a_passage_are_the_same_text(caller: Client, loaded: LoadedModel) -> None:
    text = document(sentences=600)
    name = caller.document(text)
    ids = stored_ids(caller, caller.ingest(name).token_count)
    [passage] = rank(caller, name, "東京").passages
    assert passage.start > PIECE_CHARACTERS  # beyond the first piece that is tokenized by itself
    stop = passage.span.first + passage.span.count
    detokenizer = loaded.tokenizer.detokenizer()
    read = "".join(map(detokenizer.push, ids[passage.span.first : stop])) + detokenizer.finish()
    assert read == text[passage.start : passage.end]


def test_a_fact_is_whole_wherever_it_stands(caller: Client) -> None:
    """At every place of a block and of a segment: no border cuts it."""
    for shift in range(0, 70, 7):
        text = "x" * shift + " " + document(sentences=60, facts=FACTS[:1])
        name = caller.document(text)
        caller.ingest(name)
        answer = rank(caller, name, "What does Marta Quillen keep?", count=1)
        [passage] = answer.passages
        assert FACTS[0] in text[passage.start : passage.end], shift


def test_as_many_passages_as_the_window_holds(caller: Client) -> None:
    name = caller.document(document(facts=FACTS * 3))
    caller.ingest(name)
    tokens = [span.count for span in spans_of(rank(caller, name, "lynx vault", count=50))]
    assert 3 <= sum(tokens) // 128 < 8
    assert len(rank(caller, name, "lynx vault", count=50, max_new_tokens=5000).passages) <= len(tokens)
    assert len(rank(caller, name, "lynx", count=1).passages) == 1
    assert not rank(caller, name, "lynx", count=0).passages
    caller.plan.segment_tokens = 8 * 256  # a passage longer than the window
    caller.plan.positions = "original"
    assert not rank(caller, name, "lynx").passages


def test_words_that_are_nowhere_or_everywhere_name_no_passage(caller: Client) -> None:
    name = caller.document(document())
    caller.ingest(name)
    assert not rank(caller, name, "Xylophone?").passages
    assert not rank(caller, name, "…").passages


def test_a_short_document_is_read_as_a_whole(caller: Client, loaded: LoadedModel) -> None:
    text = text_of(2)
    name = caller.document(text)
    found = caller.ingest(name)
    [passage] = rank(caller, name, "Xylophone?", count=4).passages
    assert (passage.start, passage.end) == (0, len(text))
    prefix = len(loaded.prompt.prefix_ids)
    assert (passage.span.first, passage.span.count) == (prefix, found.token_count - prefix)


def test_the_text_is_what_the_model_writes_after_the_passages_alone(
    caller: Client, loaded: LoadedModel
) -> None:
    name = caller.document(document())
    ids = stored_ids(caller, caller.ingest(name).token_count)
    spans = spans_of(rank(caller, name, "Quillen vault"))
    assert len(spans) > 1
    answer = rereading(caller, spans, max_new_tokens=30)
    read = list(loaded.prompt.prefix_ids)
    for place, span in enumerate(spans):
        read += (gap_ids(loaded) if place else []) + ids[span.first : span.first + span.count]
    engine, policy = Engine(loaded), make_policy("exact", entries=loaded.window, seed=0)
    with torch.inference_mode():
        entries = engine.prefill(policy, engine.empty_state(), read, positions="original")
        state = policy.fold(engine.empty_state(), entries)
    steps = engine.decode(
        policy,
        state,
        loaded.prompt.instruction_ids(INSTRUCTION),
        positions="original",
        sampling=Sampling(max_new_tokens=30),
    )
    text = loaded.tokenizer.detokenizer()
    expected = "".join(text.push(step.token) for step in steps if step.token is not None) + text.finish()
    assert answer.text == expected
    assert answer.progress == sorted(answer.progress)
    assert answer.progress[-1] == (len(read), len(read))
    assert answer.done is not None
    assert 0 < answer.done.reread_seconds < answer.done.seconds


def test_the_answer_ends_with_the_window(caller: Client, loaded: LoadedModel) -> None:
    name = caller.document(document())
    caller.ingest(name)
    spans = [pb.TokenSpan(first=len(loaded.prompt.prefix_ids), count=900)]
    done = rereading(caller, spans, max_new_tokens=500).done
    assert done is not None
    assert done.finish_reason == "length"
    assert 50 < done.tokens_written < 124


def test_a_broken_reading_goes_on_elsewhere_with_the_same_text(lab: Lab, caller: Client) -> None:
    name = caller.document(document())
    caller.ingest(name)
    spans = spans_of(rank(caller, name, "Quillen vault"))
    chosen = {"max_new_tokens": 90, "temperature": 1.0}
    whole = rereading(caller, spans, **chosen)
    other = lab.caller(lab.worker())
    other.plan.CopyFrom(caller.plan)
    other.tokens = caller.tokens
    assert rereading(other, spans, **chosen).text == whole.text
    with Gate(lab.loaded, after=FOLD_EVERY + 10) as gate, ThreadPoolExecutor(1) as pool:
        call = caller.stub.Decode(request_of(caller, spans, **chosen), timeout=DEADLINE)
        reading = pool.submit(lambda: list(call))
        assert gate.reached.wait(PATIENCE)
        call.cancel()
        assert refusal(lambda: reading.result(PATIENCE)).code() is Code.CANCELLED
        gate.open()
        until(lambda: not lab.workers[0].desk.load)
    resumed = rereading(other, spans, **chosen)
    assert resumed.resumed == FOLD_EVERY + 1
    assert not resumed.progress
    assert resumed.text == whole.text
    # What was read is part of the checkpoint's name.
    assert rereading(caller, spans[:1], **chosen).checkpoint != whole.checkpoint


def test_a_cancelled_reading_stops_within_a_layer(lab: Lab, worker: Worker, caller: Client) -> None:
    name = caller.document(document())
    caller.ingest(name)
    spans = spans_of(rank(caller, name, "Quillen vault"))
    with Gate(lab.loaded, layer=1) as gate, Gate(lab.loaded, layer=2) as next_layer:
        next_layer.open()
        call = caller.stub.Decode(request_of(caller, spans), timeout=DEADLINE)
        assert gate.reached.wait(PATIENCE)
        call.cancel()
        caller.stub.Describe(pb.DescribeRequest(), timeout=DEADLINE)
        gate.open()
        until(lambda: worker.desk.load == 0)
        assert next_layer.passes == 0


@pytest.mark.parametrize(
    ("spans", "sentence"),
    [
        ([(0, 8)], "There is no passage of 8 tokens from 0 on"),
        ([(100, 0)], "There is no passage of 0 tokens"),
        ([(200, 8), (100, 8)], "passages come in order"),
        ([(100, 8), (104, 8)], "passages come in order"),
        ([(10**6, 8)], "There is no passage"),
        ([(100, 1020)], "exceed the 1024"),
    ],
    ids=["opening", "empty", "order", "overlap", "behind", "window"],
)
def test_passages_that_cannot_be_read_are_refused(
    caller: Client, spans: list[tuple[int, int]], sentence: str
) -> None:
    caller.ingest(caller.document(document()))
    asked = [pb.TokenSpan(first=first, count=count) for first, count in spans]
    error = refusal(lambda: rereading(caller, asked))
    assert error.code() is Code.INVALID_ARGUMENT
    assert sentence in error.details()


def test_what_is_not_there_cannot_be_ranked(lab: Lab, worker: Worker, caller: Client) -> None:
    name = caller.document(document())
    caller.ingest(name)
    assert refusal(lambda: rank(caller, name, " \n")).code() is Code.INVALID_ARGUMENT
    assert refusal(lambda: rank(caller, name, "x", instruction=" ")).code() is Code.INVALID_ARGUMENT
    assert refusal(lambda: rank(caller, object_name("x"), "x")).code() is Code.NOT_FOUND
    other = caller.document(text_of(3))
    assert "not those of document" in refusal(lambda: rank(caller, other, "x")).details()
    stranger = lab.caller(worker, tenant="other")
    stranger.plan.CopyFrom(caller.plan)
    stranger.tokens = caller.tokens
    assert refusal(lambda: rank(stranger, name, "x")).code() is Code.NOT_FOUND
    asked = [pb.TokenSpan(first=100, count=8)]
    assert refusal(lambda: rereading(stranger, asked)).code() is Code.NOT_FOUND
    worker.drain()
    assert refusal(lambda: rank(caller, name, "x")).code() is Code.UNAVAILABLE


class Answer:
    """All events of a Decode that reads again and ends well."""

    def __init__(self, events: list[pb.DecodeEvent]) -> None:
        kinds = [event.WhichOneof("event") for event in events]
        begun = kinds.index("started")
        self.progress = [(event.reread.tokens_done, event.reread.tokens) for event in events[:begun]]
        self.resumed = events[begun].started.resumed_tokens
        self.checkpoint = events[begun].started.checkpoint
        self.text = "".join(event.token.text for event in events[begun:-1])
        self.done = events[-1].done if kinds[-1] == "done" else None


def request_of(caller: Client, spans: Sequence[pb.TokenSpan], **changes: Any) -> pb.DecodeRequest:
    return caller.decode_request(
        object_name("no state is needed"),
        **{"instruction": INSTRUCTION, "tokens": caller.tokens, "reread": spans, **changes},
    )


def rereading(caller: Client, spans: Sequence[pb.TokenSpan], **changes: Any) -> Answer:
    return Answer(list(caller.stub.Decode(request_of(caller, spans, **changes), timeout=DEADLINE)))
