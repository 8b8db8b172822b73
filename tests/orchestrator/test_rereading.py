"""Questions and queries: passages are chosen once, recorded, read again, and named in the result."""

from __future__ import annotations

import grpc
import pytest

from orchestrator import evidence
from orchestrator.cli.report import print_report
from orchestrator.jobs import JobResult
from orchestrator.service import Service
from orchestrator.settings import Settings
from tests.orchestrator.conftest import MakeWorker
from tests.orchestrator.harness import DOCUMENT, Orchestrator
from tests.orchestrator.scripted_worker import ScriptedWorker, die, status, words

QUESTION = "Where is second or end ?"  # two of its words are in the document
SECOND, END = DOCUMENT.index("second"), DOCUMENT.index("end")


def test_question_is_ranked_then_read_again(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    asked = orchestrator.finish(orchestrator.submit())
    worker.calls.clear()
    job = orchestrator.finish(orchestrator.ask(asked, QUESTION))
    assert worker.methods() == ["Rank", "Decode"]
    ranked, decoded = (request for _, request in worker.calls)
    assert (ranked.question, ranked.count, ranked.max_new_tokens) == (QUESTION, 3, 6)
    assert ranked.instruction == decoded.instruction
    assert [(span.first, span.count) for span in decoded.reread] == [(SECOND, 6), (END, 3)]
    assert decoded.tokens == asked.tokens
    assert job.result is not None
    assert job.result["reread_segments"] == [
        {"segment": SECOND // 16, "start": SECOND, "end": SECOND + 6, "score": 1.0},
        {"segment": END // 16, "start": END, "end": END + 3, "score": 1.0},
    ]
    assert job.result["prefill_tokens"] == 0
    seconds = job.result["seconds"]
    assert list(seconds) == ["rank", "reread", "decode"]
    assert (seconds["reread"], seconds["decode"]) == (200.0, 0.0)  # the whole call was reading
    assert orchestrator.kinds(job) == ["rank 3", "reread 3", "decode 3", "done"]
    told = [event.data for event in orchestrator.events(job) if event.kind == "progress"]
    assert told[-1] == {"stage": "reread", "segment": 3, "segments": 3, "fraction": 1.0}


def test_query_of_a_summary_is_looked_for_after_reading(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    job = orchestrator.finish(orchestrator.submit(query="the second thing", reread=1))
    assert worker.methods()[-3:] == ["Compress 2", "Rank", "Decode"]
    assert worker.calls[-2][1].question == "the second thing"
    assert len(job.passages) == 1
    again = orchestrator.finish(orchestrator.submit(query="the second thing", reread=1))
    assert worker.methods()[-3:] == ["Ingest", "Rank", "Decode"]
    assert again.passages == job.passages
    assert "Rank" not in [method for method, _ in worker.calls[:-5]]


@pytest.mark.parametrize("changes", [{}, {"query": "second", "reread": 0}])
def test_without_a_query_nothing_is_ranked(
    orchestrator: Orchestrator, worker: ScriptedWorker, changes: dict[str, object]
) -> None:
    job = orchestrator.finish(orchestrator.submit(**changes))
    assert "Rank" not in worker.methods()
    assert job.result is not None
    assert job.result["reread_segments"] == []


def test_state_that_lost_nothing_is_answered_from(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    asked = orchestrator.finish(orchestrator.submit(cache_entries=len(DOCUMENT)))
    worker.calls.clear()
    job = orchestrator.finish(orchestrator.ask(asked, QUESTION))
    assert worker.methods() == ["Decode"]
    assert job.passages == ()


def test_a_retry_reads_the_same_passages(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    first = make_worker()
    asked = orchestrator.finish(orchestrator.submit())
    whole = orchestrator.finish(orchestrator.ask(asked, QUESTION))
    first.token_script[3] = die
    job = orchestrator.ask(asked, QUESTION)
    second = make_worker()
    job = orchestrator.finish(job)
    assert job.result is not None
    assert whole.result is not None
    assert job.result["answer"] == whole.result["answer"] != "".join(words(asked.state, "", 6))
    made = [(method, request) for each in (first, second) for method, request in each.calls]
    decodes = [request.reread for method, request in made if method == "Decode"][-2:]
    assert list(decodes[0]) == list(decodes[1])
    assert [method for method, _ in made].count("Rank") == 2  # once for each job


@pytest.mark.parametrize("lost", ["state", "state and tokens", "state before decode"])
def test_a_question_does_without_a_lost_state(
    orchestrator: Orchestrator, worker: ScriptedWorker, lost: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = orchestrator.finish(orchestrator.submit())
    before = orchestrator.finish(orchestrator.ask(asked, QUESTION)).result or {}
    job = orchestrator.ask(asked, QUESTION)
    worker.calls.clear()
    if lost == "state before decode":
        orchestrator.queue.send(orchestrator.deliver_to("decode", asked.segments))
    if lost == "state and tokens":
        orchestrator.store.delete("tokens", asked.tokens)
        worker.script["Rank"].append(status(grpc.StatusCode.NOT_FOUND))
    orchestrator.store.delete("state", asked.state)
    result = orchestrator.finish(job).result or {}
    again = ["Rank", "Ingest"] if lost == "state and tokens" else []
    assert worker.methods() == [*again, "Rank", "Decode"]
    gone = {"state": None, "cache_entries": None, "state_bytes": None, "error_estimate": None}
    same = ("answer", "reread_segments", "tokens_read", "prefill_tokens", "full_cache_bytes")
    assert {name: result[name] for name in [*gone, *same]} == {
        **{name: before[name] for name in same},
        **gone,
    }
    assert JobResult.from_json(result).to_json() == result
    print_report(JobResult.from_json(result), [])
    shown = capsys.readouterr().err
    assert "passages alone, of 40 in 3 segments" in shown
    assert "no longer stored, and not needed" in shown


def test_what_fits_into_the_state_is_answered_from_it(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    asked = orchestrator.finish(orchestrator.submit(cache_entries=len(DOCUMENT)))
    orchestrator.store.delete("state", asked.state)
    worker.calls.clear()
    job = orchestrator.finish(orchestrator.ask(asked, QUESTION))
    assert "Rank" not in worker.methods()
    assert job.result is not None
    assert job.result["state"] == asked.state


def test_a_summary_leaves_its_state_whatever_is_lost(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    job = orchestrator.submit(query="the second thing")
    message = orchestrator.deliver_to("rank", 3)
    state = orchestrator.job(job).state
    orchestrator.store.delete("state", state)
    orchestrator.queue.send(message)
    job = orchestrator.finish(job)
    assert job.result is not None
    assert job.result["state"] == state
    assert orchestrator.store.exists("state", [state]) == [True]


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
def test_a_failed_ranking_is_tried_again(
    orchestrator: Orchestrator, worker: ScriptedWorker, code: grpc.StatusCode
) -> None:
    asked = orchestrator.finish(orchestrator.submit())
    worker.script["Rank"].append(status(code))
    job = orchestrator.finish(orchestrator.ask(asked, QUESTION))
    assert job.status == "done"
    assert len(job.passages) == 2


def test_tokens_lost_before_decode_are_made_again(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    asked = orchestrator.finish(orchestrator.submit())
    worker.script["Decode"].append(status(grpc.StatusCode.NOT_FOUND))
    worker.calls.clear()
    job = orchestrator.finish(orchestrator.ask(asked, QUESTION))
    assert worker.methods() == ["Rank", "Decode", "Ingest", "Rank", "Decode"]
    assert job.status == "done"


def test_evidence_is_the_text_of_the_document(
    settings: Settings,
    orchestrator: Orchestrator,
    worker: ScriptedWorker,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = orchestrator.finish(orchestrator.submit())
    job = orchestrator.finish(orchestrator.ask(asked, QUESTION))
    with Service(settings) as service:
        assert service.reread_texts(asked.id) == []
        texts = service.reread_texts(job.id)
        result = service.result(job.id)
    assert texts == ["second", "end"]
    print_report(result, texts)
    shown = capsys.readouterr().err.splitlines()
    assert next(line for line in shown if line.startswith("read again")).endswith("  segments 2, 3")
    assert [line.strip() for line in shown if line.endswith(("second", "end"))] == ["2: second", "3: end"]
    print_report(JobResult.from_json(asked.result or {}), [])
    assert "read again" not in capsys.readouterr().err
    nowhere = orchestrator.finish(orchestrator.ask(asked, "Xylophone?"))
    print_report(JobResult.from_json(nowhere.result or {}), [])
    assert "nothing: no word of the question says where to look" in capsys.readouterr().err


def test_passages_are_found_over_the_borders_of_parts(orchestrator: Orchestrator) -> None:
    parts = ["ab", "cdé", "fgh"]
    text = "".join(parts)
    orchestrator.store.put("document", "0" * 64, [part.encode() for part in parts], size=99)
    spans = [(0, 1), (1, 6), (4, 5), (0, len(text))]
    passages = [{"start": start, "end": end} for start, end in spans]
    found = evidence.passage_texts(orchestrator.store, "0" * 64, passages)
    assert found == [text[start:end] for start, end in spans]


TEXT = "It was late. The toll bridge\nat Harrowmere closes in May. It rains, and it rains again. Who was it?"


@pytest.mark.parametrize(
    ("question", "width", "found"),
    [
        ("When does the BRIDGE at Harrowmere close?", 120, "The toll bridge at Harrowmere closes in May."),
        ("When does the bridge close?", 24, "The toll bridge at Har…"),
        ("Harrowmere in May", 24, "…ge at Harrowmere close…"),
        ("", 120, "It was late."),
    ],
)
def test_excerpt_is_the_sentence_that_says_it(question: str, width: int, found: str) -> None:
    assert evidence.excerpt(TEXT, question, width) == found
    assert len(found) <= width


def test_nothing_to_show_is_shown_as_nothing() -> None:
    assert evidence.excerpt(" \n", "x", 50) == ""
