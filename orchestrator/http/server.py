"""Serving the application: the address is taken first, so that what is wrong with it is a plain sentence."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self

import uvicorn

from orchestrator.http.app import create_app
from orchestrator.http.guard import is_loopback
from orchestrator.http.settings import ApiSettings

STOP_SECONDS = 10  # for answers under way; watchers of jobs come again
BACKLOG = 512


class AddressUnusable(Exception):
    """The address to serve on does not exist here, is taken, or is not allowed to us."""


def take_address(host: str, port: int) -> socket.socket:
    """A socket bound to the address; port 0 takes a free one. Raises AddressUnusable."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise AddressUnusable(f"{host}:{port} is no address to serve on: {error.strerror}") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)  # who connects from now on waits until the server has started
    except OSError as error:
        bound.close()
        raise AddressUnusable(f"cannot serve on {host}:{port}: {error.strerror}") from error
    return bound


def url_of(bound: socket.socket) -> str:
    """Where a browser on this machine finds what is served on a socket."""
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def make_server(settings: ApiSettings, bound: socket.socket) -> uvicorn.Server:
    """A server for that socket, which asks for API keys unless it is bound to a loopback address."""
    app = create_app(settings, keys_required=not is_loopback(bound.getsockname()[0]))
    config = uvicorn.Config(
        app,
        log_config=None,  # the process's own
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=STOP_SECONDS,
        timeout_keep_alive=30,
        lifespan="on",
    )
    return uvicorn.Server(config)


class BackgroundServer:
    """A server in a thread, for as long as the context lasts; the socket is closed with it."""

    def __init__(self, settings: ApiSettings, bound: socket.socket) -> None:
        self.url = url_of(bound)
        self._socket = bound
        self._server = make_server(settings, bound)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [bound]}, name="http")

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
