"""Under which address others reach what listens here."""

from __future__ import annotations

import socket

import redis

EVERY = ("", "0.0.0.0", "[::]", "::")  # noqa: S104 - compared with, not listened on


def advertised(listen: str, port: int, advertise: str | None, broker: redis.Redis) -> str:
    """host:port for callers.

    `advertise` (host or host:port) if given; else what is listened on, and where that is every address, the
    one from which the broker is reached: whoever finds this worker there has a way to it.
    """
    if listen.startswith("unix:"):
        return advertise or listen
    if advertise is not None:
        return advertise if _has_port(advertise) else f"{advertise}:{port}"
    host = listen.rpartition(":")[0]
    return f"{_own_host(broker) if host in EVERY else host}:{port}"


def _has_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdigit() and (":" not in host or host.endswith("]"))


def _own_host(broker: redis.Redis) -> str:
    options = broker.get_connection_kwargs()
    if "path" in options:  # a unix socket: everybody is on this machine
        return "127.0.0.1"
    server = (str(options.get("host", "localhost")), int(options.get("port", 6379)))
    with socket.create_connection(server, timeout=5.0) as connection:
        host: str = connection.getsockname()[0]
    return f"[{host}]" if ":" in host else host
