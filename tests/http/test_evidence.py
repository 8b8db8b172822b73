"""What a state holds of a document, the document's text, and deleting a job, over HTTP."""

from __future__ import annotations

import httpx

from cache_store.connection import connect
from orchestrator.http.settings import ApiSettings
from orchestrator.job_keys import JobKeys
from tests.http.stack import ENDLESS, READING, text_of
from tests.http.test_jobs import error, events, finished, submit


def test_evidence_covers_the_document(http: httpx.Client) -> None:
    text = text_of("evidence", 20)
    job = finished(http, submit(http, text))
    answer = http.get(f"/v1/jobs/{job['id']}/evidence", params={"bins": 16})
    assert answer.status_code == 200, answer.text
    bins = answer.json()["bins"]
    assert (len(bins), bins[0]["start"], bins[-1]["end"]) == (16, 0, len(text))
    assert [part["end"] for part in bins[:-1]] == [part["start"] for part in bins[1:]]
    entries = READING["cache_entries"]
    assert entries / 2 < sum(part["entries"] for part in bins) <= entries
    asked = http.post(f"/v1/jobs/{job['id']}/ask", json={"question": "What?", "max_new_tokens": 2}).json()
    finished(http, asked)
    assert http.get(f"/v1/jobs/{asked['id']}/evidence", params={"bins": 16}).json()["bins"] == bins


def test_pieces_of_the_text(http: httpx.Client) -> None:
    text = text_of("Stück 東京 🦊")
    job = submit(http, text)
    address = f"/v1/jobs/{job['id']}/document"
    assert http.get(address).json() == {"start": 0, "end": len(text), "text": text}
    piece = http.get(address, params={"start": 3, "count": 7}).json()
    assert piece == {"start": 3, "end": 10, "text": text[3:10]}
    assert http.get(address, params={"start": 10**9}).json()["text"] == ""
    assert http.get(address, params={"count": 10**6}).status_code == 400
    finished(http, job)


def test_what_there_is_no_evidence_of(http: httpx.Client, settings: ApiSettings) -> None:
    running = submit(http, text_of("no evidence"), max_new_tokens=ENDLESS)
    early = http.get(f"/v1/jobs/{running['id']}/evidence")
    assert (early.status_code, error(early)["code"]) == (409, "job_not_finished")
    http.delete(f"/v1/jobs/{running['id']}")
    assert http.get("/v1/jobs/none/evidence").status_code == 404
    job = finished(http, submit(http, text_of("evidence that goes")))
    address = f"/v1/jobs/{job['id']}/evidence"
    assert error(http.get(address, params={"bins": 5000}))["param"] == "bins"
    record, field = JobKeys(settings.tenant, job["id"]).record, "model_fingerprint"
    with connect(settings.redis_url) as client:
        known = client.hget(record, field)
        client.hset(record, field, '"of no worker"')
        away = http.get(address)
        client.hset(record, field, known)
    assert (away.status_code, error(away)["code"]) == (503, "worker_unavailable")
    http.delete(f"/v1/states/{job['state']}")
    gone = http.get(address)
    assert (gone.status_code, error(gone)["code"]) == (404, "not_found")


def test_a_job_is_deleted_for_good(http: httpx.Client, settings: ApiSettings) -> None:
    running = submit(http, text_of("deleted"), max_new_tokens=ENDLESS)
    stream = events(http, running["id"])
    assert any(event.get("event") == "token" for event in stream)
    assert http.delete(f"/v1/jobs/{running['id']}/record").status_code == 204
    assert http.get(f"/v1/jobs/{running['id']}").status_code == 404
    assert running["id"] not in {job["id"] for job in http.get("/v1/jobs").json()}
    assert http.delete(f"/v1/jobs/{running['id']}/record").status_code == 404
    keys = JobKeys(settings.tenant, running["id"])
    with connect(settings.redis_url) as client:
        assert not client.exists(keys.record, keys.claim, keys.events, keys.tokens)
