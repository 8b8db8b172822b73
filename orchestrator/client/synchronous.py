"""The client for programs without asyncio."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from orchestrator.client import calls
from orchestrator.client.calls import Call
from orchestrator.client.errors import Unreachable, error_of
from orchestrator.client.files import chunks, replacing
from orchestrator.client.watching import Watching, result_of
from orchestrator.events import Event
from orchestrator.jobs import JobOptions, JobResult
from orchestrator.wire import EvidenceInfo, JobInfo, StateInfo, TextInfo, WorkerInfo

T = TypeVar("T")


class Client:
    """Every call raises ApiError or Unreachable. Safe to share between threads.

    Without `options` the server's defaults hold. `timeout` in seconds, for one answer; waiting for a job has
    none.
    """

    def __init__(
        self,
        url: str = calls.DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = calls.TIMEOUT_SECONDS,
    ) -> None:
        self._http = httpx.Client(base_url=url, headers=calls.headers(api_key), timeout=timeout)

    def submit_file(self, path: Path | str, options: JobOptions | None = None) -> JobInfo:
        """Starts a job on a file. Raises OSError when it cannot be read."""
        file = Path(path)
        return self._run(calls.submit_file(file.read_bytes(), file.name, options))

    def submit_text(
        self, text: str, options: JobOptions | None = None, *, title: str | None = None
    ) -> JobInfo:
        return self._run(calls.submit_text(text, title, options))

    def submit_stored(self, document: str, options: JobOptions | None = None) -> JobInfo:
        """Starts a job on the document of an earlier one, `JobInfo.document`."""
        return self._run(calls.submit_stored(document, options))

    def ask(self, job_id: str, question: str, options: JobOptions | None = None) -> JobInfo:
        """Starts a job that answers a question about the document of a finished one, from passages or its
        state; of `options` only those that shape the text count."""
        return self._run(calls.ask(job_id, question, options))

    def jobs(self, limit: int = 100) -> list[JobInfo]:
        """The newest first."""
        return self._run(calls.jobs(limit))

    def job(self, job_id: str) -> JobInfo:
        return self._run(calls.job(job_id))

    def cancel(self, job_id: str) -> JobInfo:
        """A job that has ended stays as it is."""
        return self._run(calls.cancel(job_id))

    def remove(self, job_id: str) -> None:
        """Cancels the job and deletes it with its text for good; its document and state stay until they
        expire."""
        self._run(calls.remove(job_id))

    def evidence(self, job_id: str, bins: int = 1024) -> EvidenceInfo:
        """What of its document the state of a finished job holds, in at most so many equal parts."""
        return self._run(calls.evidence(job_id, bins))

    def document_text(self, job_id: str, start: int = 0, count: int = calls.DOCUMENT_CHARACTERS) -> TextInfo:
        """`count` characters of the document's text from `start` on, or as many as there are. Where a
        passage of `JobResult.reread_segments` stands: from its start, end - start of them."""
        return self._run(calls.document_text(job_id, start, count))

    def events(self, job_id: str, after: str = "0-0") -> Iterator[Event]:
        """The job's events as they come, until the terminal one; over lost connections, too."""
        watching = Watching(after)
        while not watching.ended:
            problem: Exception | None = None
            try:
                yield from self._events(job_id, watching)
            except httpx.HTTPError as error:
                problem = error
            if not watching.ended:
                time.sleep(watching.broken(problem))

    def wait(self, job_id: str) -> JobResult:
        """The result, when the job has ended. Raises JobFailed, JobCancelled."""
        last = None
        for event in self.events(job_id):
            last = event
        return result_of(job_id, last)

    def states(self) -> list[StateInfo]:
        """The newest first."""
        return self._run(calls.states())

    def state(self, name: str) -> StateInfo:
        """`name` may be an unambiguous beginning; here and below."""
        return self._run(calls.state(name))

    def export_state(self, name: str, path: Path | str) -> int:
        """Writes a state to a file, whole or not at all; its bytes. Raises OSError."""
        with (
            replacing(Path(path)) as file,
            _reachable(),
            self._http.stream("GET", f"/v1/states/{name}/export") as answer,
        ):
            _refused(answer)
            for chunk in answer.iter_bytes():
                file.write(chunk)
            return file.tell()

    def import_state(self, path: Path | str) -> StateInfo:
        """Raises OSError when the file cannot be read."""
        with Path(path).open("rb") as file:
            return self._run(calls.import_state(chunks(file)))

    def delete_state(self, name: str) -> None:
        self._run(calls.delete_state(name))

    def workers(self) -> list[WorkerInfo]:
        return self._run(calls.workers())

    def ready(self) -> None:
        """Raises Busy while a job that is sent now would not be worked on, and says why."""
        self._run(calls.ready())

    def close(self) -> None:
        self._http.close()

    def _run(self, call: Call[T]) -> T:
        arguments: dict[str, Any] = dict(call.arguments)
        with _reachable():
            answer = self._http.request(call.method, call.path, **arguments)
        if answer.is_error:
            raise error_of(answer)
        return call.read(answer.content)

    def _events(self, job_id: str, watching: Watching) -> Iterator[Event]:
        """The new events of one connection. Raises httpx.HTTPError."""
        path, patience = f"/v1/jobs/{job_id}/events", calls.STREAM_TIMEOUT_SECONDS
        with self._http.stream("GET", path, headers=watching.headers, timeout=patience) as answer:
            _refused(answer)
            for line in answer.iter_lines():
                event = watching.line(line)
                if event is not None:
                    yield event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _reachable() -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise Unreachable(f"the server does not answer: {error or type(error).__name__}") from error


def _refused(answer: httpx.Response) -> None:
    """Raises ApiError if the answer is one."""
    if answer.is_error:
        answer.read()
        raise error_of(answer)
