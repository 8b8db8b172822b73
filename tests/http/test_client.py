"""The clients against a real server, and against connections that break."""

from __future__ import annotations

import inspect
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from orchestrator.client import (
    AsyncClient,
    BadRequest,
    Busy,
    Client,
    JobCancelled,
    JobFailed,
    JobOptions,
    NotAllowed,
    NotFound,
    Unreachable,
    calls,
)
from orchestrator.client.watching import TRIES, Watching
from orchestrator.http.settings import ApiSettings
from tests.http.stack import ENDLESS, MODEL, OPTIONS, serving, text_of

# What OpenAI's own client, browsers and monitoring ask for.
OTHERS = ("/v1/models", "/v1/chat", "/v1/completions", "/health", "/metrics")
CHOSEN = JobOptions(**OPTIONS)


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as made:
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "document.txt"
    path.write_text(text_of(tmp_path.name))
    return path


def test_from_a_file_to_an_answer(client: Client, file: Path) -> None:
    job = client.submit_file(file, CHOSEN)
    assert (job.title, job.model, job.finished) == ("document.txt", MODEL, False)
    result = client.wait(job.id)
    assert result.prefill_tokens == result.tokens_read > 0
    assert "".join(e.data["text"] for e in client.events(job.id) if e.kind == "token") == result.text
    assert client.job(job.id).result == result.to_json()
    assert result.error_estimate is not None
    assert 0 < result.error_estimate < 2
    assert client.jobs(limit=1)[0].id == job.id

    again = client.wait(client.submit_stored(client.job(job.id).document, CHOSEN).id)
    typed = client.wait(client.submit_text(file.read_text(), CHOSEN).id)
    assert again.prefill_tokens == typed.prefill_tokens == 0
    answer = client.wait(client.ask(job.id, "What?", JobOptions(max_new_tokens=3)).id)
    assert (answer.question, answer.prefill_tokens) == ("What?", 0)
    assert answer.tokens_written <= 3
    [*passages] = answer.reread_segments
    assert passages == client.job(answer.job_id).result["reread_segments"]  # type: ignore[index]
    assert (
        client.wait(client.ask(job.id, "What?", JobOptions(max_new_tokens=3, reread=0)).id).reread_segments
        == ()
    )
    assert [worker.model_name for worker in client.workers()] == [MODEL]
    client.ready()


def test_what_the_state_holds_and_where_the_text_is(client: Client, file: Path) -> None:
    text = file.read_text()
    job = client.submit_file(file, CHOSEN)
    with pytest.raises(BadRequest, match="has no result yet"):
        client.evidence(client.submit_text(text_of("early"), CHOSEN).id)
    client.wait(job.id)
    found = client.evidence(job.id, bins=8)
    assert (len(found.bins), found.bins[0].start, found.bins[-1].end) == (8, 0, len(text))
    assert 0 < sum(part.entries for part in found.bins) < sum(part.tokens for part in found.bins)
    last = found.bins[-1]
    piece = client.document_text(job.id, last.start, last.end - last.start)
    assert (piece.start, piece.end, piece.text) == (last.start, last.end, text[last.start :])
    assert client.document_text(job.id).text == text
    client.remove(job.id)
    with pytest.raises(NotFound):
        client.job(job.id)


def test_the_clients_know_every_address_of_the_api(http: httpx.Client) -> None:
    made = [
        calls.submit_text("", None, None), calls.ask("{}", "", None), calls.jobs(1), calls.job("{}"),
        calls.cancel("{}"), calls.remove("{}"), calls.evidence("{}", 1), calls.document_text("{}", 0, 1),
        calls.states(), calls.state("{}"), calls.import_state(b""), calls.delete_state("{}"),
        calls.workers(), calls.ready(),
    ]  # fmt: skip
    streamed = {("GET", "/v1/jobs/{}/events"), ("GET", "/v1/states/{}/export")}
    served = {
        (method.upper(), re.sub(r"{\w+}", "{}", path))
        for path, methods in http.get("/openapi.json").json()["paths"].items()
        for method in methods
        if not path.startswith(OTHERS)
    }
    assert {(call.method, call.path) for call in made} | streamed == served
    public = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert public <= {name for name, _ in inspect.getmembers(AsyncClient, inspect.isfunction)}


def test_states_travel_through_files(
    client: Client, file: Path, settings: ApiSettings, tmp_path: Path
) -> None:
    name = client.wait(client.submit_file(file, CHOSEN).id).state
    exported = tmp_path / "a.state"
    assert client.export_state(name[:20], exported) == exported.stat().st_size > client.state(name).size
    with serving(settings, tenant="other") as url, Client(url) as other:
        with pytest.raises(NotFound):
            other.export_state(name, tmp_path / "none.state")
        assert other.import_state(exported).name == name
        assert [state.name for state in other.states()] == [name]
        other.delete_state(name)
        assert other.states() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.state", "document.txt"]


def test_refusals_are_typed(client: Client, settings: ApiSettings) -> None:
    with pytest.raises(BadRequest) as refused:
        client.submit_text("  ")
    assert (refused.value.status, refused.value.code) == (400, "document_unreadable")
    with pytest.raises(BadRequest) as refused:
        client.submit_text("text", JobOptions(max_new_tokens=10**6))
    assert refused.value.param == "max_new_tokens"
    with pytest.raises(NotFound, match="there is no job"):
        client.job("none")
    with pytest.raises(NotFound):
        next(client.events("none"))
    with Client(str(client._http.base_url), "dx_no_such_key") as stranger, pytest.raises(NotAllowed):
        stranger.jobs()
    with serving(settings, redis_url="redis://127.0.0.1:1/0") as url, Client(url) as lost:
        with pytest.raises(Busy) as busy:
            lost.jobs()
        assert busy.value.retry_after == 5
    with Client("http://127.0.0.1:1") as nobody, pytest.raises(Unreachable):
        nobody.jobs()


def test_jobs_that_end_otherwise(client: Client) -> None:
    with pytest.raises(JobFailed) as failed:
        client.wait(client.submit_text(text_of("few"), JobOptions(**OPTIONS | {"cache_entries": 2})).id)
    assert failed.value.invalid
    job = client.submit_text(text_of("long"), JobOptions(**OPTIONS | {"max_new_tokens": ENDLESS}))
    assert client.cancel(job.id).status == "cancelled"
    with pytest.raises(JobCancelled):
        client.wait(job.id)


def test_the_asynchronous_client_does_the_same(url: str, file: Path, tmp_path: Path) -> None:
    async def use() -> None:
        async with AsyncClient(url) as client:
            job = await client.submit_file(file, CHOSEN)
            result = await client.wait(job.id)
            texts = [e.data["text"] async for e in client.events(job.id) if e.kind == "token"]
            assert "".join(texts) == result.text
            assert (await client.job(job.id)).result == result.to_json()
            typed = await client.submit_text(file.read_text(), CHOSEN)
            stored = await client.submit_stored((await client.job(job.id)).document, CHOSEN)
            for again in (typed, stored):
                assert (await client.wait(again.id)).prefill_tokens == 0
            answer = await client.wait((await client.ask(job.id, "What?")).id)
            assert answer.question == "What?"
            assert (await client.jobs(limit=1))[0].kind == "ask"
            assert (await client.cancel(job.id)).status == "done"
            size = await client.export_state(result.state, tmp_path / "b.state")
            assert size == (tmp_path / "b.state").stat().st_size
            await client.delete_state(result.state)
            with pytest.raises(NotFound):
                await client.state(result.state)
            assert (await client.import_state(tmp_path / "b.state")).name == result.state
            assert result.state in [state.name for state in await client.states()]
            assert len(await client.workers()) == 1
            await client.ready()
            assert len((await client.evidence(job.id, bins=4)).bins) == 4
            assert (await client.document_text(job.id, 1, 5)).text == file.read_text()[1:6]
            await client.remove(job.id)
            with pytest.raises(NotFound):
                await client.job(job.id)

    anyio.run(use)


def sse(index: int) -> bytes:
    data = json.dumps({"index": index, "text": f"<{index}>"})
    return f"id: {index + 1}-0\nevent: token\ndata: {data}\n\n".encode()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


@contextmanager
def breaking_server(answers: list[bytes], asked: list[bytes]) -> Iterator[str]:
    """Gives one answer to each connection, then closes it; notes what it was asked."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_watching_goes_on_over_lost_connections() -> None:
    end = b"id: 9-0\nevent: cancelled\ndata: {}\n\n"
    asked: list[bytes] = []
    answers = [
        HEAD + sse(0) + sse(1) + b"id: 3-0\nevent: tok",
        b"",
        HEAD + b'event: error\ndata: {"error": {}}\n\n',
        HEAD + sse(1) + sse(2) + end,  # a token comes again when the stream has lost its place
    ]
    with breaking_server(answers, asked) as url, Client(url) as client:
        events = list(client.events("job"))
    assert [event.data.get("index") for event in events] == [0, 1, 2, None]
    assert b"Last-Event-ID: 0-0" in asked[0]
    assert all(b"Last-Event-ID: 2-0" in request for request in asked[1:])


def test_watching_gives_up_in_the_end() -> None:
    watching = Watching()
    pauses = [watching.broken(None) for _ in range(TRIES - 1)]
    assert pauses == sorted(pauses)
    with pytest.raises(Unreachable):
        watching.broken(None)
