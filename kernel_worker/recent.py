"""What was found out lately and may be asked for again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The `count` values that were used last. Thread-safe.

    Keys of what belongs to a tenant hold the tenant: none finds faster what another asked for.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = Lock()
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def get(self, key: Key, find: Callable[[], Value]) -> Value:
        """The value, from `find` where it is not known; what that raises is raised, and nothing is kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = find()  # without the lock: two that ask at once both find it
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._count:
                self._values.popitem(last=False)
        return value
