"""StreamingLLM's window over most of the budget, and a weighted sample of everything before it.

Own work, measured in `docs/quality.md`: what comes next is told mostly by what stands shortly before, and the
little room that is left is worth more to what was looked at than to still more recent tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kernels.selection.importance import ImportancePolicy


@dataclass(frozen=True, slots=True)
class StreamingImportancePolicy(ImportancePolicy):
    """`importance` with three quarters of the budget for the last tokens, and tempered weights.

    Needs more than 4 * `sinks` entries.
    """

    name: ClassVar[str] = "streaming+importance"
    recent: float = 0.75
    temper: float = 0.5
