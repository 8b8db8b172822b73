"""The event stream of a job: what happened, in order, for whoever watches, early or late.

Kinds and their data (unknown kinds may be added and are to be ignored):

    stage     {stage, segment, segments}            a stage begins; segments is 0 until ingest has told;
                                                    "reread" is the part of decode before it writes
    progress  {stage, segment, segments, fraction}  fraction of this stage of this segment, 0 to 1
    token     {index, text}                         index 0, 1, 2, ... without a gap; text may be ""
    waiting   {stage, reason}                       the stage waits for a worker
    retry     {stage, segment, attempt, reason}     the stage (or an earlier one) is tried again
    done      {result}                              the documented result object
    failed    {reason, retryable, invalid}
    cancelled {}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

TERMINAL_KINDS = frozenset({"done", "failed", "cancelled"})


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One event. `id` orders events of a job and can be given to `Service.events(after=...)`."""

    id: str
    kind: str
    data: Mapping[str, Any]

    @property
    def time(self) -> float:
        """Seconds since the epoch, as the store's clock had it."""
        return int(self.id.split("-")[0]) / 1000

    @property
    def terminal(self) -> bool:
        return self.kind in TERMINAL_KINDS
