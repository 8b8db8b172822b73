"""API keys: hashed at rest, each for one tenant, wanted everywhere but on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest
import redis

from cache_store.connection import connect
from orchestrator.api_keys import ApiKeys
from orchestrator.errors import OptionError
from orchestrator.http.guard import is_loopback
from orchestrator.http.settings import ApiSettings
from orchestrator.service import Service
from tests.http.stack import OPTIONS, serving, text_of
from tests.http.test_jobs import error, finished, submit

ANYWHERE = "0.0.0.0"  # noqa: S104


@pytest.fixture
def store(settings: ApiSettings) -> Iterator[redis.Redis]:
    with connect(settings.redis_url) as client:
        yield client


@pytest.fixture
def keys(store: redis.Redis) -> ApiKeys:
    return ApiKeys(store)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_a_key_is_found_until_it_is_revoked_and_nowhere_written(keys: ApiKeys, store: redis.Redis) -> None:
    key, secret = keys.create("acme", "the office")
    assert keys.find(secret) == key
    assert keys.find(secret + "x") is None
    assert keys.find("") is None
    assert key in keys.all()
    for name in store.scan_iter("docexpress:1:orchestrator:*"):
        assert secret.encode() not in store.dump(name)
        assert secret.encode() not in name
    assert keys.revoke(key.id) == key
    assert keys.find(secret) is None
    with pytest.raises(OptionError, match="no API key"):
        keys.revoke(key.id)


@pytest.mark.parametrize("tenant", ["", "A", "../x", "worker", "a" * 64])
def test_bad_tenants_get_no_key(keys: ApiKeys, tenant: str) -> None:
    with pytest.raises(OptionError, match="tenant"):
        keys.create(tenant, "")


@pytest.mark.parametrize(
    "changes", [{"host": ANYWHERE}, {"require_keys": True}], ids=["anywhere", "required"]
)
def test_without_a_key_nothing_is_served(
    settings: ApiSettings, keys: ApiKeys, changes: dict[str, object]
) -> None:
    _, secret = keys.create("acme", "")
    with serving(settings, **changes) as url:
        address = url.replace(ANYWHERE, "127.0.0.1")
        with httpx.Client(base_url=address, timeout=30) as http:
            for headers in ({}, bearer("dx_wrong"), bearer("other"), {"Authorization": "Basic eDp5"}):
                for path in ("/v1/jobs", "/v1/models", "/v1/nothing"):
                    answer = http.get(path, headers=headers)
                    assert answer.status_code == 401
                    assert answer.headers["WWW-Authenticate"] == "Bearer"
                    assert error(answer)["type"] == "authentication_error"
            sent = http.post("/v1/jobs", content=b"x" * 10_000_000)
            assert sent.status_code == 401
            assert http.get("/health").status_code == 200
            assert http.get("/v1/jobs", headers=bearer(secret)).status_code == 200


def test_tenants_see_nothing_of_each_other(url: str, keys: ApiKeys) -> None:
    clients = [
        httpx.Client(base_url=url, timeout=60, headers=bearer(keys.create(tenant, "")[1]))
        for tenant in ("one", "two")
    ]
    with clients[0] as one, clients[1] as two:
        record = finished(one, submit(one, text_of("tenants")))
        for path in (f"/v1/jobs/{record['id']}", f"/v1/states/{record['state']}"):
            assert one.get(path).status_code == 200
            assert two.get(path).status_code == 404
        assert two.get(f"/v1/jobs/{record['id']}/events").status_code == 404
        assert two.delete(f"/v1/jobs/{record['id']}").status_code == 404
        assert two.get("/v1/jobs").json() == two.get("/v1/states").json() == []
        stolen = two.post("/v1/jobs", json={"document": record["document"]} | OPTIONS)
        assert stolen.status_code == 404
        own = finished(two, submit(two, text_of("tenants")))
        assert own["result"]["prefill_tokens"] == own["result"]["tokens_read"]


def within_one_minute() -> None:
    """Waits until a minute of the clock has some seconds left: counts begin anew with each."""
    while time.time() % 60 > 55:
        time.sleep(0.1)


def test_a_key_has_a_rate_of_its_own(url: str, keys: ApiKeys) -> None:
    """Exactly so many requests are answered, and another key of the same tenant is not held up."""
    _, secret = keys.create("slow", "", requests_per_minute=2)
    _, other = keys.create("slow", "", requests_per_minute=2)
    within_one_minute()
    with httpx.Client(base_url=url) as http:
        answers = [http.get("/v1/jobs", headers=bearer(secret)) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 429, 429]
        assert error(answers[2])["code"] == "rate_limit_exceeded"
        assert 0 < int(answers[2].headers["Retry-After"]) <= 61
        assert http.get("/v1/jobs", headers=bearer(other)).status_code == 200


def test_a_rate_begins_anew_when_retry_after_has_passed(keys: ApiKeys) -> None:
    key, _ = keys.create("slow", "", requests_per_minute=1)
    now = 1_000_000_000.5  # 19.5 seconds before a minute ends
    assert [keys.wait(key, now) for _ in range(3)] == [0, 20, 20]
    assert keys.wait(key, now + 19) == 1
    assert keys.wait(key, now + 20) == 0
    assert keys.wait(key, now + 20) == 60


def test_a_tenant_has_a_budget_of_its_own(url: str, keys: ApiKeys, settings: ApiSettings) -> None:
    _, secret = keys.create("poor", "")
    _, other = keys.create("rich", "")
    with Service(settings) as service, httpx.Client(base_url=url, headers=bearer(secret)) as poor:
        view = service.of_tenant("poor")
        view.set_budget(10_000)
        large = poor.post("/v1/jobs", json={"text": text_of("large", 300)} | OPTIONS)
        assert (large.status_code, error(large)["code"]) == (413, "larger_than_byte_budget")
        assert "budget" in error(large)["message"]
        view.set_budget(view.usage().bytes + 6_000)
        submit(poor, "Small. " * 100)
        full = poor.post("/v1/jobs", json={"text": "Another small one. " * 50} | OPTIONS)
        assert (full.status_code, error(full)["code"]) == (429, "byte_budget_exceeded")
        assert int(full.headers["Retry-After"]) > 0
        rich = poor.post("/v1/jobs", json={"text": text_of("rich")} | OPTIONS, headers=bearer(other))
        assert rich.status_code == 202


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "[::1]:8000"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:8000", "Origin": "http://localhost:8000"}, 200),
        ({"Host": "localhost:8000", "Origin": "http://localhost:9000"}, 403),
    ],
)
def test_other_web_pages_cannot_use_a_server_without_keys(
    http: httpx.Client, headers: dict[str, str], status: int
) -> None:
    answer = http.get("/v1/jobs", headers=headers)
    assert answer.status_code == status


def test_an_origin_can_be_allowed(settings: ApiSettings) -> None:
    origin = "https://friend.example"
    with serving(settings, cors_origins=(origin,)) as url, httpx.Client(base_url=url) as http:
        asked = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        assert http.options("/v1/jobs", headers=asked).headers["Access-Control-Allow-Origin"] == origin
        answer = http.get("/v1/jobs", headers={"Origin": origin})
        assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (200, origin)
        other = http.get("/v1/jobs", headers={"Origin": "https://other.example"})
        assert other.status_code == 403
        assert "Access-Control-Allow-Origin" not in other.headers


def test_loopback() -> None:
    assert all(map(is_loopback, ["localhost", "LOCALHOST.", "127.0.0.1", "127.9.9.9", "::1", "[::1]"]))
    assert not any(map(is_loopback, ["", ANYWHERE, "::", "10.0.0.1", "localhost.evil", "128.0.0.1"]))
