"""States over HTTP: listed, exported to a file, imported, deleted."""

from __future__ import annotations

import httpx

from orchestrator.http.settings import ApiSettings
from tests.http.stack import serving, text_of
from tests.http.test_jobs import error, finished, submit


def test_a_state_travels_from_tenant_to_tenant_as_a_file(http: httpx.Client, settings: ApiSettings) -> None:
    name = finished(http, submit(http, text_of("travel")))["state"]
    listed = {state["name"]: state for state in http.get("/v1/states").json()}
    shown = http.get(f"/v1/states/{name[:20]}").json()
    assert shown["kept"]
    assert shown["size"] == listed[name]["size"] > 0
    exported = http.get(f"/v1/states/{name}/export")
    assert exported.status_code == 200
    assert f'{name[:16]}.state"' in exported.headers["Content-Disposition"]

    with serving(settings, tenant="elsewhere") as url, httpx.Client(base_url=url) as other:
        assert other.get(f"/v1/states/{name}").status_code == 404
        damaged = other.post("/v1/states/import", content=exported.content[:-5])
        assert damaged.status_code == 400
        assert error(damaged)["message"].startswith("The file has")
        assert other.get("/v1/states").json() == []
        imported = other.post("/v1/states/import", content=exported.content)
        assert (imported.status_code, imported.json()["name"]) == (201, name)
        form = other.post("/v1/states/import", files={"file": exported.content})
        assert (form.status_code, form.json()["name"]) == (201, name)
        assert other.delete(f"/v1/states/{name}").status_code == 204
        assert other.get("/v1/states").json() == []
        assert other.delete(f"/v1/states/{name}").status_code == 404
    assert http.get(f"/v1/states/{name}").status_code == 200


def test_a_state_that_is_too_large_is_not_received(settings: ApiSettings) -> None:
    with (
        serving(settings, state_bytes_limit=1000) as url,
        httpx.Client(base_url=url, timeout=30) as http,
    ):
        assert http.post("/v1/states/import", content=b"x" * 1_100_000).status_code == 413
