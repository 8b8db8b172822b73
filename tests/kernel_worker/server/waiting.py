"""Waiting on a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 20.0  # seconds; far more than anything here takes


def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Returns once `condition` holds; AssertionError when it does not in time."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)
