"""Sinks and recent tokens exactly, everything between them as a compactor's stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kernels.compactor import LEAST_ROOM, CompactorStream
from kernels.halving import named_halving
from kernels.selection.streamed import StreamedPolicy


@dataclass(frozen=True, slots=True)
class CompactorPolicy(StreamedPolicy):
    """Half of the budget recent tokens, and a stream that uses nearly all of what the sinks leave."""

    name: ClassVar[str] = "compactor"

    @property
    def smallest(self) -> int:
        return LEAST_ROOM

    def streamed(self, seen: int) -> int:
        """All but the sinks and the recent tokens."""
        return seen - self.sinks - self.recent

    def stream(self) -> CompactorStream:
        return CompactorStream(self.room, named_halving(self.halving, centred=self.centred), self.seed)
