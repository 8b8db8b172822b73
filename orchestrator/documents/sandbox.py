"""Text of formats that need a parser: read in a process of its own, which a hostile file may ruin alone."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys

from orchestrator.documents.errors import Unreadable
from orchestrator.documents.kinds import Kind
from orchestrator.documents.limits import ReadingLimits

# Exit codes of the child; any other is an error of ours.
READ, REFUSED, NO_MEMORY, BROKEN = 0, 10, 11, 12
_NAMES: dict[Kind, str] = {"html": "an HTML page", "pdf": "a PDF file", "zip": "a Word document"}
_OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)
_CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)


def extract(kind: Kind, data: bytes, limits: ReadingLimits) -> str:
    """The text in a document, which may be blank. Raises Unreadable."""
    command = [sys.executable, "-B", "-m", "orchestrator.documents.child", kind]
    try:
        done = subprocess.run(
            [*command, json.dumps(dataclasses.asdict(limits))],
            input=data,
            capture_output=True,
            timeout=limits.seconds,
            env=environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise _too_slow(limits) from None
    if done.returncode == READ:
        return done.stdout.decode()
    raise _refusal(done, kind, limits)


def _refusal(done: subprocess.CompletedProcess[bytes], kind: Kind, limits: ReadingLimits) -> Exception:
    if done.returncode == REFUSED:
        return Unreadable(done.stdout.decode())
    if done.returncode == NO_MEMORY:
        return Unreadable(f"needs more than {limits.memory_bytes // 1024**2:,} MiB of memory to be read")
    if done.returncode in _OUT_OF_TIME:
        return _too_slow(limits)
    if done.returncode == BROKEN or done.returncode in _CRASHES:
        return Unreadable(f"is damaged: it cannot be read as {_NAMES[kind]}")
    last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return RuntimeError(f"the reader of documents ended with {done.returncode}: {last}")


def _too_slow(limits: ReadingLimits) -> Unreadable:
    return Unreadable(f"takes more than {limits.seconds:g} seconds to be read; save it as plain text")


def environment() -> dict[str, str]:
    """Just what finds the program: no address, password or key of ours."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONUTF8": "1"}
