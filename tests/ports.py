"""Ports for servers that a test stops."""

from __future__ import annotations

import socket


def free_port() -> int:
    """Of the system's choice: Valkey takes the lowest that is free, and so would another test's meanwhile."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
