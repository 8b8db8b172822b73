"""Documents with something to do on each: what a task hands to every method alike."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from evaluation.errors import DataMissing

_EVIDENCE = re.compile(r'evidence at \d+%: "(.*)"$')


@dataclass(frozen=True, slots=True)
class Case:
    """One piece of work.

    name        unique within its task; decides on which half it stands
    document    plain text
    question    what to ask, or "" for a plain summary
    references  accepted answers, or summaries to compare with
    group       what the report shows apart: a length, a source, a depth in percent
    depth       of a needle, in percent
    evidence    what of the document answers, word for word; "" where that is not known
    """

    name: str
    document: str
    question: str
    references: tuple[str, ...]
    group: str = ""
    depth: float | None = None
    evidence: str = ""


def read_set(path: Path, limit: int | None = None) -> list[Case]:
    """The rows of a JSONL file with id, document, query and references. Raises DataMissing."""
    if not path.is_file():
        raise DataMissing(
            f"There is no {path}; --data names the folder that holds sets/, books/ and needle/."
        )
    cases = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            cited = _EVIDENCE.search(row.get("source", ""))
            evidence = cited[1] if cited and row["document"].count(cited[1]) == 1 else ""
            references = tuple(row["references"])
            cases.append(
                Case(row["id"], row["document"], row["query"] or "", references, path.stem, evidence=evidence)
            )
    return cases[:limit]
