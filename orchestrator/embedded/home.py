"""Where the embedded stack keeps its data, and the files through which commands find each other."""

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.embedded.errors import HomeUnusable

VALKEY, WORKER, ORCHESTRATOR = "valkey", "worker", "orchestrator"
STORE_ONLY = frozenset({VALKEY})
WHOLE_STACK = frozenset({VALKEY, WORKER, ORCHESTRATOR})


@dataclass(frozen=True)
class RunFile:
    """What a running stack tells other commands: how to reach it, and which parts it has."""

    owner: int  # process id
    redis_url: str  # with the password: the file is readable by its owner alone
    parts: frozenset[str]

    @property
    def owner_lives(self) -> bool:
        """False when the owner was killed and Valkey, on its way out, still holds the lock."""
        try:
            os.kill(self.owner, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


@dataclass(frozen=True)
class Home:
    """The data folder of one user; nobody else can read it."""

    path: Path

    @property
    def data(self) -> Path:
        """Valkey's snapshot."""
        return self.path / "data"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def stack_lock(self) -> Path:
        """Held by the command that owns the running stack, and by its Valkey until that has ended."""
        return self.path / "stack.lock"

    @property
    def clients_lock(self) -> Path:
        """Shared by all commands that use a stack they do not own."""
        return self.path / "clients.lock"

    @property
    def run_file(self) -> Path:
        return self.path / "stack.json"

    def create(self) -> None:
        """Make the folders. Raises HomeUnusable, in a sentence."""
        try:
            for folder in (self.path, self.data, self.logs):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path):
                pass
        except OSError as error:
            raise HomeUnusable(
                f"The data folder {self.path} cannot be used ({error.strerror});"
                " set DOCEXPRESS_HOME to another."
            ) from error

    def write_run_file(self, run: RunFile) -> None:
        """Replace the run file in one step; `mkstemp` makes it readable by this user alone."""
        handle, temporary = tempfile.mkstemp(dir=self.path, prefix=".stack-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump({"owner": run.owner, "redis_url": run.redis_url, "parts": sorted(run.parts)}, file)
        os.replace(temporary, self.run_file)

    def read_run_file(self) -> RunFile | None:
        """The running stack, or None. Only meaningful while `stack_lock` is held by somebody."""
        try:
            record: dict[str, Any] = json.loads(self.run_file.read_text(encoding="utf-8"))
            return RunFile(int(record["owner"]), str(record["redis_url"]), frozenset(record["parts"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def remove_run_file(self) -> None:
        self.run_file.unlink(missing_ok=True)


def default_home(environment: Mapping[str, str] = os.environ) -> Home:
    """`DOCEXPRESS_HOME`, or `docexpress` in the user's data folder."""
    if chosen := environment.get("DOCEXPRESS_HOME"):
        return Home(Path(chosen).expanduser().absolute())
    data = environment.get("XDG_DATA_HOME") or "~/.local/share"
    return Home(Path(data).expanduser().absolute() / "docexpress")
