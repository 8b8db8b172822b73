"""Locks between processes that the kernel gives back when their holder dies, however it dies."""

import fcntl
import os
from pathlib import Path
from types import TracebackType


class FileLock:
    """`flock` on one file: held by one process alone, or shared by many.

    The file stays when the lock goes: removing it would let two processes hold "the" lock at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle: int | None = None

    @property
    def held(self) -> bool:
        return self._handle is not None

    def fileno(self) -> int:
        """The held file; a child that inherits it keeps the lock for as long as it lives."""
        if self._handle is None:
            raise RuntimeError(f"{self._path} is not locked by this process")
        return self._handle

    def try_exclusive(self) -> bool:
        """Take the lock alone if nobody has it; never waits."""
        return self._take(fcntl.LOCK_EX | fcntl.LOCK_NB)

    def try_shared(self) -> bool:
        """Take the lock beside other sharers if nobody holds it alone; never waits."""
        return self._take(fcntl.LOCK_SH | fcntl.LOCK_NB)

    def release(self) -> None:
        """Give the lock back; does nothing when it is not held."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _take(self, operation: int) -> bool:
        if self.held:
            raise RuntimeError(f"{self._path} is locked by this process already")
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, operation)
        except BlockingIOError:
            os.close(handle)
            return False
        self._handle = handle
        return True

    def __enter__(self) -> "FileLock":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
