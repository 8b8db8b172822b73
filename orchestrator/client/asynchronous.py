"""The client for programs with asyncio; the same calls as `Client`, to be awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

import anyio
import httpx
from anyio.to_thread import run_sync

from orchestrator.client import calls
from orchestrator.client.calls import Call
from orchestrator.client.errors import Unreachable, error_of
from orchestrator.client.files import CHUNK_BYTES, replacing
from orchestrator.client.watching import Watching, result_of
from orchestrator.events import Event
from orchestrator.jobs import JobOptions, JobResult
from orchestrator.wire import EvidenceInfo, JobInfo, StateInfo, TextInfo, WorkerInfo

T = TypeVar("T")


class AsyncClient:
    """Every call raises ApiError or Unreachable. See `Client` for what each does."""

    def __init__(
        self,
        url: str = calls.DEFAULT_URL,
        api_key: str | None = None,
        *,
        timeout: float = calls.TIMEOUT_SECONDS,
    ) -> None:
        self._http = httpx.AsyncClient(base_url=url, headers=calls.headers(api_key), timeout=timeout)

    async def submit_file(self, path: Path | str, options: JobOptions | None = None) -> JobInfo:
        file = Path(path)
        data = await run_sync(file.read_bytes)
        return await self._run(calls.submit_file(data, file.name, options))

    async def submit_text(
        self, text: str, options: JobOptions | None = None, *, title: str | None = None
    ) -> JobInfo:
        return await self._run(calls.submit_text(text, title, options))

    async def submit_stored(self, document: str, options: JobOptions | None = None) -> JobInfo:
        return await self._run(calls.submit_stored(document, options))

    async def ask(self, job_id: str, question: str, options: JobOptions | None = None) -> JobInfo:
        return await self._run(calls.ask(job_id, question, options))

    async def jobs(self, limit: int = 100) -> list[JobInfo]:
        return await self._run(calls.jobs(limit))

    async def job(self, job_id: str) -> JobInfo:
        return await self._run(calls.job(job_id))

    async def cancel(self, job_id: str) -> JobInfo:
        return await self._run(calls.cancel(job_id))

    async def remove(self, job_id: str) -> None:
        await self._run(calls.remove(job_id))

    async def evidence(self, job_id: str, bins: int = 1024) -> EvidenceInfo:
        return await self._run(calls.evidence(job_id, bins))

    async def document_text(
        self, job_id: str, start: int = 0, count: int = calls.DOCUMENT_CHARACTERS
    ) -> TextInfo:
        return await self._run(calls.document_text(job_id, start, count))

    async def events(self, job_id: str, after: str = "0-0") -> AsyncIterator[Event]:
        watching = Watching(after)
        while not watching.ended:
            problem: Exception | None = None
            try:
                async for event in self._events(job_id, watching):
                    yield event
            except httpx.HTTPError as error:
                problem = error
            if not watching.ended:
                await anyio.sleep(watching.broken(problem))

    async def wait(self, job_id: str) -> JobResult:
        last = None
        async for event in self.events(job_id):
            last = event
        return result_of(job_id, last)

    async def states(self) -> list[StateInfo]:
        return await self._run(calls.states())

    async def state(self, name: str) -> StateInfo:
        return await self._run(calls.state(name))

    async def export_state(self, name: str, path: Path | str) -> int:
        with replacing(Path(path)) as file:
            try:
                async with self._http.stream("GET", f"/v1/states/{name}/export") as answer:
                    await _refused(answer)
                    async for chunk in answer.aiter_bytes():
                        await run_sync(file.write, chunk)
            except httpx.HTTPError as error:
                raise _unreachable(error) from error
            return file.tell()

    async def import_state(self, path: Path | str) -> StateInfo:
        with Path(path).open("rb") as file:
            return await self._run(calls.import_state(_chunks(file)))

    async def delete_state(self, name: str) -> None:
        await self._run(calls.delete_state(name))

    async def workers(self) -> list[WorkerInfo]:
        return await self._run(calls.workers())

    async def ready(self) -> None:
        await self._run(calls.ready())

    async def close(self) -> None:
        await self._http.aclose()

    async def _run(self, call: Call[T]) -> T:
        arguments: dict[str, Any] = dict(call.arguments)
        try:
            answer = await self._http.request(call.method, call.path, **arguments)
        except httpx.HTTPError as error:
            raise _unreachable(error) from error
        if answer.is_error:
            raise error_of(answer)
        return call.read(answer.content)

    async def _events(self, job_id: str, watching: Watching) -> AsyncIterator[Event]:
        path, patience = f"/v1/jobs/{job_id}/events", calls.STREAM_TIMEOUT_SECONDS
        async with self._http.stream("GET", path, headers=watching.headers, timeout=patience) as answer:
            await _refused(answer)
            async for line in answer.aiter_lines():
                event = watching.line(line)
                if event is not None:
                    yield event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := await run_sync(file.read, CHUNK_BYTES):
        yield chunk


def _unreachable(error: httpx.HTTPError) -> Unreachable:
    return Unreachable(f"the server does not answer: {error or type(error).__name__}")


async def _refused(answer: httpx.Response) -> None:
    if answer.is_error:
        await answer.aread()
        raise error_of(answer)
