"""The ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio
from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from cache_store.connection import connect
from orchestrator.api_keys import ApiKeys
from orchestrator.http import errors
from orchestrator.http.context import Api
from orchestrator.http.guard import Guard
from orchestrator.http.headers import SecurityHeaders
from orchestrator.http.limits import BodyLimit
from orchestrator.http.openai import routes as openai
from orchestrator.http.routes import health, jobs, metrics, page, states, workers
from orchestrator.http.settings import ApiSettings
from orchestrator.http.traces import Traces
from orchestrator.service import Service
from orchestrator.telemetry.exporter import Exporter


def create_app(settings: ApiSettings, *, keys_required: bool = True) -> FastAPI:
    """An application over the stack that the settings name; it connects when it starts.

    Without `keys_required` requests from this machine need no key: bind it to loopback alone.
    """
    app = FastAPI(
        title="docexpress",
        summary="Reads a long document once, keeps a small state of it, writes summaries and answers.",
        docs_url=None,  # these pages load their programs from elsewhere
        redoc_url=None,
        # Its own telemetry repeats what a request held where something is wrong with it; ours does not.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        lifespan=_lifespan(settings),
    )
    errors.install(app)
    for router in (jobs.router, states.router, workers.router, health.router, metrics.router, openai.router):
        app.include_router(router)
    page.install(app)
    # The last one added is the first to see a request.
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(Guard, keys_required=keys_required or settings.require_keys)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(SecurityHeaders)
    if settings.traces:
        app.add_middleware(Traces)
    return app


def _lifespan(settings: ApiSettings) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        client = connect(settings.redis_url)
        service, exporter = Service(settings), Exporter(settings)
        try:
            await run_sync(service.of_tenant, settings.tenant)  # imports Celery, before the first request
            app.state.api = Api(
                settings,
                service,
                ApiKeys(client),
                exporter,
                threads=anyio.CapacityLimiter(settings.streams_limit),
                readers=anyio.CapacityLimiter(settings.readers_limit),
            )
            yield
        finally:
            await run_sync(service.close)
            exporter.close()
            client.close()

    return lifespan
