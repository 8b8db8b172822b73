"""The process of a kernel worker: from its settings to its exit code."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from pydantic import ValidationError

from cache_store.connection import connect, redis_errors
from cache_store.errors import StoreError
from cache_store.exposition import MetricsAddressUnusable
from cache_store.log_format import configure
from cache_store.settings import StoreSettings
from cache_store.tracing import TracesNotInstalled, set_up
from kernel_worker.errors import KernelWorkerError
from kernel_worker.settings import WorkerSettings
from kernel_worker.signals import StopSignals

if TYPE_CHECKING:
    import redis

    from kernel_worker.worker import Worker

log = logging.getLogger(__name__)

DRAINED, CUT_OFF, NOT_STARTED, INTERRUPTED = 0, 1, 2, 130
BROKER_SECONDS = 5.0
POLL_SECONDS = 0.1


def main(settings: WorkerSettings | None = None) -> int:
    """Serves until SIGTERM or SIGINT, then drains. Main thread only.

    Returns 0 when everything that ran was finished, 1 when a second signal or `drain_seconds` cut it off
    (threads may still compute then: leave with os._exit), 2 when the worker could not start, for which one
    sentence stands on standard error, 130 when Ctrl-C came before it had started.
    """
    try:
        settings = WorkerSettings() if settings is None else settings
        store_settings = StoreSettings()
    except ValidationError as error:
        return _refuse(_settings_problem(error))
    configure(settings.log_level, settings.log_format)
    try:
        set_up("docexpress-worker", settings.traces)
        # First of all: it takes a moment, and loading a model takes many.
        broker = _reached(store_settings.redis_url, timeout_seconds=BROKER_SECONDS)
        cache = _reached(store_settings.cache_url)
        return _serve(settings, store_settings, cache, broker)
    except (StoreError, KernelWorkerError, MetricsAddressUnusable, TracesNotInstalled) as error:
        return _refuse(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED


def _serve(
    settings: WorkerSettings, store_settings: StoreSettings, cache: redis.Redis, broker: redis.Redis
) -> int:
    # Imported here, because torch and transformers take seconds that a wrong setting need not wait for.
    from kernel_worker.loading import load
    from kernel_worker.worker import Worker

    loaded = load(settings)
    worker = Worker(settings, store_settings, loaded, cache=cache, broker=broker)
    with StopSignals() as signals, own_compile_cache() if loaded.device.type == "cuda" else nullcontext():
        worker.start()
        print(
            f"docexpress worker {worker.desk.worker_id} serves {loaded.name} on {loaded.device}"
            f" at {worker.address}",
            flush=True,
        )
        signals.wait()
        return drain(worker, signals, settings.drain_seconds)


def drain(worker: Worker, signals: StopSignals, seconds: float) -> int:
    """Takes no new work, waits until what runs is finished, and stops the worker: DRAINED.

    After another signal, or `seconds`, it only withdraws the worker: CUT_OFF.
    """
    log.info("Draining: running work is finished, new work is turned away.")
    worker.drain()
    deadline = time.monotonic() + seconds
    while not worker.idle:
        if signals.wait(POLL_SECONDS) or time.monotonic() > deadline:
            log.warning("Not everything was finished; what is missing will be done by another worker.")
            worker.withdraw()
            return CUT_OFF
    worker.stop()
    return DRAINED


def _reached(url: str, *, timeout_seconds: float = 30.0) -> redis.Redis:
    """A connected client. Raises StoreUnavailable."""
    client = connect(url, timeout_seconds=timeout_seconds)
    with redis_errors(client):
        client.ping()
    return client


@contextmanager
def own_compile_cache() -> Iterator[None]:
    """A Triton compile cache for this process alone: one that is shared has been seen to break."""
    parent = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory(
        prefix="docexpress-triton-", dir=parent, ignore_cleanup_errors=True
    ) as own:
        os.environ["TRITON_CACHE_DIR"] = own
        try:
            yield
        finally:
            if parent is None:
                del os.environ["TRITON_CACHE_DIR"]
            else:
                os.environ["TRITON_CACHE_DIR"] = parent


def _settings_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    message = problem["msg"].removeprefix("Value error, ")
    name = "_".join(str(step) for step in problem["loc"]).upper()
    return f"DOCEXPRESS_{name}: {message}." if name else f"{message}."


def _refuse(sentence: str) -> int:
    print(sentence, file=sys.stderr, flush=True)
    return NOT_STARTED
