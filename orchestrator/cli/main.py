"""Where a command starts and how it ends: a sentence on standard error and an exit code, no traceback."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import typer

from orchestrator.embedded.errors import Terminated

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main() -> NoReturn:
    """Run the command in `sys.argv` and end the process with its exit code.

    0 done, 1 failed, 2 bad usage or bad input, 130 interrupted, 128 + n ended by signal n.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _terminate)
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit code of a command; what went wrong has been said on standard error by then."""
    from orchestrator.cli.app import app

    try:
        code = typer.main.get_command(app).main(arguments, prog_name="docexpress", standalone_mode=False)
        sys.stdout.flush()
        return int(code or DONE)
    except BrokenPipeError:
        _drop_output()
        return FAILED
    except typer.Abort:
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("DOCEXPRESS_DEBUG"):
            raise
        from orchestrator.cli.failures import explain

        code, sentence = explain(error)
        print(f"docexpress: {sentence}", file=sys.stderr)
        return code


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated(128 + number)


def _drop_output() -> None:
    """The reader of our output is gone (`docexpress jobs | head -1`): let the final flush go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
