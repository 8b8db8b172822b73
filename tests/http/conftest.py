"""One stack for all tests of the API; each test has documents of its own."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from orchestrator.http.settings import ApiSettings
from tests.cluster import Cluster
from tests.http.spans import Spans
from tests.http.stack import serving, tiny_worker


@pytest.fixture(scope="session")
def spans() -> Iterator[Spans]:
    """The spans of the whole stack: of the server and the worker here, and of the orchestrator.

    For the session: OpenTelemetry keeps the first provider, and a process may run these tests in parts.
    """
    with Spans() as collected:
        yield collected


@pytest.fixture(scope="package")
def settings(
    valkey_url: str, spans: Spans, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiSettings]:
    """The settings of a stack that is up."""
    with Cluster(valkey_url, tmp_path_factory.mktemp("stack")) as cluster:
        cluster.client.flushall()
        settings = ApiSettings(redis_url=valkey_url, comment_seconds=0.5, traces=True)
        with tiny_worker(settings) as worker:
            cluster.orchestrator(**spans.environment)
            cluster.ready(worker.desk.worker_id)
            yield settings


@pytest.fixture(scope="package")
def url(settings: ApiSettings) -> Iterator[str]:
    """A server on loopback."""
    with serving(settings) as served:
        yield served


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client
