"""GET /metrics: for the operator alone, and nothing of a tenant in it."""

from __future__ import annotations

import httpx
import redis

from cache_store.connection import connect
from orchestrator.api_keys import ApiKeys
from orchestrator.http.settings import ApiSettings
from tests.http.stack import serving, text_of
from tests.http.test_jobs import error, finished, submit
from tests.http.test_keys import ANYWHERE, bearer
from tests.metrics import Exposition

TOKEN = "a token for Prometheus alone"


def test_on_loopback_everybody_may_scrape(http: httpx.Client) -> None:
    before = Exposition(http.get("/metrics").text)
    job = finished(http, submit(http, text_of("metrics")))
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    now = Exposition(answer.text)
    for name, labels in (
        ("jobs_ended_total", {"kind": "summarize", "outcome": "done"}),
        ("time_to_first_token_seconds_count", {"kind": "summarize"}),
        ("stage_seconds_count", {"stage": "decode"}),
    ):
        assert now.value(name, **labels) == before.value(name, **labels) + 1
    assert now.value("workers", state="ready") == 1
    assert now.value("orchestrators") == 1
    assert job["id"] not in answer.text


def test_a_page_of_somebody_else_may_not(http: httpx.Client) -> None:
    assert http.get("/metrics", headers={"Host": "evil.example"}).status_code == 403
    assert http.get("/metrics", headers={"Origin": "http://evil.example"}).status_code == 403


def test_where_keys_are_required_the_token_opens_it_and_a_tenants_key_does_not(settings: ApiSettings) -> None:
    client: redis.Redis
    with connect(settings.redis_url) as client:
        _, secret = ApiKeys(client).create("acme", "")
    with serving(settings, host=ANYWHERE) as url:
        closed = httpx.get(url.replace(ANYWHERE, "127.0.0.1") + "/metrics", headers=bearer(secret))
    assert closed.status_code == 403
    assert "DOCEXPRESS_METRICS_TOKEN" in error(closed)["message"]
    with_token = ApiSettings(redis_url=settings.redis_url, metrics_token=TOKEN)  # type: ignore[arg-type]
    assert TOKEN not in repr(with_token)
    with serving(with_token, host=ANYWHERE) as url:
        address = url.replace(ANYWHERE, "127.0.0.1") + "/metrics"
        for headers in ({}, bearer(secret), bearer(TOKEN + "x"), {"Authorization": TOKEN}):
            assert httpx.get(address, headers=headers).status_code == 401
        opened = httpx.get(address, headers=bearer(TOKEN))
        assert opened.status_code == 200
        assert "docexpress_jobs_submitted_total" in opened.text
        assert "acme" not in opened.text
        elsewhere = address.replace("/metrics", "/v1/jobs")
        assert httpx.get(elsewhere, headers=bearer(TOKEN)).status_code == 401
