"""The facade: everything a command line or an HTTP server asks of docexpress."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cache_store.connection import connect, redis_errors
from cache_store.keys import check_tenant
from cache_store.store import CacheStore, Usage
from cache_store.worker_registry import WorkerRecord
from orchestrator import event_stream, liveness, submission
from orchestrator.connection import job_store_errors
from orchestrator.documents import Document
from orchestrator.events import Event
from orchestrator.evidence import passage_texts
from orchestrator.job_store import JobStore
from orchestrator.jobs import Job, JobOptions, JobResult
from orchestrator.messages import StageMessage
from orchestrator.pool import Pool
from orchestrator.settings import Settings
from orchestrator.state_view import StateInfo, StateView
from orchestrator.stores import Stores

if TYPE_CHECKING:
    from orchestrator.state_evidence import Evidence, EvidenceFinder
    from orchestrator.tasks import CelerySender

__all__ = ["Service", "StateInfo"]


class Service:
    """Every call raises OrchestratorError or cache_store.errors.StoreError, whose text is one sentence.

    Nothing is connected until the first call. Calls may come from several threads. All of it concerns one
    tenant, that of the settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tenant = settings.tenant
        self._client = connect(settings.redis_url)
        self._stores = Stores(settings)
        self._jobs = JobStore(self._client, settings)
        self._pool = Pool(self._client, settings)

    def ping(self) -> None:
        """Raises JobStoreUnavailable or StoreUnavailable when one of the two stores cannot be reached."""
        with job_store_errors(self._client):
            self._client.ping()
        with redis_errors(self._store.client):
            self._store.client.ping()

    def submit(self, document: Document, options: JobOptions) -> Job:
        """Stores the document and starts a job. Nothing is left behind when it raises.

        Raises DocumentError (blank), and BudgetExceeded before anything is written when the tenant's byte
        budget has no room for the document.
        """
        return self._start(submission.submit(self._jobs, self._store, document, options))

    def submit_stored(self, document: str, options: JobOptions) -> Job:
        """Starts a job on a stored document, named by `Job.document`. Raises ObjectMissing, OptionError."""
        return self._start(submission.submit_stored(self._jobs, self._store, document, options))

    def complete(self, document: Document, instruction: str, options: JobOptions) -> Job:
        """Stores the document and starts a job that does what the instruction says. Raises as `submit`.

        The seed is the text's alone: the same document finds the same state whatever the seed.
        """
        return self._start(submission.submit(self._jobs, self._store, document, options, instruction))

    def ask(self, job_id: str, question: str, options: JobOptions | None = None) -> Job:
        """Starts a job that answers a question about the document of a finished job, from passages that are
        read again or from the state.

        Of `options` only those that shape the text count (max_new_tokens, seed, temperature, top_p,
        repetition_penalty, reread); the others are those of the job that is asked. Raises UnknownJob,
        NotFinished, JobFailed, JobCancelled, OptionError (blank question).
        """
        return self._start(submission.ask(self._jobs, self.job(job_id), question, options))

    def job(self, job_id: str) -> Job:
        """Raises UnknownJob."""
        return self._jobs.load(self._tenant, job_id)

    def jobs(self) -> list[Job]:
        """All jobs of the tenant, the newest first."""
        return self._jobs.all(self._tenant)

    def unfinished(self) -> tuple[int, int]:
        """How many jobs have not ended yet: of this tenant, and of all."""
        return self._jobs.unfinished(self._tenant)

    def cancel(self, job_id: str) -> Job:
        """Cancels and returns the job; a finished job stays as it is. Raises UnknownJob."""
        self._jobs.cancel(self._tenant, job_id)
        return self.job(job_id)

    def events(self, job_id: str, after: str = "0-0") -> Iterator[Event]:
        """The job's events after an event id, as they come; ends after the terminal one. Raises UnknownJob,
        OptionError (`after` is not an event's id).

        Token events come without a gap however late one begins to watch.
        """
        return event_stream.follow(self._jobs, self._tenant, job_id, after)

    def events_and_pauses(self, job_id: str, after: str = "0-0") -> Iterator[Event | None]:
        """The same, and None about once a second while there is no event: so a watcher can look up."""
        return event_stream.watch(self._jobs, self._tenant, job_id, after)

    def text(self, job_id: str) -> str:
        """What has been written so far. Raises UnknownJob."""
        self.job(job_id)
        return "".join(self._jobs.token_texts(self._tenant, job_id))

    def result(self, job_id: str) -> JobResult:
        """Raises UnknownJob, NotFinished, JobFailed, JobCancelled."""
        job = self.job(job_id)
        submission.require_result(job)
        return JobResult.from_json(job.result or {})

    def reread_texts(self, job_id: str) -> list[str]:
        """The text of each of the result's `reread_segments`. Raises as `result`, and ObjectMissing when the
        document is no longer stored."""
        passages = self.result(job_id).reread_segments
        return passage_texts(self._store, self.job(job_id).document, passages) if passages else []

    def evidence(self, job_id: str, bins: int = 1024) -> Evidence:
        """What of its document the state of a finished job holds, in at most `bins` equal parts of the
        document; a worker with the job's model finds out.

        Raises UnknownJob, NotFinished, JobFailed, JobCancelled, WorkerUnavailable; ObjectMissing where the
        state or the document is stored no longer.
        """
        job = self.job(job_id)
        submission.require_result(job)
        return self._evidence.find(job, bins)

    def document_text(self, job_id: str, start: int, end: int) -> str:
        """Characters [start, end) of the text of a job's document, or as many of them as there are.

        Raises UnknownJob, ObjectMissing.
        """
        (text,) = passage_texts(self._store, self.job(job_id).document, [{"start": start, "end": end}])
        return text

    def remove(self, job_id: str) -> None:
        """Cancels the job and deletes its record, events and text, for good. Its document and its state,
        which other jobs may share, stay until they expire. Raises UnknownJob."""
        self._jobs.cancel(self._tenant, job_id)
        self._jobs.remove(self._tenant, job_id)

    def states(self) -> list[StateInfo]:
        """The tenant's stored states, the newest first."""
        return self._view().all()

    def show_state(self, name: str) -> StateInfo:
        """`name` may be an unambiguous beginning. Raises ObjectMissing, OptionError (ambiguous)."""
        return self._view().one(name)

    def export_state(self, name: str, path: Path) -> int:
        """Writes one state to one file, whole or not at all; returns its bytes. Raises ObjectMissing,
        TransferError."""
        return self._view().export(name, path)

    def import_state(self, path: Path) -> StateInfo:
        """Stores a state from a file; a damaged or foreign file is refused (TransferError, FormatMismatch)
        and nothing is stored."""
        return self._view().import_(path)

    def delete_state(self, name: str) -> None:
        """`name` may be an unambiguous beginning. Raises ObjectMissing, OptionError (ambiguous)."""
        self._view().delete(name)

    def delete_all(self) -> int:
        """Deletes every stored object of the tenant (documents and tokens too); returns how many."""
        return self._store.delete_all()

    def usage(self) -> Usage:
        """What the tenant stores, and how much it may."""
        return self._store.usage()

    def set_budget(self, count: int | None) -> None:
        """Gives the tenant a byte budget of its own, which all workers heed at once; None: the settings'."""
        self._store.set_budget(count)

    def workers(self) -> list[WorkerRecord]:
        """The kernel workers that are registered now."""
        return [member.record for member in self._pool.members()]

    def orchestrators(self) -> list[str]:
        """The processes ("host:pid") that take jobs from the queues now."""
        return liveness.processes(self._client)

    def of_tenant(self, tenant: str) -> Service:
        """The same service as another tenant sees it, over the same connections: close the original alone.

        Raises ValueError for a name that is none.
        """
        _ = self._sender, self._evidence  # so that they are shared, too
        view = copy.copy(self)
        view._tenant = check_tenant(tenant)
        return view

    def close(self) -> None:
        """Gives the connections back."""
        if "_sender" in self.__dict__:
            self._sender.close()
        if "_evidence" in self.__dict__:
            self._evidence.close()
        self._client.close()
        self._stores.close()

    def _start(self, job: Job) -> Job:
        self._sender.send(StageMessage.of(job))
        return job

    def _view(self) -> StateView:
        names = {worker.model_fingerprint: worker.model_name for worker in self.workers()}
        return StateView(self._store, names)

    @property
    def _store(self) -> CacheStore:
        return self._stores.of(self._tenant)

    @cached_property
    def _sender(self) -> CelerySender:
        # Celery is slow to import, and most calls do not need it.
        from orchestrator.celery_app import make_app
        from orchestrator.tasks import CelerySender

        return CelerySender(make_app(self._settings))

    @cached_property
    def _evidence(self) -> EvidenceFinder:
        # gRPC, too: nothing else here talks to workers.
        from orchestrator.state_evidence import EvidenceFinder

        return EvidenceFinder(self._pool, self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
