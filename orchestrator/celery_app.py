"""The Celery application and the process `docexpress orchestrate`."""

from __future__ import annotations

import logging
import os
import ssl
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from celery import Celery, signals
from kombu import Exchange, Queue

from cache_store.exposition import exposed
from cache_store.log_format import configure
from cache_store.tracing import set_up
from orchestrator.errors import OptionError
from orchestrator.job_keys import CELERY_PREFIX
from orchestrator.messages import QUEUES
from orchestrator.runtime import Runtime
from orchestrator.settings import Settings
from orchestrator.tasks import register
from orchestrator.telemetry.exporter import Exporter

_log = logging.getLogger(__name__)


def make_app(settings: Settings) -> Celery:
    """The application, connected to nothing yet. It is not made Celery's current one: no hidden global."""
    app = Celery("docexpress", broker=broker_url(settings.redis_url), set_as_current=False)
    app.conf.update(_messages(settings), **_worker())
    if settings.redis_url.startswith("rediss:"):
        app.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    return app


def broker_url(redis_url: str) -> str:
    """The URL as Celery writes it: a socket is `redis+socket://`, its database `virtual_host`."""
    parts = urlsplit(redis_url)
    if parts.scheme != "unix":
        return redis_url
    query = parts.query.replace("db=", "virtual_host=")
    return f"redis+socket://{parts.netloc}{parts.path}" + (f"?{query}" if query else "")


def _messages(settings: Settings) -> dict[str, Any]:
    """How messages travel. The visibility time-out is set in all three places where Celery looks for it; were
    they to differ, a long task would be delivered twice."""
    exchange = Exchange("docexpress", type="direct")
    timeout = {"visibility_timeout": settings.visibility_timeout}
    return {
        "accept_content": ["json"],
        "task_serializer": "json",
        "task_ignore_result": True,
        "task_queues": [Queue(name, exchange, routing_key=name) for name in QUEUES],
        "task_default_queue": QUEUES[0],
        "task_default_exchange": exchange.name,
        "task_default_routing_key": QUEUES[0],
        "task_create_missing_queues": False,
        "visibility_timeout": settings.visibility_timeout,
        "result_backend_transport_options": timeout,
        "broker_transport_options": {
            **timeout,
            "global_keyprefix": CELERY_PREFIX,
            "socket_timeout": 30,
            "socket_connect_timeout": 5,
            "socket_keepalive": True,
            "health_check_interval": 10,
        },
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "task_publish_retry_policy": {"max_retries": 2, "interval_start": 0.1, "interval_step": 0.2},
    }


def _worker() -> dict[str, Any]:
    """How a worker takes messages: late acknowledgement, one at a time for each thread, no remote control."""
    return {
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "worker_prefetch_multiplier": 1,
        "worker_enable_prefetch_count_reduction": False,
        "worker_enable_remote_control": False,
        "worker_redirect_stdouts": False,
    }


def main(settings: Settings, *, concurrency: int | None = None, queues: Sequence[str] = QUEUES) -> int:
    """Runs an orchestrator until SIGTERM or SIGINT (running stages are finished first); the exit code.

    Stages run in threads: they wait on gRPC, and a process with gRPC in it must not fork. Raises OptionError
    for a queue that does not exist, JobStoreUnavailable when Redis cannot be reached at the start,
    MetricsAddressUnusable, TracesNotInstalled.
    """
    unknown = sorted(set(queues) - set(QUEUES))
    if unknown or not queues:
        raise OptionError(
            f"queues are {', '.join(queues) or 'none'}, but must be some of {', '.join(QUEUES)}"
        )
    threads = settings.concurrency if concurrency is None else concurrency
    configure(settings.log_level, settings.log_format)
    signals.setup_logging.connect(_keep_logging)  # else Celery sets up its own
    set_up("docexpress-orchestrator", settings.traces)
    app = make_app(settings)
    with (
        closing(Exporter(settings)) as exporter,
        exposed(exporter.registry, settings.metrics_listen) as port,
        Runtime(settings, app, concurrency=threads, queues=queues, restart=start_again) as runtime,
    ):
        if port is not None:
            _log.info("metrics are served on port %d", port)
        register(app, runtime.run)
        try:
            app.worker_main(_arguments(settings, threads, queues))
        except SystemExit as stopped:
            return stopped.code if isinstance(stopped.code, int) else int(stopped.code is not None)
    return 0


def start_again() -> None:
    """Replaces this process by a fresh one with the same command line.

    For when the Celery consumer is stuck beyond repair. Claims of running stages lapse, and are taken over.
    """
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606


def _keep_logging(**_: Any) -> None:
    """Stands where Celery asks whether somebody else has set up the log."""


def _arguments(settings: Settings, threads: int, queues: Sequence[str]) -> list[str]:
    events = ["--task-events"] if settings.task_events else ["--without-heartbeat"]
    return [
        "--quiet",
        "worker",
        "--pool=threads",
        f"--concurrency={threads}",
        f"--queues={','.join(queues)}",
        f"--hostname=docexpress-{os.getpid()}@%h",
        f"--loglevel={settings.log_level}",
        "--without-gossip",
        "--without-mingle",
        *events,
    ]
