"""The life of one call, as the stages see it: does somebody still wait for the answer?"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from kernel_worker.errors import CallerGone


class Call:
    """Ends once, when the caller cancels, its deadline passes or the call is answered. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._gone = False
        self._callbacks: list[Callable[[], object]] = []

    @property
    def gone(self) -> bool:
        return self._gone

    def check(self) -> None:
        """Raises CallerGone when nobody waits any more; long work calls this once per layer or token."""
        if self._gone:
            raise CallerGone("The caller went away before the work was done.")

    def when_gone(self, callback: Callable[[], object]) -> None:
        """Calls `callback` when the call ends, or now if it has ended."""
        with self._lock:
            if not self._gone:
                self._callbacks.append(callback)
                return
        callback()

    def end(self) -> None:
        """Marks the call as ended; a second time does nothing."""
        with self._lock:
            callbacks, self._callbacks = self._callbacks, []
            self._gone = True
        for callback in callbacks:
            callback()
