"""Fixtures of the orchestrator's tests: short times, an orchestrator driven by the test, scripted workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from orchestrator.settings import Settings
from tests.orchestrator.harness import Orchestrator, until
from tests.orchestrator.scripted_worker import ScriptedWorker

MakeWorker = Callable[..., ScriptedWorker]


@pytest.fixture
def settings(valkey_url: str, redis_client: redis.Redis) -> Settings:
    """Settings whose times are short."""
    return Settings(
        redis_url=valkey_url,
        claim_ttl=0.6,
        claim_beat=0.1,
        reservation_ttl=1.5,
        reaper_interval=0.05,
        lost_message_seconds=0.3,
        retry_backoff=0.05,
        busy_pause=0.05,
        worker_wait_seconds=1.0,
    )


@pytest.fixture
def orchestrator(settings: Settings) -> Iterator[Orchestrator]:
    made = Orchestrator(settings)
    yield made
    made.close()


@pytest.fixture
def make_worker(settings: Settings, orchestrator: Orchestrator) -> Iterator[MakeWorker]:
    """Starts a scripted worker and waits until it is registered."""
    with ExitStack() as stack:

        def make(**arguments: Any) -> ScriptedWorker:
            worker = stack.enter_context(ScriptedWorker(settings, **arguments))
            until(lambda: orchestrator.pool.find(worker.id), "the worker is registered")
            return worker

        yield make


@pytest.fixture
def worker(make_worker: MakeWorker) -> ScriptedWorker:
    return make_worker()
