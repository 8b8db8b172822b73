"""Flower, Celery's monitor, over the queues of this stack: `python -m orchestrator.flower` with its options.

It needs the extra docexpress[flower], and DOCEXPRESS_TASK_EVENTS=true for the orchestrators to tell it of
their tasks. It shows job ids and tenants' names to whoever opens it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from orchestrator.celery_app import make_app
from orchestrator.settings import Settings


def main(arguments: Sequence[str]) -> None:
    """Serves until it is stopped."""
    make_app(Settings()).start(["flower", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
