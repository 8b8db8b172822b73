"""How a command gets the stack it needs: the one named in the environment, a running one, or its own.

Two locks keep commands out of each other's way. `stack_lock` is held alone by the owner of the running stack,
for as long as any part of it runs. `clients_lock` is shared by every command that uses somebody else's stack;
the owner stops only once it has that lock alone, that is, when nobody uses the stack any more, and keeps it
until everything is down. A command that asks for the stack meanwhile waits, then starts its own. The kernel
gives both locks back when their holder dies.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.embedded.errors import StackBusy, Terminated
from orchestrator.embedded.home import Home, RunFile, default_home
from orchestrator.embedded.locks import FileLock
from orchestrator.embedded.stack import Report, Stack, StackOptions

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Connection:
    """A stack to work with."""

    redis_url: str
    embedded: bool  # on this machine, with one server for everything
    stack: Stack | None = None  # only when this command owns it

    def need(self, parts: frozenset[str], model: str | None = None) -> None:
        """Make an own stack have `parts` too, a new worker with `model`. Raises EmbeddedError."""
        if self.stack is not None:
            self.stack.start(parts, model)

    def check(self) -> None:
        """Raises StartFailed when a part of an own stack has died."""
        if self.stack is not None:
            self.stack.check()


def running_stack(home: Home) -> RunFile | None:
    """The run file of a stack that is up, or None; a file left by a killed owner does not count."""
    if not home.stack_lock.exists():
        return None
    with FileLock(home.stack_lock) as lock:
        run = None if lock.try_exclusive() else home.read_run_file()
    return run if run is not None and run.owner_lives else None


@contextmanager
def connect(
    parts: frozenset[str],
    options: StackOptions,
    report: Report,
    environment: Mapping[str, str] = os.environ,
    begin: frozenset[str] | None = None,
    busy: Callable[[str], bool] = lambda redis_url: False,
) -> Iterator[Connection]:
    """Hand out a stack that has `parts`, and take it down afterwards if it was started here.

    With `DOCEXPRESS_REDIS_URL` set nothing is started. An own stack starts with the parts `begin` (all of
    `parts` when None); `Connection.need` adds to them. `busy(redis_url)` says whether it still works on jobs
    that other commands submitted: it is stopped only after that. A second Ctrl-C stops it at once.
    Raises EmbeddedError.
    """
    if url := environment.get("DOCEXPRESS_REDIS_URL"):
        yield Connection(url, embedded=False)
        return
    home = default_home(environment)
    home.create()
    with FileLock(home.stack_lock) as owner, FileLock(home.clients_lock) as clients:
        run = _own_or_join(home, owner, clients, parts, options, report)
        if run is not None:
            yield Connection(run.redis_url, embedded=True)
            return
        stack = Stack(home, owner, options, report)
        try:
            stack.start(parts if begin is None else begin)
            try:
                yield Connection(stack.redis_url, embedded=True, stack=stack)
            except Terminated:
                raise
            except BaseException:  # a failed job, or one that Ctrl-C cancelled: that of others goes on
                _wait_for_others(stack, clients, busy, report)
                raise
            _wait_for_others(stack, clients, busy, report)
        finally:
            stack.stop()


def _own_or_join(
    home: Home,
    owner: FileLock,
    clients: FileLock,
    parts: frozenset[str],
    options: StackOptions,
    report: Report,
) -> RunFile | None:
    """None with `owner` held, or a running stack that has `parts` with `clients` shared."""
    deadline = time.monotonic() + options.start_seconds
    while time.monotonic() < deadline:
        if clients.try_shared():
            if owner.try_exclusive():
                clients.release()
                return None
            run = home.read_run_file()
            if run is not None and run.owner_lives and parts <= run.parts:
                return run
            clients.release()
        report("waiting for another docexpress command that uses the same data folder")
        time.sleep(POLL_SECONDS)
    raise StackBusy(
        f"Another docexpress command has been using {home.path} for {options.start_seconds:.0f} seconds;"
        " wait for it, or set DOCEXPRESS_HOME to another folder."
    )


def _wait_for_others(stack: Stack, clients: FileLock, busy: Callable[[str], bool], report: Report) -> None:
    while busy(stack.redis_url) or not clients.try_exclusive():
        stack.check()
        report("waiting for other commands that use this stack; Ctrl-C stops it now")
        time.sleep(POLL_SECONDS)
