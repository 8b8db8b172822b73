"""Results on disk, one JSON line each, written as soon as they are known: a stopped run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluation.errors import JournalForeign


@dataclass(frozen=True, slots=True)
class Result:
    """What one method made of one case.

    compression  how many times fewer entries than tokens; 1 without compression
    score        1 or 0 for right or wrong, ROUGE-L for summaries, nats for language modelling
    text         the answer, for reading; "" where none is written
    rank         place of the segment that answers among those ranked for the question; 0 where none are
    estimate     the relative attention error that the product tells of the state; None where none was made
    """

    task: str
    group: str
    case: str
    method: str
    compression: float
    entries: int
    score: float
    text: str = ""
    depth: float | None = None
    tokens: int = 0
    prefill_seconds: float = 0.0
    probe_seconds: float = 0.0
    fold_seconds: float = 0.0
    rank: int = 0
    estimate: float | None = None

    @property
    def key(self) -> tuple[str, str, str, float]:
        return self.task, self.case, self.method, self.compression


class Journal:
    """A file of results under a first line that says what they belong to."""

    def __init__(self, path: Path, belongs_to: dict[str, str | int]) -> None:
        """Opens or begins the file. Raises JournalForeign where it belongs to something else."""
        self._path = path
        self._results: dict[tuple[str, str, str, float], Result] = {}
        if path.exists():
            self._load(belongs_to)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(belongs_to, sort_keys=True) + "\n", encoding="utf-8")

    def __contains__(self, key: tuple[str, str, str, float]) -> bool:
        return key in self._results

    def __iter__(self) -> Iterator[Result]:
        return iter(self._results.values())

    def add(self, result: Result) -> None:
        """Writes the result through to the file."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result), ensure_ascii=False) + "\n")
        self._results[result.key] = result

    def _load(self, belongs_to: dict[str, str | int]) -> None:
        # The last line may be unfinished, if the run was killed while it wrote: it is measured again.
        text = self._path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self._path.write_text(whole, encoding="utf-8")
        first, *lines = whole.splitlines() or ["{}"]
        if json.loads(first) != belongs_to:
            raise JournalForeign(
                f"{self._path} holds results of {first}, not of {json.dumps(belongs_to, sort_keys=True)};"
                " take another --out."
            )
        for line in lines:
            result = Result(**json.loads(line))
            self._results[result.key] = result
