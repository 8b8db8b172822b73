"""Promise 1: the same text, whether or not a worker died on the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from orchestrator.jobs import JobResult
from tests.cluster import Cluster, text_of

TEXT = text_of(120)
AFTER_CHECKPOINT = 80  # tokens: the first checkpoint of a decode comes with the 65th


@pytest.fixture(scope="module")
def cluster(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An orchestrator and two workers; a test that kills one starts another."""
    with Cluster(valkey_url, tmp_path_factory.mktemp("cluster")) as made:
        redis.Redis.from_url(valkey_url).flushall()
        made.orchestrator()
        made.worker("first")
        made.worker("second")
        made.ready("first", "second")
        yield made


@pytest.fixture(scope="module")
def whole(cluster: Cluster) -> JobResult:
    """What comes of the job when nobody dies."""
    return cluster.run(TEXT)


@pytest.fixture(scope="module")
def undisturbed(whole: JobResult) -> str:
    """What it writes then."""
    return whole.text


@pytest.fixture(autouse=True)
def nothing_stored(cluster: Cluster, undisturbed: str) -> None:
    """Every test reads the document anew."""
    cluster.service.delete_all()


@pytest.mark.parametrize("stage", ["prefill", "compress", "decode"])
def test_another_worker_goes_on(cluster: Cluster, whole: JobResult, stage: str) -> None:
    job = cluster.submit(TEXT)
    killed = cluster.kill_in(job, stage, after_token=AFTER_CHECKPOINT)
    result = cluster.result(job)
    assert result.text == whole.text
    assert result.error_by_layer == whole.error_by_layer
    assert result.error_estimate
    assert result.state == cluster.service.job(job.id).state
    retried = [event.data["stage"] for event in cluster.events(job) if event.kind == "retry"]
    assert retried == ["prefill" if stage == "compress" else stage]  # the segment's KV died with its worker
    cluster.worker(killed)
    cluster.ready("first", "second")


@pytest.mark.parametrize("stage", ["prefill", "compress", "decode"])
def test_only_worker_dies_and_a_new_one_comes(cluster: Cluster, undisturbed: str, stage: str) -> None:
    cluster.kill("second")
    cluster.ready("first")
    job = cluster.submit(TEXT)
    cluster.kill_in(job, stage, after_token=AFTER_CHECKPOINT)
    cluster.worker("first")
    cluster.worker("second")
    assert cluster.result(job).text == undisturbed
    cluster.ready("first", "second")


def test_decode_goes_on_from_its_checkpoint(cluster: Cluster, undisturbed: str) -> None:
    """Tokens come once each and in order, however often the decode was taken up."""
    job = cluster.submit(TEXT)
    killed = cluster.kill_in(job, "decode", after_token=AFTER_CHECKPOINT)
    events = [event for event in cluster.events(job) if event.kind == "token"]
    assert [event.data["index"] for event in events] == list(range(len(events)))
    assert "".join(event.data["text"] for event in events) == undisturbed
    cluster.worker(killed)
    cluster.ready("first", "second")
