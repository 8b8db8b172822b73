"""SIGTERM and SIGINT as something the main thread can wait for."""

from __future__ import annotations

import select
import signal
import socket
from types import FrameType, TracebackType
from typing import Self


class StopSignals:
    """Within the block, SIGTERM and SIGINT are told by `wait` instead of ending the process.

    The interpreter writes them to a socket: unlike an Event set in a handler, that cannot deadlock.
    Main thread only.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __enter__(self) -> Self:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._before_fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, _noted) for number in self._SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before_fd)
        self._read.close()
        self._write.close()

    def wait(self, seconds: float | None = None) -> bool:
        """True once one of the signals has come since the last call, False after `seconds` without."""
        ready, _, _ = select.select([self._read], [], [], seconds)
        return bool(ready) and bool(self._read.recv(1))


def _noted(number: int, frame: FrameType | None) -> None:
    """The byte on the socket says it all."""
