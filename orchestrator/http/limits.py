"""Limits the size of a request while it arrives: what is too large is never held, in memory or on disk."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.http.errors import Problem
from orchestrator.http.settings import ApiSettings

STATE_IMPORT = "/v1/states/import"
_AROUND = 1024**2  # for the form or JSON around a document


class BodyLimit:
    """Refuses by the announced length before anything is read, and else when the limit is passed."""

    def __init__(self, app: ASGIApp, *, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope["path"])
        announced = Headers(scope=scope).get("content-length", "0")
        if not announced.isdigit() or int(announced) > limit:
            await _too_large(limit).response()(scope, receive, send)
            return
        arrived = 0

        async def counted() -> Message:
            nonlocal arrived
            message = await receive()
            arrived += len(message.get("body", b""))
            if arrived > limit:
                raise _too_large(limit)
            return message

        await self._app(scope, counted, send)

    def _limit(self, path: str) -> int:
        own = self._settings
        return (own.state_bytes_limit if path == STATE_IMPORT else own.document_bytes_limit) + _AROUND


def _too_large(limit: int) -> Problem:
    return Problem(
        413, f"The request has more than {limit:,} bytes, the most that is read.", code="too_large"
    )
