"""Whole jobs through real processes: what is read once is never read again, and two workers both work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.cluster import SEGMENT, Cluster, text_of


@pytest.fixture(scope="module")
def cluster(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(valkey_url, tmp_path_factory.mktemp("cluster")) as made:
        redis.Redis.from_url(valkey_url).flushall()
        made.orchestrator()
        made.worker("first")
        made.worker("second")
        made.ready("first", "second")
        yield made


def test_the_same_document_is_not_read_again(cluster: Cluster) -> None:
    text = text_of(60)
    first, second = cluster.run(text), cluster.run(text)
    assert first.prefill_tokens == first.tokens_read > 3 * SEGMENT
    assert second.prefill_tokens == 0
    assert (second.text, second.state) == (first.text, first.state)


def test_a_question_reads_nothing_and_answers_alike(cluster: Cluster) -> None:
    job = cluster.submit(text_of(62))
    cluster.result(job)
    questions = [cluster.service.ask(job.id, "What does sentence 9 say?") for _ in range(2)]
    again = cluster.submit(text_of(62))
    cluster.result(again)
    answers = [cluster.result(question) for question in questions]
    answers.append(cluster.result(cluster.service.ask(again.id, "What does sentence 9 say?")))
    assert len({answer.text for answer in answers}) == 1
    assert [answer.prefill_tokens for answer in answers] == [0, 0, 0]


def test_a_question_is_answered_alike_when_the_state_has_gone(cluster: Cluster) -> None:
    job = cluster.submit(text_of(61))
    state = cluster.result(job).state
    assert state is not None
    before = cluster.result(cluster.service.ask(job.id, "What does sentence 9 say?"))
    cluster.service.delete_state(state)
    question = cluster.service.ask(job.id, "What does sentence 9 say?")
    stages = {event.data["stage"] for event in cluster.events(question) if event.kind == "stage"}
    after = cluster.service.result(question.id)
    assert stages == {"rank", "reread", "decode"}
    assert (after.text, after.reread_segments) == (before.text, before.reread_segments)
    assert (after.state, after.prefill_tokens) == (None, 0)
    assert not [info for info in cluster.service.states() if info.name == state]


def test_two_jobs_run_on_two_workers_at_once(cluster: Cluster) -> None:
    jobs = [cluster.submit(text_of(100) + mark) for mark in (" One.", " Two.")]
    seen: set[tuple[str, ...]] = set()

    def both_work() -> bool:
        records = [cluster.service.job(job.id) for job in jobs]
        working = tuple(sorted(record.worker for record in records if record.claim and record.worker))
        seen.add(working)
        return working == ("first", "second")

    cluster.until(both_work, f"both workers work at once; seen: {seen}")
    for job in jobs:
        assert cluster.result(job).text
