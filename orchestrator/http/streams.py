"""Jobs watched from asyncio: Redis is read in threads of their own kind, so that watchers hold up nobody."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final

import anyio
from anyio.to_thread import run_sync
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from cache_store.errors import StoreError
from orchestrator.errors import OrchestratorError
from orchestrator.events import Event
from orchestrator.http.context import Api
from orchestrator.http.errors import problem_of
from orchestrator.service import Service

_END: Final = object()
COMMENT = b": still here\n\n"


class EventStreamResponse(StreamingResponse):
    """Server-sent events. Proxies are asked not to hold them back."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncGenerator[bytes], finish: Callable[[], None] | None = None) -> None:
        """`finish` is called in a thread when the response has ended, in whatever way."""
        super().__init__(content, headers={"X-Accel-Buffering": "no"})
        self._content = content
        self._finish = finish

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Ends the generator with the response, so that it clears up at once when the client has gone."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            with anyio.CancelScope(shield=True):
                await self._content.aclose()
                if self._finish is not None:
                    await run_sync(self._finish)


async def watch(api: Api, service: Service, job_id: str, after: str = "0-0") -> AsyncGenerator[Event | None]:
    """The job's events; None about once a second while there is none. Raises as `Service.events`."""
    events = service.events_and_pauses(job_id, after)
    while True:
        event: Any = await run_sync(next, events, _END, limiter=api.threads)
        if event is _END:
            return
        yield event


async def job_events(api: Api, service: Service, job_id: str, after: str) -> AsyncGenerator[bytes]:
    """The body of an event stream: a comment now and then while nothing happens; what breaks it is told as an
    `error` event, after which a client may come again with the last id it has seen."""
    with api.stream():
        yield COMMENT
        told = time.monotonic()
        try:
            async for event in watch(api, service, job_id, after):
                if event is not None:
                    yield sse(event.data, event=event.kind, event_id=event.id)
                elif time.monotonic() - told < api.settings.comment_seconds:
                    continue
                else:
                    yield COMMENT
                told = time.monotonic()
        except (OrchestratorError, StoreError) as error:
            yield sse(problem_of(error).body(), event="error")


def sse(data: Mapping[str, Any], *, event: str | None = None, event_id: str | None = None) -> bytes:
    """One server-sent event; JSON has no line breaks, so it is one line."""
    lines = [f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}"]
    if event is not None:
        lines.insert(0, f"event: {event}")
    if event_id is not None:
        lines.insert(0, f"id: {event_id}")
    return ("\n".join(lines) + "\n\n").encode()
