"""The processes: worker, orchestrate, up, and evaluate."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

import typer

from orchestrator.cli.display import make_display
from orchestrator.cli.errors import UsageProblem
from orchestrator.cli.options import DEFAULTS


def worker(settings: dict[str, str | None]) -> NoReturn:
    """Become a kernel worker; its settings travel as environment variables, `settings` before what is set."""
    if importlib.util.find_spec("torch") is None:
        raise UsageProblem("a worker needs torch and transformers: install docexpress[worker]")
    given = {f"DOCEXPRESS_{name.upper()}": value for name, value in settings.items() if value is not None}
    sys.stdout.flush()
    # Not imported but executed: this package must not need what a worker needs.
    os.execve(  # noqa: S606 - a shell is not wanted
        sys.executable, [sys.executable, "-m", "kernel_worker"], os.environ | given
    )


def evaluate(arguments: list[str]) -> NoReturn:
    """Become `python -m evaluation` with these arguments."""
    for needed in ("evaluation", "torch", "bm25s", "rouge_score"):
        if importlib.util.find_spec(needed) is None:
            raise UsageProblem(f"there is no {needed}: install docexpress[worker,evaluation]")
    sys.stdout.flush()
    # Not imported but executed: this package must not need what a model needs.
    os.execv(  # noqa: S606 - a shell is not wanted
        sys.executable, [sys.executable, "-m", "evaluation", *arguments]
    )


def orchestrate() -> NoReturn:
    """Drive jobs until SIGTERM."""
    from orchestrator.celery_app import main
    from orchestrator.settings import Settings

    raise typer.Exit(main(Settings()))


def check_worker(listen: str | None) -> NoReturn:
    """Ask the worker on this host for its health; 0 when it serves, else 1 and a sentence."""
    from orchestrator.cli.health import worker_health

    status = worker_health(listen or os.environ.get("DOCEXPRESS_LISTEN", ""))
    print(f"The worker says {status}.", file=sys.stderr)
    raise typer.Exit(0 if status == "SERVING" else 1)


def check_orchestrator() -> NoReturn:
    """Ask Redis whether an orchestrator on this host takes messages; 0 when one does, else 1."""
    from orchestrator.liveness import consuming
    from orchestrator.settings import Settings

    alive = consuming(Settings())
    print(f"The orchestrator on this host {'works' if alive else 'does not work'}.", file=sys.stderr)
    raise typer.Exit(0 if alive else 1)


def up(model: str | None, port: int | None = None) -> None:
    """Run the whole stack until Ctrl-C or SIGTERM, with a port the HTTP API on loopback, too."""
    from orchestrator.cli.serving import LOOPBACK, address, api_beside
    from orchestrator.cli.session import open_session
    from orchestrator.embedded.home import STORE_ONLY, default_home
    from orchestrator.embedded.session import running_stack

    if os.environ.get("DOCEXPRESS_REDIS_URL"):
        raise UsageProblem(
            "DOCEXPRESS_REDIS_URL is set, so an embedded stack would not be used: unset it,"
            " or start `docexpress worker` and `docexpress orchestrate`"
        )
    if (run := running_stack(default_home())) is not None:
        raise UsageProblem(f"a stack is running already, started by process {run.owner}")
    bound = None if port is None else address(LOOPBACK, port)
    display = make_display(quiet=False)
    with open_session(display, STORE_ONLY) as session:
        if session.connection.stack is None:
            raise UsageProblem("a stack was started at the same time by another command")
        session.need_workers(model or DEFAULTS.model)
        display.close()
        display.note(f"docexpress is up with {model or DEFAULTS.model}; Ctrl-C stops it.")
        with api_beside(session.connection, bound, display.note) as check:
            _wait(check)


def _wait(check: Callable[[], None]) -> None:
    stopped = threading.Event()
    try:
        while not stopped.wait(0.5):
            check()
    except KeyboardInterrupt:
        return
