"""The facade: everything a command line or an HTTP server asks of docexpress."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cache_store.worker_registry import WorkerRecord
from orchestrator.documents import Document
from orchestrator.events import Event
from orchestrator.jobs import Job, JobOptions, JobResult
from orchestrator.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True)
class StateInfo:
    """A stored state as its manifest tells it. `meta` holds the rest of the manifest, JSON values."""

    name: str
    size: int
    created: float
    expires_in: float
    kept: bool
    tokens_seen: int
    cache_entries: int
    model: str
    meta: dict[str, Any]


class Service:
    """Every call raises OrchestratorError or cache_store.errors.StoreError, whose text is one sentence.

    Nothing is connected until the first call. Calls may come from several threads.
    """

    def __init__(self, settings: Settings) -> None:
        raise NotImplementedError

    def ping(self) -> None:
        """Raises JobStoreUnavailable or StoreUnavailable when one of the two stores cannot be reached."""
        raise NotImplementedError

    def submit(self, document: Document, options: JobOptions) -> Job:
        """Stores the document and starts a job. Nothing is left behind when it raises.

        Raises BudgetExceeded before anything is written when the tenant's byte budget has no room.
        """
        raise NotImplementedError

    def ask(self, job_id: str, question: str, options: JobOptions | None = None) -> Job:
        """Starts a job that answers a question from the state of a finished job.

        Of `options` only those that shape the text count (max_new_tokens, seed, temperature, top_p,
        repetition_penalty); the others are those of the job that is asked. Raises UnknownJob, NotFinished,
        JobFailed, JobCancelled, OptionError (blank question).
        """
        raise NotImplementedError

    def job(self, job_id: str) -> Job:
        """Raises UnknownJob."""
        raise NotImplementedError

    def jobs(self) -> list[Job]:
        """All jobs of the tenant, the newest first."""
        raise NotImplementedError

    def cancel(self, job_id: str) -> Job:
        """Cancels and returns the job; a finished job stays as it is. Raises UnknownJob."""
        raise NotImplementedError

    def events(self, job_id: str, after: str = "0-0") -> Iterator[Event]:
        """The job's events after an event id, as they come; ends after the terminal one. Raises UnknownJob.

        Token events come without a gap however late one begins to watch.
        """
        raise NotImplementedError

    def text(self, job_id: str) -> str:
        """What has been written so far. Raises UnknownJob."""
        raise NotImplementedError

    def result(self, job_id: str) -> JobResult:
        """Raises UnknownJob, NotFinished, JobFailed, JobCancelled."""
        raise NotImplementedError

    def states(self) -> list[StateInfo]:
        """The tenant's stored states, the newest first."""
        raise NotImplementedError

    def show_state(self, name: str) -> StateInfo:
        """`name` may be an unambiguous beginning. Raises ObjectMissing."""
        raise NotImplementedError

    def export_state(self, name: str, path: Path) -> int:
        """Writes one state to one file, whole or not at all; returns its bytes. Raises ObjectMissing."""
        raise NotImplementedError

    def import_state(self, path: Path) -> StateInfo:
        """Stores a state from a file; a damaged or foreign file is refused and nothing is stored."""
        raise NotImplementedError

    def delete_state(self, name: str) -> None:
        """Raises ObjectMissing."""
        raise NotImplementedError

    def delete_all(self) -> int:
        """Deletes every stored object of the tenant (documents and tokens too); returns how many."""
        raise NotImplementedError

    def workers(self) -> list[WorkerRecord]:
        """The kernel workers that are registered now."""
        raise NotImplementedError

    def close(self) -> None:
        """Gives the connections back."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
