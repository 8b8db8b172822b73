"""Who may ask: an API key names the tenant; without one only programs on this machine are served.

Pure ASGI, so that nobody's body is read before it is known whether they may send one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.api_keys import KEY_PREFIX
from orchestrator.errors import OrchestratorError
from orchestrator.http.context import Api, Caller
from orchestrator.http.errors import Problem, problem_of

GUARDED = "/v1/"


def is_loopback(host: str) -> bool:
    """Whether a host, as one binds to it or as a Host header names it, is this machine alone."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Puts a Caller into the state of every request under /v1, or answers it."""

    def __init__(self, app: ASGIApp, *, keys_required: bool) -> None:
        self._app = app
        self._keys_required = keys_required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(GUARDED):
            await self._app(scope, receive, send)
            return
        api: Api = scope["app"].state.api
        try:
            caller = await anyio.to_thread.run_sync(self._caller, api, Headers(scope=scope))
        except (Problem, OrchestratorError) as error:
            await problem_of(error).response()(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)

    def _caller(self, api: Api, headers: Mapping[str, str]) -> Caller:
        """Raises Problem 401, 403, 429; JobStoreUnavailable."""
        scheme, _, secret = headers.get("authorization", "").partition(" ")
        given = secret.strip() if scheme.lower() == "bearer" else ""
        # Clients of OpenAI's API always send a key; one that cannot be ours means nothing on loopback.
        if not self._keys_required and not given.startswith(KEY_PREFIX):
            _check_local(headers, api.settings.cors_origins)
            return Caller(api.settings.tenant)
        if not given:
            raise Problem(401, "Send an API key: Authorization: Bearer KEY.", code="no_api_key")
        if (key := api.keys.find(given)) is None:
            raise Problem(401, "The API key is not a valid one.", code="invalid_api_key")
        if wait := api.keys.wait(key):
            limit = f"{key.requests_per_minute} requests a minute"
            raise Problem(429, f"The API key allows {limit}.", code="rate_limit_exceeded", retry_after=wait)
        return Caller(key.tenant, key.id)


def _check_local(headers: Mapping[str, str], allowed: tuple[str, ...]) -> None:
    """Refuses what a web page of somebody else makes a browser on this machine send to us.

    A page's own name that resolves to a loopback address shows in Host, another page's in Origin.
    """
    host = headers.get("host", "")
    if not is_loopback(urlsplit(f"//{host}").hostname or ""):
        raise Problem(403, "Without an API key this server answers to loopback names alone.", code="bad_host")
    origin = headers.get("origin")
    if origin is not None and origin not in allowed and urlsplit(origin).netloc != host:
        raise Problem(403, "Requests of other web pages are refused.", code="bad_origin")
