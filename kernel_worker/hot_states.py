"""States that are already on the device, so that the next segment need not read its parent from the store."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from kernels.selection.policy import CompressedKV


class HotStates:
    """The most recently used states: at most `count`, of at most `nbytes` in all. Thread-safe.

    Keys hold the tenant: a state of one tenant is never found, or found faster, by another.
    """

    def __init__(self, *, count: int, nbytes: int) -> None:
        self.hits = self.misses = 0
        self._count, self._nbytes = count, nbytes
        self._lock = Lock()
        self._states: OrderedDict[tuple[str, str], CompressedKV] = OrderedDict()

    def get(self, tenant: str, name: str) -> CompressedKV | None:
        with self._lock:
            state = self._states.get((tenant, name))
            if state is None:
                self.misses += 1
            else:
                self.hits += 1
                self._states.move_to_end((tenant, name))
            return state

    def put(self, tenant: str, name: str, state: CompressedKV) -> None:
        """Keeps the state, at the cost of the least recently used ones; one that is too large is not kept."""
        with self._lock:
            self._states[tenant, name] = state
            self._states.move_to_end((tenant, name))
            while len(self._states) > self._count or self._held() > self._nbytes:
                self._states.popitem(last=False)

    def discard(self, tenant: str, name: str) -> None:
        with self._lock:
            self._states.pop((tenant, name), None)

    def names(self) -> tuple[str, ...]:
        """Names of the states, least recently used first."""
        with self._lock:
            return tuple(name for _, name in self._states)

    def _held(self) -> int:
        return sum(state.entries.nbytes for state in self._states.values())
