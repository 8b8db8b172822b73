"""The way of a job through its stages, undisturbed."""

from __future__ import annotations

import pytest

from orchestrator.prompts import instruction
from tests.orchestrator.conftest import MakeWorker
from tests.orchestrator.harness import DOCUMENT, Orchestrator, until
from tests.orchestrator.scripted_worker import BYTES_PER_TOKEN, Gate, ScriptedWorker, words


def test_each_stage_leads_to_the_next(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    job = orchestrator.submit()
    places = []
    while not orchestrator.job(job).finished:
        now = orchestrator.job(job)
        places.append((now.status, now.stage, now.segment))
        orchestrator.deliver()
    reading = [(stage, stage, segment) for segment in range(3) for stage in ("prefill", "compress")]
    assert places == [("submitted", "ingest", 0), *reading, ("decode", "decode", 3)]
    assert orchestrator.queue.messages.empty()
    assert orchestrator.kinds(job) == [
        "ingest 0",
        *(f"{stage} {segment}" for segment in range(3) for stage in ("prefill", "compress")),
        "decode 3",
        "done",
    ]


def test_result_is_complete(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    job = orchestrator.finish(orchestrator.submit())
    result = dict(job.result or {})
    seconds = result.pop("seconds")
    assert result == {
        "job_id": job.id,
        "kind": "summarize",
        "model": "tiny",
        "summary": "".join(words(job.state, instruction(job), 6)),
        "question": None,
        "state": job.state,
        "tokens_read": len(DOCUMENT),
        "prefill_tokens": len(DOCUMENT),
        "tokens_written": 6,
        "segments": 3,
        "cache_entries": 8,
        "state_bytes": orchestrator.store.manifest("state", job.state).size,
        "full_cache_bytes": len(DOCUMENT) * BYTES_PER_TOKEN,
        "finish_reason": "length",
        "reread_segments": [],
        "error_estimate": 0.25,
        "error_by_layer": [0.125, 0.375],
    }
    assert set(seconds) == {"ingest", "prefill", "compress", "decode"}
    assert all(value >= 0 for value in seconds.values())


def test_only_the_final_state_stays(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    job = orchestrator.finish(orchestrator.submit())
    assert [manifest.name for manifest in orchestrator.store.list("state")] == [job.state]
    assert not orchestrator.store.delete_superseded("state", job.state)


def test_at_most_two_states_exist_on_the_way(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    job = orchestrator.submit("x" * 160)
    most = 0
    while not orchestrator.job(job).finished:
        orchestrator.deliver()
        most = max(most, len(orchestrator.store.list("state")))
    assert most == 2


def test_second_job_on_a_document_starts_at_decode(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    first = orchestrator.finish(orchestrator.submit())
    worker.calls.clear()
    second = orchestrator.finish(orchestrator.submit())
    assert worker.methods() == ["Ingest", "Decode"]
    assert second.result is not None
    assert first.result is not None
    assert second.result["summary"] == first.result["summary"]
    assert second.result["prefill_tokens"] == 0
    assert second.result["cache_entries"] == 8


def test_state_on_the_way_of_another_job_is_kept_once_it_is_final(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    """A document that is the beginning of a longer one, which is read at the same time."""
    longer = orchestrator.submit("x" * 64)
    message = orchestrator.deliver_to("prefill", 2)
    shorter = orchestrator.finish(orchestrator.submit("x" * 32))
    assert shorter.prefill_tokens == 0
    orchestrator.queue.send(message)
    orchestrator.finish(longer)
    assert orchestrator.store.exists("state", [shorter.state]) == [True]


def test_question_without_reading_again_is_a_decode_alone(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    asked = orchestrator.finish(orchestrator.submit())
    worker.calls.clear()
    job = orchestrator.finish(orchestrator.ask(asked, "  Why? ", reread=0))
    assert worker.methods() == ["Decode"]
    assert "Question: Why?" in worker.calls[0][1].instruction
    assert job.result is not None
    assert job.result["answer"] == "".join(words(asked.state, instruction(job), 6))
    assert job.result["question"] == "Why?"
    assert job.result["prefill_tokens"] == 0
    assert job.result["tokens_read"] == len(DOCUMENT)


@pytest.mark.parametrize("reread", [0, 3])
def test_question_of_the_state_itself_makes_a_lost_one_again(
    orchestrator: Orchestrator, worker: ScriptedWorker, reread: int
) -> None:
    asked = orchestrator.finish(orchestrator.submit())
    before = orchestrator.finish(orchestrator.ask(asked, "Why?", reread=reread))
    orchestrator.store.delete("state", asked.state)
    after = orchestrator.finish(orchestrator.ask(asked, "Why?", reread=reread))
    assert worker.methods().count("Rank") == (2 if reread else 0)  # once for each question: no word is found
    assert before.result is not None
    assert after.result is not None
    assert after.result["answer"] == before.result["answer"]
    assert after.result["prefill_tokens"] == len(DOCUMENT)


def test_question_to_a_lost_document_fails_clearly(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    asked = orchestrator.finish(orchestrator.submit())
    orchestrator.store.delete_all()
    job = orchestrator.finish(orchestrator.ask(asked, "Why?"))
    assert job.status == "failed"
    assert "the document is no longer stored, submit it again" in job.reason
    assert not job.retryable


def test_workers_share_segments_only_with_the_lease_holder(
    orchestrator: Orchestrator, make_worker: MakeWorker
) -> None:
    workers = [make_worker() for _ in range(3)]
    orchestrator.finish(orchestrator.submit("x" * 200))
    for worker in workers:
        prefilled = [name.split()[1] for name in worker.methods() if name.startswith("Prefill")]
        compressed = [name.split()[1] for name in worker.methods() if name.startswith("Compress")]
        assert prefilled == compressed


def test_two_jobs_and_two_workers_overlap(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    first, second = make_worker(), make_worker()
    gates = [Gate(), Gate()]
    for worker, gate in zip((first, second), gates, strict=True):
        worker.script["Prefill"].append(gate)
    jobs = [orchestrator.submit("a" * 40), orchestrator.submit("b" * 40)]
    with orchestrator.running():
        for gate in gates:
            assert gate.reached.wait(10), "both workers prefill at the same time"
        for gate in gates:
            gate.open.set()
        until(lambda: all(orchestrator.job(job).status == "done" for job in jobs), "both jobs are done")


def test_new_worker_takes_waiting_work(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    busy = make_worker()
    gate = Gate()
    busy.script["Prefill"].append(gate)
    jobs = [orchestrator.submit("a" * 40), orchestrator.submit("b" * 40)]
    with orchestrator.running():
        assert gate.reached.wait(10)
        until(lambda: any(orchestrator.job(job).parked for job in jobs), "the other job waits")
        new = make_worker()
        until(lambda: "Prefill 0" in new.methods(), "the new worker has work", seconds=5)
        gate.open.set()
        until(lambda: all(orchestrator.job(job).status == "done" for job in jobs), "both are done")


@pytest.mark.parametrize("query", [None, "the weather"])
def test_query_is_part_of_the_instruction(
    orchestrator: Orchestrator, worker: ScriptedWorker, query: str | None
) -> None:
    orchestrator.finish(orchestrator.submit(query=query))
    (text,) = [request.instruction for method, request in worker.calls if method == "Decode"]
    assert ("the weather" in text) == (query is not None)
    assert "ummar" in text
