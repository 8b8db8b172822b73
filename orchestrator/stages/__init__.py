"""The five stages of a job, one file each: a claimed job in, what comes next out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orchestrator.jobs import Stage
from orchestrator.stages.compress import compress
from orchestrator.stages.context import Finish, Next, Outcome, StageContext
from orchestrator.stages.decode import decode
from orchestrator.stages.ingest import ingest
from orchestrator.stages.prefill import prefill
from orchestrator.stages.rank import rank

STAGE_FUNCTIONS: Mapping[Stage, Callable[[StageContext], Outcome]] = {
    "ingest": ingest,
    "prefill": prefill,
    "compress": compress,
    "rank": rank,
    "decode": decode,
}

__all__ = ["STAGE_FUNCTIONS", "Finish", "Next", "Outcome", "StageContext"]
