"""Running the command line as a user does: a process, its output, and what it leaves behind."""

import os
import subprocess
import sys
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

    def start(self, *arguments: str | Path) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def processes(self) -> dict[int, str]:
        """Everything that runs for this data folder: process id and command line."""
        return {
            int(entry.name): _read(entry / "cmdline").replace("\0", " ").strip()
            for entry in Path("/proc").iterdir()
            if entry.name.isdigit() and f"DOCEXPRESS_HOME={self.home}\0" in _read(entry / "environ")
        }


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:  # it ended meanwhile, or is not ours
        return ""
