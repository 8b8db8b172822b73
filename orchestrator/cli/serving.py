"""The HTTP API from the command line: serve, and beside `up`."""

from __future__ import annotations

import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from cache_store.connection import connect
from cache_store.log_format import configure
from cache_store.tracing import set_up
from orchestrator.api_keys import ApiKeys
from orchestrator.cli.display import make_display
from orchestrator.cli.errors import UsageProblem
from orchestrator.cli.health import EVERY_ADDRESS
from orchestrator.embedded.errors import StartFailed, Terminated
from orchestrator.embedded.home import STORE_ONLY, default_home
from orchestrator.embedded.session import Connection, running_stack
from orchestrator.http.settings import ApiSettings

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 5.0


def serve(host: str, port: int) -> NoReturn:
    """Serve until Ctrl-C or SIGTERM; exit code 0 then, 1 when the server could not start."""
    from orchestrator.cli.session import open_session
    from orchestrator.http.guard import is_loopback
    from orchestrator.http.server import make_server, url_of

    if not os.environ.get("DOCEXPRESS_REDIS_URL") and running_stack(default_home()) is None:
        raise UsageProblem(
            "there is no stack to serve: run `docexpress up --port N`, or set DOCEXPRESS_REDIS_URL"
        )
    display = make_display(quiet=False)
    with address(host, port) as bound, open_session(display, STORE_ONLY) as session:
        settings = _settings(session.connection)
        configure(settings.log_level, settings.log_format)
        set_up("docexpress-api", settings.traces)
        server = make_server(settings, bound)
        display.close()
        display.note(f"docexpress serves on {url_of(bound)}; Ctrl-C stops it.")
        if not is_loopback(bound.getsockname()[0]) and not _any_key(session.connection.redis_url):
            display.note("There is no API key yet, and every request needs one: docexpress keys create")
        try:
            server.run(sockets=[bound])
        except (KeyboardInterrupt, Terminated):  # uvicorn has stopped in good order, then tells the signal
            raise typer.Exit(0) from None
    raise typer.Exit(0 if server.started else 1)


def check(host: str, port: int) -> NoReturn:
    """Ask a server on this host whether it lives; 0 when it does, else 1 and a sentence.

    Not whether it is ready: a server is not to be started anew because there is no worker.
    """
    name = LOOPBACK if host in EVERY_ADDRESS else host
    url = f"http://{f'[{name}]' if ':' in name else name}:{port}/health"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:
            said = answer.read().decode()
    except urllib.error.HTTPError as error:
        print(f"The server says {error.read().decode()}", file=sys.stderr)
        raise typer.Exit(1) from None
    except OSError as error:
        print(f"There is no answer from {url}: {error}", file=sys.stderr)
        raise typer.Exit(1) from None
    print(f"The server says {said}", file=sys.stderr)
    raise typer.Exit(0)


def address(host: str, port: int) -> socket.socket:
    """The address, taken. Raises UsageProblem."""
    from orchestrator.http.server import AddressUnusable, take_address

    try:
        return take_address(host, port)
    except AddressUnusable as error:
        raise UsageProblem(str(error)) from None


@contextmanager
def api_beside(
    connection: Connection, bound: socket.socket | None, note: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Serves in a thread, if there is an address; yields a check of everything, which raises StartFailed."""
    if bound is None:
        yield connection.check
        return
    from orchestrator.http.server import BackgroundServer

    with BackgroundServer(_settings(connection), bound) as server:
        note(f"The web page and the HTTP API are at {server.url}.")

        def check() -> None:
            connection.check()
            if not server.alive:
                raise StartFailed("The HTTP server ended.")

        yield check


def _settings(connection: Connection) -> ApiSettings:
    if not connection.embedded:
        return ApiSettings()
    return ApiSettings(redis_url=connection.redis_url, cache_url=connection.redis_url)


def _any_key(redis_url: str) -> bool:
    with connect(redis_url) as client:
        return bool(ApiKeys(client).all())
