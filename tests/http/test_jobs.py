"""Jobs over HTTP, as curl would use them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from cache_store.connection import connect
from cache_store.worker_registry import alive, announce
from orchestrator.http.settings import ApiSettings
from orchestrator.liveness import announce as announce_process
from tests.http.stack import ENDLESS, OPTIONS, serving, text_of
from tests.orchestrator.made_documents import pdf, word


def submit(http: httpx.Client, text: str, **changes: Any) -> dict[str, Any]:
    answer = http.post("/v1/jobs", json={"text": text} | OPTIONS | changes)
    assert answer.status_code == 202, answer.text
    job: dict[str, Any] = answer.json()
    return job


def events(http: httpx.Client, job_id: str, after: str | None = None) -> Iterator[dict[str, Any]]:
    """The events of a stream, `data` decoded; comments are told as {"comment": ...}."""
    headers = {} if after is None else {"Last-Event-ID": after}
    with http.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        event: dict[str, Any] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line.startswith(":"):
                yield {"comment": value}
            elif line:
                event[name] = json.loads(value) if name == "data" else value
            elif event:
                yield event
                event = {}


def finished(http: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    """The job's record when it has ended well."""
    for _ in events(http, job["id"]):
        pass
    record: dict[str, Any] = http.get(f"/v1/jobs/{job['id']}").json()
    assert record["status"] == "done", record["reason"]
    return record


def error(answer: httpx.Response) -> dict[str, Any]:
    body = answer.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    found: dict[str, Any] = body["error"]
    assert found["message"]
    assert "\n" not in found["message"]
    return found


def test_a_text_is_read_once_and_asked_about(http: httpx.Client) -> None:
    job = submit(http, text_of("once"))
    assert job["status"] == "submitted"
    record = finished(http, job)
    result = record["result"]
    assert result["prefill_tokens"] == result["tokens_read"] > 96
    assert http.get("/v1/jobs?limit=1").json()[0]["id"] == job["id"]

    again = finished(http, http.post("/v1/jobs", json={"document": record["document"]} | OPTIONS).json())
    assert again["result"]["prefill_tokens"] == 0
    assert again["result"]["summary"] == result["summary"]

    question = {"question": "What does sentence 3 tell?", "max_new_tokens": 5}
    asked = http.post(f"/v1/jobs/{job['id']}/ask", json=question)
    assert asked.status_code == 202
    answer = finished(http, asked.json())["result"]
    assert (answer["prefill_tokens"], answer["question"]) == (0, question["question"])
    assert answer["tokens_written"] <= 5


def test_a_file_is_uploaded_with_options_as_fields(http: httpx.Client) -> None:
    fields = {name: str(value) for name, value in OPTIONS.items() if name != "policy_parameters"}
    fields["policy_parameters"] = json.dumps(OPTIONS["policy_parameters"])
    file = {"file": ("../folder/notes.md", text_of("upload").encode("utf-16"), "text/markdown")}
    answer = http.post("/v1/jobs", data=fields, files=file)
    assert answer.status_code == 202, answer.text
    record = finished(http, answer.json())
    assert record["title"] == "notes.md"
    same = finished(http, submit(http, text_of("upload")))
    assert same["result"]["state"] == record["result"]["state"]


def test_files_of_all_formats_are_read_by_what_they_hold(http: httpx.Client) -> None:
    page = f"<html><body><p>{text_of('formats')}</p></body></html>".encode()
    for data in (pdf([["words of a PDF"]]), word(lambda d: d.add_paragraph("words of a letter")), page):
        answer = http.post("/v1/jobs", files={"file": ("misnamed.txt", data)}, data={"model": "none such"})
        assert (answer.status_code, answer.json()["title"]) == (202, "misnamed.txt")
        http.delete(f"/v1/jobs/{answer.json()['id']}")
    text = http.post("/v1/jobs", json={"text": "<html> is how a page begins", "model": "none such"})
    assert text.status_code == 202
    http.delete(f"/v1/jobs/{text.json()['id']}")


def test_a_file_that_cannot_be_read_names_its_field(http: httpx.Client) -> None:
    damaged = word(lambda document: None)[:5000]
    answer = http.post("/v1/jobs", files={"file": ("letter.docx", damaged)}, data={"title": "My letter"})
    assert answer.status_code == 400
    problem = error(answer)
    assert (problem["param"], problem["code"]) == ("file", "document_unreadable")
    assert problem["message"].startswith("My letter is a damaged Word document")


def test_events_tell_everything_and_can_be_taken_up_again(http: httpx.Client) -> None:
    job = submit(http, text_of("events"))
    all_events = [event for event in events(http, job["id"]) if "comment" not in event]
    assert {"stage", "token", "done"} <= {event["event"] for event in all_events}
    text = "".join(event["data"]["text"] for event in all_events if event["event"] == "token")
    assert text == all_events[-1]["data"]["result"]["summary"]
    middle = len(all_events) // 2
    rest = [e for e in events(http, job["id"], all_events[middle]["id"]) if "comment" not in e]
    assert rest == all_events[middle + 1 :]


def test_a_quiet_job_sends_comments(http: httpx.Client) -> None:
    job = submit(http, text_of("quiet"), model="a model that no worker has")
    seen = events(http, job["id"])
    comments = 0
    while comments < 3:
        comments += "comment" in next(seen)
    seen.close()  # type: ignore[attr-defined]
    assert http.delete(f"/v1/jobs/{job['id']}").json()["status"] == "cancelled"


def test_a_job_is_cancelled(http: httpx.Client) -> None:
    job = submit(http, text_of("cancel"), max_new_tokens=ENDLESS)
    for event in events(http, job["id"]):
        if event.get("event") == "token":
            assert http.delete(f"/v1/jobs/{job['id']}").json()["status"] == "cancelled"
            break
    assert [event["event"] for event in events(http, job["id"]) if "event" in event][-1] == "cancelled"
    asked = http.post(f"/v1/jobs/{job['id']}/ask", json={"question": "Why?"})
    assert asked.status_code == 409
    assert error(asked)["code"] == "job_cancelled"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "text"),
        ({"text": " \n"}, 400, "text"),
        ({"text": "a", "document": "b"}, 400, "text"),
        ({"document": "nonsense"}, 400, "document"),
        ({"document": "0" * 64}, 404, None),
        ({"text": "a", "max_new_tokens": 0}, 400, "max_new_tokens"),
        ({"text": "a", "max_new_tokens": 10**6}, 400, "max_new_tokens"),
        ({"text": "a", "max_new_tokens": "many"}, 400, "max_new_tokens"),
        ({"text": "a", "temperature": -1}, 400, "temperature"),
        ({"text": "a", "colour": "red"}, 400, "colour"),
        ({"text": "a", "policy_parameters": {"sinks": ["x"]}}, 400, "policy_parameters.sinks"),
    ],
)
def test_bad_requests_name_the_field(
    http: httpx.Client, body: dict[str, Any], status: int, param: str | None
) -> None:
    answer = http.post("/v1/jobs", json=body)
    assert answer.status_code == status
    assert error(answer)["param"] == param


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/jobs/none", 404),
        ("GET", "/v1/jobs/a%2Fb", 404),
        ("GET", "/v1/jobs/NONE/events", 404),
        ("DELETE", "/v1/jobs/none", 404),
        ("GET", "/v1/jobs?limit=0", 400),
        ("PUT", "/v1/jobs", 405),
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/states/00", 404),
    ],
)
def test_wrong_addresses(http: httpx.Client, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    error(answer)


def test_other_content_types_are_refused(http: httpx.Client) -> None:
    answer = http.post("/v1/jobs", content=b'{"text": "a"}', headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415
    for content in (b"{", b"\xff", b"[]", b'{"text": "\\ud800"}'):
        answer = http.post("/v1/jobs", content=content, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        error(answer)
    assert http.post("/v1/jobs", files={"other": b"x"}).status_code == 400


def test_a_bad_event_id_is_refused(http: httpx.Client) -> None:
    job = submit(http, text_of("id"))
    answer = http.get(f"/v1/jobs/{job['id']}/events", headers={"Last-Event-ID": "$"})
    assert answer.status_code == 400
    http.delete(f"/v1/jobs/{job['id']}")


def test_what_only_a_worker_can_judge_shows_in_the_job(http: httpx.Client) -> None:
    job = submit(http, text_of("judge"), cache_entries=2)
    last = list(events(http, job["id"]))[-1]
    assert (last["event"], last["data"]["invalid"]) == ("failed", True)
    asked = http.post(f"/v1/jobs/{job['id']}/ask", json={"question": "Why?"})
    assert asked.status_code == 400
    assert "entries" in error(asked)["message"]


def test_too_many_jobs_are_refused_before_any_work(settings: ApiSettings) -> None:
    with (
        serving(settings, unfinished_jobs_limit=1, tenant="crowded") as url,
        httpx.Client(base_url=url) as http,
    ):
        job = submit(http, text_of("crowd"), model="a model that no worker has")
        documents = len(http.get("/v1/jobs").json())
        refused = http.post("/v1/jobs", json={"text": text_of("one more")} | OPTIONS)
        assert refused.status_code == 429
        assert int(refused.headers["Retry-After"]) > 0
        assert error(refused)["code"] == "too_many_jobs"
        assert len(http.get("/v1/jobs").json()) == documents
        http.delete(f"/v1/jobs/{job['id']}")
        finished(http, submit(http, text_of("crowd")))


def test_an_overloaded_server_says_so(settings: ApiSettings) -> None:
    with (
        serving(settings, total_unfinished_jobs_limit=1, streams_limit=1, tenant="load") as url,
        httpx.Client(base_url=url) as http,
    ):
        job = submit(http, text_of("load"), model="a model that no worker has")
        refused = http.post("/v1/jobs", json={"text": "a"} | OPTIONS)
        assert (refused.status_code, error(refused)["code"]) == (503, "overloaded")
        assert int(refused.headers["Retry-After"]) > 0
        watching = events(http, job["id"])
        next(watching)
        assert http.get(f"/v1/jobs/{job['id']}/events").status_code == 503
        http.delete(f"/v1/jobs/{job['id']}")


def chunks(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b"x" * 65536


def test_uploads_are_limited_while_they_arrive(settings: ApiSettings) -> None:
    json_type = {"Content-Type": "application/json"}
    with (
        serving(settings, document_bytes_limit=1000) as url,
        httpx.Client(base_url=url, timeout=30) as http,
    ):
        announced = http.post("/v1/jobs", files={"file": b"x" * 1_100_000})
        assert announced.status_code == 413
        error(announced)
        unannounced = http.post("/v1/jobs", content=chunks(17), headers=json_type)
        assert unannounced.status_code == 413
        within = http.post("/v1/jobs", json={"text": "a" * 1001})
        assert within.status_code == 400
        assert "1,000" in error(within)["message"]


def test_health_and_readiness(http: httpx.Client, settings: ApiSettings) -> None:
    assert http.get("/health").json() == {"status": "ok"}
    assert http.get("/ready").json() == {"status": "ready"}
    [worker] = http.get("/v1/workers").json()
    assert (worker["model_name"], worker["capacity"], worker["decode_rows"]) == (OPTIONS["model"], 1, 8)
    with serving(settings, redis_url="redis://127.0.0.1:1/0") as url, httpx.Client(base_url=url) as lost:
        assert lost.get("/health").status_code == 200
        for path in ("/ready", "/v1/jobs"):
            answer = lost.get(path)
            assert answer.status_code == 503
            assert int(answer.headers["Retry-After"]) > 0
            assert error(answer)["code"] == "store_unavailable"


def test_a_worker_that_drains_makes_nobody_ready(settings: ApiSettings) -> None:
    with connect(settings.redis_url) as client:
        (record,) = alive(client)
        draining = settings.redis_url.replace("/0", "/7")
        with connect(draining) as other, serving(settings, redis_url=draining) as url:
            other.flushdb()
            announce_process(other, "host:1")
            announce(other, record.model_copy(update={"draining": True}), ttl=60)
            answer = httpx.get(f"{url}/ready")
            assert (answer.status_code, error(answer)["code"]) == (503, "not_ready")
            announce(other, record, ttl=60)
            assert httpx.get(f"{url}/ready").status_code == 200
            other.flushdb()


def test_security_headers_and_no_cors(http: httpx.Client) -> None:
    for path in ("/health", "/v1/jobs", "/nothing"):
        headers = http.get(path, headers={"Origin": "http://127.0.0.1"}).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert not [name for name in headers if name.startswith("access-control")]
    assert "server" not in http.get("/health").headers
