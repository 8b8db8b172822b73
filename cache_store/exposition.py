"""A port that Prometheus scrapes, the same in every process that has one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^:\s]*)):(?P<port>\d{1,5})")


class MetricsAddressUnusable(Exception):
    """Nothing can listen on the address that metrics were to be served on."""


def check_address(address: str | None) -> str | None:
    """The address itself; ValueError unless it is host:port or [IPv6]:port."""
    if address is not None and not _ADDRESS.fullmatch(address):
        raise ValueError(
            f"the address for metrics is {address[:80]!r}; allowed are host:port and [IPv6]:port"
        )
    return address


@contextmanager
def exposed(registry: CollectorRegistry, address: str | None) -> Iterator[int | None]:
    """Serves a registry, to whoever asks, as long as the context lasts; the port, None without an address.

    Port 0 takes a free one. Raises MetricsAddressUnusable.
    """
    if address is None or (found := _ADDRESS.fullmatch(address)) is None:
        yield None
        return
    host = found["six"] or found["host"] or "0.0.0.0"  # noqa: S104 - as was asked for
    try:
        server, thread = start_http_server(int(found["port"]), host, registry)
    except (OSError, OverflowError) as error:
        raise MetricsAddressUnusable(f"Metrics cannot be served on {address}: {error}.") from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
