"""Fixtures of the server's tests: a tiny model once, and workers on a real Valkey."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from kernel_worker.model import LoadedModel
from kernel_worker.worker import Worker
from tests.kernel_worker.server.harness import Client, Lab, endless
from tests.kernel_worker.tiny import tiny_loaded


@pytest.fixture(scope="session")
def loaded() -> LoadedModel:
    return endless(tiny_loaded())


@pytest.fixture
def lab(valkey_url: str, redis_client: redis.Redis, loaded: LoadedModel) -> Iterator[Lab]:
    lab = Lab(valkey_url, redis_client, loaded)
    yield lab
    lab.close()


@pytest.fixture
def worker(lab: Lab) -> Worker:
    return lab.worker()


@pytest.fixture
def caller(lab: Lab, worker: Worker) -> Client:
    return lab.caller(worker)
