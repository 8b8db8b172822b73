"""Running the command line as a user does: a process, its output, and what it leaves behind."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 120  # for one command, on a busy machine


@dataclass(frozen=True)
class CommandLine:
    """`docexpress` with a data folder of its own and nothing else in its environment."""

    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DOCEXPRESS_")}
        own = {"DOCEXPRESS_HOME": str(self.home), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        return inherited | own | self.variables

    def command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "orchestrator.cli", *map(str, arguments)]

    def run(self, *arguments: str | Path, stdin: bytes = b"") -> "subprocess.CompletedProcess[str]":
        """Run to the end; output is decoded strictly, so broken UTF-8 fails the test."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            env=self.environment,
            timeout=SECONDS,
            check=False,
        )
        return subprocess.CompletedProcess(
            done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def run_in_terminal(self, *arguments: str | Path) -> tuple[int, str]:
        """Run with a terminal for standard output and error; exit code and all that it was sent."""
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            env=self.environment | {"TERM": "xterm-256color", "COLUMNS": "100"},
        ) as process:
            os.close(theirs)
            with os.fdopen(ours, "rb", closefd=True) as screen:
                shown = b"".join(iter(lambda: _chunk(screen.fileno()), b""))
            return process.wait(timeout=SECONDS), shown.decode()

    @contextmanager
    def started(self, *arguments: str | Path) -> Iterator["Running"]:
        """A command that still runs; one that the test leaves running is killed."""
        with subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        ) as process:
            try:
                yield Running(process)
            finally:
                process.kill()

    def processes(self) -> dict[int, str]:
        """Everything that runs for this data folder: process id and command line."""
        return {
            int(entry.name): _read(entry / "cmdline").replace("\0", " ").strip()
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and self._owns(entry)
        }

    def _owns(self, process: Path) -> bool:
        """By its environment; Valkey writes its title over that, but works in the data folder."""
        if f"DOCEXPRESS_HOME={self.home}\0" in _read(process / "environ"):
            return True
        try:
            return Path(os.readlink(process / "cwd")).is_relative_to(self.home)
        except OSError:  # it ended meanwhile
            return False


@dataclass(frozen=True)
class Running:
    """A command under way."""

    process: "subprocess.Popen[str]"

    def wait_for(self, *words: str) -> None:
        """Read standard error up to a line that holds one of the words; fail when the command ends before."""
        said: list[str] = []
        assert self.process.stderr is not None
        for line in iter(self.process.stderr.readline, ""):
            said.append(line)
            if any(word in line for word in words):
                return
        raise AssertionError(f"it ended before it said any of {words}: {''.join(said)}")

    def end(self, number: signal.Signals | None = None) -> tuple[int, str, str]:
        """Send a signal, wait, and return exit code, output, and what was left of standard error."""
        if number is not None:
            self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, output, errors


def _chunk(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how a terminal says that nobody writes to it any more
        return b""


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # it ended meanwhile, or is not ours
        return ""
