"""A span around each request under /v1, below the one that the client names: what it is about, no more."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from cache_store.tracing import TRACEPARENT, span
from orchestrator.http.guard import GUARDED


class Traces:
    """Pure ASGI, so that streams pass as they come."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(GUARDED):
            await self._app(scope, receive, send)
            return
        parent = {TRACEPARENT: Headers(scope=scope).get(TRACEPARENT, "")}
        with span(f"{scope['method']} {'/'.join(scope['path'].split('/')[:3])}", "SERVER", parent):
            await self._app(scope, receive, send)
