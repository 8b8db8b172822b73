"""One part of the embedded stack as a child process: started, watched, stopped, its words kept in a log."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.embedded import guard


class Child:
    """A process in a session of its own, so that Ctrl-C in the terminal reaches the command line alone.

    Must be started from the main thread: to Linux, the death of the thread that
    started a child is the death of its parent.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        orphaned: signal.Signals = signal.SIGKILL,
        standard_input: bytes = b"",
        inherit: Sequence[int] = (),
    ) -> None:
        """`orphaned` is the signal for the child when this process dies; `inherit` are files it keeps."""
        self.name = name
        self.log = log
        log.unlink(missing_ok=True)
        wrapped = [sys.executable, "-S", str(guard.__file__), str(int(orphaned)), str(os.getpid()), *command]
        with open(log, "xb", opener=_private) as output:
            self._process = subprocess.Popen(
                wrapped,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment) if environment is not None else None,
                start_new_session=True,
                pass_fds=inherit,
            )
        self._send(standard_input)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._process.poll()

    def last_words(self) -> str:
        """How the process ended, and the last line of its log that says anything."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        spoken = [line.strip().removeprefix("docexpress: ") for line in lines if line.strip()]
        code = self.exit_code
        if code is not None and code < 0:
            killed = f"killed by {signal.Signals(-code).name}"
            return f"{killed}; its last line was: {spoken[-1]}" if spoken else killed
        return spoken[-1] if spoken else f"exit code {code}"

    def ask_to_stop(self) -> None:
        """SIGTERM, once; the child finishes or saves what it has."""
        if self.exit_code is None:
            self._process.terminate()

    def stop(self, deadline: float) -> None:
        """Wait until `deadline` (time.monotonic) for a child that was asked to stop, then kill its group."""
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _send(self, standard_input: bytes) -> None:
        try:
            if pipe := self._process.stdin:
                with pipe:
                    pipe.write(standard_input)
        except BrokenPipeError:
            return  # it has ended already; whoever waits for it to be ready says so, with its last words


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
