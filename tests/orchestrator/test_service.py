"""The facade: submitting is all or nothing, and every refusal is a typed error with one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pydantic import ByteSize

from cache_store.errors import BudgetExceeded, ObjectMissing, StoreUnavailable, TransferError
from orchestrator.documents import Document
from orchestrator.errors import (
    DocumentError,
    JobCancelled,
    JobFailed,
    JobStoreUnavailable,
    NotFinished,
    OptionError,
    UnknownJob,
)
from orchestrator.job_keys import CELERY_PREFIX
from orchestrator.job_store import Move
from orchestrator.messages import StageMessage
from orchestrator.service import Service
from orchestrator.settings import Settings
from tests.orchestrator.harness import DOCUMENT, Orchestrator, options
from tests.orchestrator.scripted_worker import ScriptedWorker


@pytest.fixture
def service(settings: Settings) -> Iterator[Service]:
    with Service(settings) as made:
        yield made


def test_submit_stores_the_document_and_sends_a_message(
    service: Service, orchestrator: Orchestrator, redis_client: redis.Redis
) -> None:
    service.ping()
    job = service.submit(Document("a.txt", DOCUMENT), options())
    assert service.job(job.id) == job
    assert service.jobs() == [job]
    assert b"".join(orchestrator.store.parts("document", job.document)).decode() == DOCUMENT
    (raw,) = redis_client.lrange(f"{CELERY_PREFIX}prefill", 0, -1)
    headers = json.loads(raw)["headers"]
    assert headers["task"] == "docexpress.stage"
    assert job.id in headers["kwargsrepr"]


def test_message_of_a_huge_document_is_small(
    service: Service, orchestrator: Orchestrator, redis_client: redis.Redis
) -> None:
    text = "A document of sixty-four megabytes.\n" * (64 * 1024**2 // 36)
    job = service.submit(Document("huge.txt", text), options())
    (raw,) = redis_client.lrange(f"{CELERY_PREFIX}prefill", 0, -1)
    assert len(raw) < 2048
    manifest = orchestrator.store.manifest("document", job.document)
    assert manifest.size == len(text)
    assert max(part.size for part in manifest.parts) <= 1024**2


def test_nothing_is_left_when_the_budget_has_no_room(settings: Settings, redis_client: redis.Redis) -> None:
    poor = settings.model_copy(update={"tenant_byte_budget": ByteSize(1000)})
    with Service(poor) as service, pytest.raises(BudgetExceeded):
        service.submit(Document("a.txt", "x" * 2000), options())
    assert [key for key in redis_client.keys("*") if b"_kombu" not in key] == []


def test_nothing_is_left_when_the_job_cannot_be_created(
    service: Service, orchestrator: Orchestrator, redis_client: redis.Redis
) -> None:
    """The record's key is taken by something else, so that Redis refuses the transaction's command."""
    redis_client.set("docexpress:1:default:jobs", "not a sorted set")
    with pytest.raises(JobStoreUnavailable, match="refused a command"):
        service.submit(Document("a.txt", DOCUMENT), options())
    assert orchestrator.store.list("document") == []


@pytest.mark.parametrize("text", ["", "  \n"])
def test_blank_document_is_refused(service: Service, text: str) -> None:
    with pytest.raises(DocumentError, match="is empty or blank"):
        service.submit(Document("a.txt", text), options())


def test_surrogates_are_refused(service: Service) -> None:
    with pytest.raises(DocumentError, match="characters that no encoding has"):
        service.submit(Document("a.txt", "a\ud800"), options())


def test_result_of_each_status(service: Service, orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    job = orchestrator.submit()
    with pytest.raises(NotFinished, match="it is in submitted"):
        service.result(job.id)
    with pytest.raises(NotFinished):
        service.ask(job.id, "Why?")
    orchestrator.finish(job)
    assert service.result(job.id).text == service.text(job.id) != ""
    assert service.cancel(job.id).status == "done", "a finished job stays as it is"

    failed = orchestrator.submit("b" * 20)
    fields = {"status": "failed", "reason": "no luck", "retryable": True}
    assert orchestrator.jobs.move(failed, Move(fields, final=True))
    with pytest.raises(JobFailed, match=f"job {failed.id} failed: no luck") as raised:
        service.result(failed.id)
    assert (raised.value.retryable, raised.value.invalid) == (True, False)

    cancelled = service.submit(Document("c", "c" * 20), options())
    assert service.cancel(cancelled.id).status == "cancelled"
    with pytest.raises(JobCancelled):
        service.result(cancelled.id)
    with pytest.raises(JobCancelled):
        service.ask(cancelled.id, "Why?")


def test_unknown_job(service: Service) -> None:
    known = service.submit(Document("a.txt", DOCUMENT), options())
    service.cancel(known.id)
    for call in (service.job, service.cancel, service.result, service.text):
        with pytest.raises(UnknownJob, match="there is no job 'none'"):
            call("none")
        for foreign in (f"{known.id}:events", "", "../x", "a" * 1000, "J\n"):
            with pytest.raises(UnknownJob):
                call(foreign)
    with pytest.raises(UnknownJob):
        service.ask("none", "Why?")
    with pytest.raises(UnknownJob):
        next(service.events("none"))


def test_blank_question_is_refused(
    service: Service, orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    job = orchestrator.finish(orchestrator.submit())
    with pytest.raises(OptionError, match="the question is blank"):
        service.ask(job.id, " \n")


def test_question_keeps_the_plan_and_takes_the_sampling(
    service: Service, orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    asked = orchestrator.finish(orchestrator.submit(seed=5, query="x"))
    job = service.ask(asked.id, "Why?", options(seed=9, temperature=0.5, cache_entries=99, max_new_tokens=3))
    assert (job.options.seed, job.plan_seed, job.options.temperature) == (9, 5, 0.5)
    assert (job.options.cache_entries, job.options.max_new_tokens, job.options.query) == (8, 3, None)
    orchestrator.queue.send(StageMessage.of(job))
    orchestrator.finish(job)
    assert {call.seed for name, call in worker.calls if name == "Decode"} == {5, 9}
    assert {call.plan.seed for name, call in worker.calls if name == "Decode"} == {5}


def test_tenants_do_not_see_each_other(
    service: Service, settings: Settings, orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    job = orchestrator.finish(orchestrator.submit())
    with Service(settings.model_copy(update={"tenant": "other"})) as other:
        assert other.jobs() == []
        assert other.states() == []
        with pytest.raises(UnknownJob):
            other.result(job.id)
        with pytest.raises(ObjectMissing):
            other.show_state(job.state)
        twin = other.submit(Document("a.txt", DOCUMENT), options())
    worker.calls.clear()
    orchestrator.queue.send(StageMessage.of(twin))
    orchestrator.finish(twin)
    assert "Prefill 0" in worker.methods(), "the other tenant's state is no shortcut"


def test_states(service: Service, orchestrator: Orchestrator, worker: ScriptedWorker, tmp_path: Path) -> None:
    first = orchestrator.finish(orchestrator.submit("a" * 40))
    second = orchestrator.finish(orchestrator.submit("b" * 40))
    states = service.states()
    assert [state.name for state in states] == [second.state, first.state]
    state = states[1]
    assert (state.tokens_seen, state.cache_entries, state.model, state.kept) == (40, 8, "tiny", True)
    assert 0 < state.expires_in <= 7 * 24 * 3600
    assert state.size == orchestrator.store.manifest("state", first.state).size
    json.dumps(state.meta)
    assert state.meta["error_estimate"] == 0.25
    assert service.show_state(first.state[:12]).name == first.state
    with pytest.raises(ObjectMissing):
        service.show_state("")

    file = tmp_path / "state"
    assert service.export_state(first.state[:12], file) == file.stat().st_size
    service.delete_state(first.state[:12])
    with pytest.raises(ObjectMissing):
        service.show_state(first.state)
    imported = service.import_state(file)
    assert (imported.name, imported.kept, imported.tokens_seen) == (first.state, True, 40)
    file.write_bytes(file.read_bytes()[:-1])
    service.delete_state(first.state)
    with pytest.raises(TransferError):
        service.import_state(file)
    assert [one.name for one in service.states()] == [second.state]
    assert service.delete_all() > 1
    assert service.states() == []


def test_ambiguous_beginning_is_refused(
    service: Service, orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    """Of seventeen names two begin with the same digit."""
    for number in range(17):
        orchestrator.finish(orchestrator.submit(f"document {number}"))
    beginnings = [state.name[0] for state in service.states()]
    shared = next(digit for digit in beginnings if beginnings.count(digit) > 1)
    with pytest.raises(OptionError, match=f"states begin with '{shared}': give more of the name"):
        service.show_state(shared)


def test_workers(service: Service, worker: ScriptedWorker) -> None:
    assert [record.id for record in service.workers()] == [worker.id]


def test_unreachable_redis(settings: Settings) -> None:
    away = settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"})
    with Service(away) as service:
        for call in (service.ping, service.jobs, service.workers):
            with pytest.raises(JobStoreUnavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
                call()


def test_unreachable_cache_store(settings: Settings) -> None:
    away = settings.model_copy(update={"cache_url": "redis://127.0.0.1:1/0"})
    with Service(away) as service:
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
            service.ping()
        with pytest.raises(StoreUnavailable):
            service.submit(Document("a", "text"), options())
        assert service.jobs() == []
