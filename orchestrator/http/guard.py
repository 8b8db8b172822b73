"""Who may ask: an API key names the tenant; without one only programs on this machine are served.

Metrics are sums over all tenants. They have a token of their own: a tenant's key does not open them, because
how often the others find a stored state is none of its business.

Pure ASGI, so that nobody's body is read before it is known whether they may send one.
"""

from __future__ import annotations

import hmac
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
METRICS = "/metrics"


def is_loopback(host: str) -> bool:
    """Whether a host, as one binds to it or as a Host header names it, is this machine alone."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Puts a Caller into the state of every request under /v1 and of /metrics, or answers it."""

    def __init__(self, app: ASGIApp, *, keys_required: bool) -> None:
        self._app = app
        self._keys_required = keys_required

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if not path.startswith(GUARDED) and path != METRICS:
            await self._app(scope, receive, send)
            return
        api: Api = scope["app"].state.api
        check = self._scraper if path == METRICS else self._caller
        try:
            caller = await anyio.to_thread.run_sync(check, api, Headers(scope=scope))
        except (Problem, OrchestratorError) as error:
            await problem_of(error).response()(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        await self._app(scope, receive, send)

    def _caller(self, api: Api, headers: Mapping[str, str]) -> Caller:
        """Raises Problem 401, 403, 429; JobStoreUnavailable."""
        given = _bearer(headers)
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

    def _scraper(self, api: Api, headers: Mapping[str, str]) -> Caller:
        """Raises Problem 401, 403."""
        token = api.settings.metrics_token
        if token is not None:
            if not hmac.compare_digest(_bearer(headers).encode(), token.get_secret_value().encode()):
                raise Problem(401, "Send the token for metrics as a bearer token.", code="no_metrics_token")
        elif self._keys_required:
            message = (
                "Metrics are not served here: set DOCEXPRESS_METRICS_TOKEN, and send it as a bearer token."
            )
            raise Problem(403, message, code="metrics_closed")
        else:
            _check_local(headers, api.settings.cors_origins)
        return Caller(api.settings.tenant)


def _bearer(headers: Mapping[str, str]) -> str:
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


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
