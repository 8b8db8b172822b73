"""Evidence over gRPC: which parts of a document a state holds, where they stand, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import grpc
import pytest

from cache_store.codec import encode
from cache_store.states import load_state, save_state
from kernel_worker.calls import Call
from kernel_worker.model import LoadedModel
from kernel_worker.stages.evidence import places
from kernel_worker.text_pieces import PIECE_CHARACTERS
from kernel_worker.tokenizer import TextTokenizer
from kernel_worker.worker import Worker
from protos import kernel_worker_pb2 as pb
from tests.kernel_worker.server.harness import DEADLINE, Client, Lab, plan_of, refusal, text_of

Code = grpc.StatusCode


def evidence(caller: Client, document: str, state: str, **changes: Any) -> pb.EvidenceResponse:
    request = pb.EvidenceRequest(
        **{
            "tenant": caller.tenant,
            "plan": caller.plan,
            "document": document,
            "tokens": caller.tokens,
            "state": state,
            "bins": 10,
        }
        | changes
    )
    answer: pb.EvidenceResponse = caller.stub.Evidence(request, timeout=DEADLINE)
    return answer


def test_the_parts_are_the_document_and_hold_what_the_state_holds(
    lab: Lab, worker: Worker, loaded: LoadedModel
) -> None:
    caller = lab.caller(worker, policy="uniform", cache_entries=64)
    text = "\n " + text_of(8)
    document = caller.document(text)
    state = caller.read(document)
    bins = evidence(caller, document, state).bins
    assert len(bins) == 10
    assert [part.start for part in bins] == [0, *(part.end for part in bins[:-1])]
    assert bins[-1].end == len(text)
    entries = load_state(caller.store, state, plan_of(caller.plan)).entries
    prefix = len(loaded.prompt.prefix_ids)
    rows = entries.tokens.shape[0] * entries.tokens.shape[1]
    first = prefix
    for part in bins:
        here = (entries.tokens >= first) & (entries.tokens < first + part.tokens)
        assert part.entries == pytest.approx(float(here.sum()) / rows)
        assert part.weight == pytest.approx(float(entries.weights[here].sum()) / rows)
        ids = loaded.tokenizer.encode(text[part.start : part.end])
        assert abs(len(ids) - part.tokens) <= 2  # a border within a word's merges
        first += part.tokens
    assert 0 < sum(part.entries for part in bins) <= 64 < sum(part.tokens for part in bins)


def test_a_state_that_has_room_holds_every_token_once(caller: Client) -> None:
    short = caller.document("Three words only.")
    bins = evidence(caller, short, caller.read(short), bins=4096).bins
    assert [(part.tokens, part.entries, part.weight) for part in bins] == [(1, 1.0, 1.0)] * len(bins)


def test_places_go_on_behind_the_first_piece_of_a_long_text(worker: Worker, loaded: LoadedModel) -> None:
    text = text_of(PIECE_CHARACTERS // 25)
    spans = list(loaded.tokenizer.spans([text]))
    found = places(worker.desk, Call(), [text[:999], text[999:]], 700)
    assert found.end > 2 * PIECE_CHARACTERS
    assert (found.tokens, found.end) == (len(spans), len(text))
    assert found.starts.tolist() == [first for first, _ in spans[::700]]


def test_a_document_is_encoded_once_for_as_many_parts(
    lab: Lab, worker: Worker, loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[int] = []

    def located(self: TextTokenizer, chunks: Iterable[str]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        encoded.append(1)
        return real(self, chunks)

    real = TextTokenizer.located
    monkeypatch.setattr(TextTokenizer, "located", located)
    caller = lab.caller(worker)
    document = caller.document(text_of(7))
    state = caller.read(document)
    first = evidence(caller, document, state).bins
    assert evidence(caller, document, state).bins == first
    assert len(encoded) == 1
    assert len(evidence(caller, document, state, bins=5).bins) == 5
    assert len(encoded) == 2
    caller.store.delete("document", document)  # what is deleted is gone, known or not
    assert refusal(lambda: evidence(caller, document, state)).code() is Code.NOT_FOUND


def test_what_cannot_be_answered_is_refused(lab: Lab, caller: Client) -> None:
    document = caller.document(text_of(3))
    early = caller.step(0, caller.ingest(document).state).state
    state = caller.read(document)
    other = caller.document(text_of(4))
    for changes, code in (
        ({"bins": 0}, Code.INVALID_ARGUMENT),
        ({"bins": 4097}, Code.INVALID_ARGUMENT),
        ({"document": other}, Code.INVALID_ARGUMENT),
        ({"state": early}, Code.INVALID_ARGUMENT),
        ({"tokens": "x"}, Code.INVALID_ARGUMENT),
        ({"state": "0" * 64}, Code.NOT_FOUND),
        ({"document": "0" * 64}, Code.NOT_FOUND),
        ({"tenant": "elsewhere"}, Code.NOT_FOUND),
    ):
        asked = {"document": document, "state": state} | changes
        assert refusal(lambda asked=asked: evidence(caller, **asked)).code() is code, changes  # type: ignore[misc]
    caller.plan.seed += 1
    assert refusal(lambda: evidence(caller, document, state)).code() is Code.FAILED_PRECONDITION


def test_a_state_that_names_tokens_beyond_its_document_is_dropped(caller: Client) -> None:
    document = caller.document(text_of(3))
    state = caller.read(document)
    plan = plan_of(caller.plan)
    kv = load_state(caller.store, state, plan)
    kv.entries.tokens[0, 0, 0] = kv.seen
    assert len(list(encode(kv))) == kv.entries.tokens.shape[0]
    save_state(caller.store, state, kv, plan, None, replace=True)
    assert refusal(lambda: evidence(caller, document, state)).code() is Code.DATA_LOSS
    assert not caller.store.exists("state", [state])[0]
