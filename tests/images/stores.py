"""The stores of compose.yaml: their commands, run by the Valkey of this machine in their place."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import redis

from cache_store.connection import connect
from orchestrator.embedded.valkey import valkey_program
from tests.deploy.compose import services
from tests.images.network import Network

STORES = ("broker", "cache-store")
START_SECONDS = 30.0


class Store:
    """Runs while it is entered, at its name in the network."""

    def __init__(self, network: Network, name: str, folder: Path) -> None:
        folder.mkdir()
        self.url = f"redis://{network.join(name)}:6379/0"
        _, *options = services()[name]["command"]
        # Its image binds to every address, and keeps its data in /data.
        own = ["--bind", "0.0.0.0", "--protected-mode", "no", "--dir", str(folder)]  # noqa: S104
        self._command = [*network.inside(name), str(valkey_program()), *options, *own]
        self._log = folder / "log"

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        with connect(self.url) as client:
            while not answers(client):
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
