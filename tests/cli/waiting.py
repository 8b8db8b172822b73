"""Waiting for a condition, with a deadline, in place of sleeping for a guessed time."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    """Return as soon as `condition()` is true; fail when it is not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not true after {seconds:.0f} s"
        time.sleep(0.02)
