"""The running stack, as its owner sees it: starts the parts, notices when one dies, takes all down."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import redis

from cache_store import worker_registry
from orchestrator.embedded.errors import NotSaved, StartFailed
from orchestrator.embedded.home import ORCHESTRATOR, VALKEY, WORKER, Home, RunFile
from orchestrator.embedded.locks import FileLock
from orchestrator.embedded.memory import memory_bytes
from orchestrator.embedded.processes import Child
from orchestrator.embedded.valkey import Valkey, start_valkey

STOP_SECONDS = 10.0  # for a worker to save what it has; nothing is lost that was paid for if it does not
COMMAND = (sys.executable, "-m", "orchestrator.cli")

Report = Callable[[str], None]


@dataclass(frozen=True)
class StackOptions:
    """How the parts are started."""

    start_seconds: float = (
        900.0  # until the worker must have loaded its model; the first time it is converted
    )
    memory_limit: int = memory_bytes() // 2  # of Valkey


class Stack:
    """Not for several threads. Every `start` is answered by a `stop`, whatever happens in between."""

    def __init__(self, home: Home, lock: FileLock, options: StackOptions, report: Report) -> None:
        self._home = home
        self._lock = lock
        self._options = options
        self._report = report
        self._valkey: Valkey | None = None
        self._children: dict[str, Child] = {}

    @property
    def redis_url(self) -> str:
        if self._valkey is None:
            raise RuntimeError("the stack is not started")
        return self._valkey.url

    @property
    def parts(self) -> frozenset[str]:
        return frozenset(self._children) | ({VALKEY} if self._valkey else set())

    def start(self, parts: frozenset[str], model: str | None = None) -> None:
        """Start those of `parts` that do not run yet and wait until they work, then say so in the run file.

        The worker loads `model`, or its own default when that is None.

        Raises EmbeddedError; whatever was started by then still has to be stopped with `stop`.
        """
        if self._valkey is None:
            self._report("starting the embedded Valkey")
            self._valkey = start_valkey(
                self._home, self._lock, self._options.memory_limit, self._wait_for_valkey
            )
            self._forget_workers_of_the_past()
        for part in (WORKER, ORCHESTRATOR):
            if part in parts and part not in self._children:
                self._children[part] = self._start_child(part, model)
        if WORKER in self._children:
            self._wait_for_worker()
        self._home.write_run_file(RunFile(os.getpid(), self.redis_url, self.parts))

    def check(self) -> None:
        """Raises StartFailed when a part has died."""
        for child in self._everything():
            if child.exit_code is not None:
                raise StartFailed(
                    f"The {child.name} ended: {child.last_words()}", 2 if child.exit_code == 2 else 1
                )

    def stop(self) -> None:
        """Take everything down, Valkey last, because the others save to it. May be called at any time.

        Ctrl-C and SIGTERM wait meanwhile: an interrupted stop would leave the snapshot unwritten.
        Raises NotSaved when everything is down, and what Valkey held is lost.
        """
        with signals_held():
            self._stop()

    def _stop(self) -> None:
        self._home.remove_run_file()
        for child in self._children.values():
            child.ask_to_stop()
        deadline = time.monotonic() + STOP_SECONDS
        for child in self._children.values():
            child.stop(deadline)
        self._children.clear()
        if self._valkey is not None:
            valkey, self._valkey = self._valkey, None
            lived = valkey.child.exit_code is None  # else `check` tells how it ended
            if not valkey.stop() and lived:
                raise NotSaved(
                    f"The states and jobs since the last snapshot could not be saved in {self._home.data}:"
                    " is the folder still there, and is there room on its disk?"
                )

    def _everything(self) -> list[Child]:
        return [*([self._valkey.child] if self._valkey else []), *self._children.values()]

    def _start_child(self, part: str, model: str | None) -> Child:
        command = {WORKER: [*COMMAND, "worker"], ORCHESTRATOR: [*COMMAND, "orchestrate"]}[part]
        if part == WORKER and model is not None:
            command += ["--model", model]
        environment = environment_of(part, os.environ, self.redis_url)
        return Child(part, command, log=self._home.logs / f"{part}.log", environment=environment)

    def _wait_for_valkey(self) -> None:
        self._report("loading the stored states")

    def _wait_for_worker(self) -> None:
        deadline = time.monotonic() + self._options.start_seconds
        with redis.Redis.from_url(self.redis_url) as client:
            while not worker_registry.alive(client):
                self.check()
                if time.monotonic() > deadline:
                    log = self._children[WORKER].log
                    seconds = f"{self._options.start_seconds:.0f}"
                    raise StartFailed(f"The worker was not ready within {seconds} seconds (see {log}).")
                self._report("loading the model")
                time.sleep(0.05)

    def _forget_workers_of_the_past(self) -> None:
        """Only one stack at a time uses this data, so whatever worker the snapshot knows of is dead."""
        with redis.Redis.from_url(self.redis_url) as client:
            for record in worker_registry.alive(client):
                worker_registry.withdraw(client, record.id)


@contextmanager
def signals_held() -> Iterator[None]:
    """Ignore Ctrl-C, SIGTERM and SIGHUP for a while; main thread only.

    Not by a mask: the kernel would hand the signal to another thread, and Python on to the main one.
    """
    held = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_IGN) for number in held]
    try:
        yield
    finally:
        for number, handler in zip(held, before, strict=True):
            signal.signal(number, handler)


def environment_of(part: str, own: Mapping[str, str], redis_url: str) -> dict[str, str]:
    """Our environment, but for the stores, which are both the embedded one.

    An address for metrics is the worker's: two cannot have it, and the API tells those of the orchestrator.
    """
    others = {"DOCEXPRESS_CACHE_URL"} | ({"DOCEXPRESS_METRICS_LISTEN"} if part == ORCHESTRATOR else set())
    inherited = {name: value for name, value in own.items() if name not in others}
    return inherited | {"DOCEXPRESS_REDIS_URL": redis_url, "PYTHONUNBUFFERED": "1"}
