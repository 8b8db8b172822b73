"""Ways to answer from a document: without compression, by what people do instead, and by each policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evaluation.bench import ROOM, Bench, Reading
from kernels.selection import make_policy
from kernels.selection.policy import SelectionPolicy

SEED = 20240501
OWN_SEGMENT = "own segment"


@dataclass(frozen=True, slots=True)
class Work:
    """One document's ids, what to do, how many tokens the answer may have, and entries for who compresses.

    question  what the instruction asks, alone; "" for a plain summary
    evidence  first and end place among the ids of what answers; None where that is not known
    """

    ids: tuple[int, ...]
    instruction: str
    answer_tokens: int
    entries: int
    question: str = ""
    evidence: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The text, seconds of prefill, probe and fold, and the evidence's place among ranked pieces or 0."""

    text: str
    prefill_seconds: float
    probe_seconds: float
    fold_seconds: float
    rank: int = 0


class Method(ABC):
    """Immutable; the same work gives the same answer."""

    name: str
    budgeted: bool
    """Whether `Work.entries` matters: if not, one answer stands for all compressions."""

    def suits(self, bench: Bench, work: Work) -> bool:
        """Whether this method can do the work at all."""
        return True

    @abstractmethod
    def answer(self, bench: Bench, work: Work) -> Answer: ...


def exact_policy(bench: Bench) -> SelectionPolicy:
    """Everything that the window holds, exactly."""
    return make_policy("exact", entries=bench.window, seed=SEED)


def read_exactly(bench: Bench, ids: Sequence[int], work: Work) -> Answer:
    """The answer from these ids alone, nothing of them compressed."""
    policy = exact_policy(bench)
    reading = bench.read(policy, ids, positions="original")
    return _written(bench, policy, reading, work)


def _written(bench: Bench, policy: SelectionPolicy, reading: Reading, work: Work) -> Answer:
    text = bench.write(policy, reading, work.instruction, work.answer_tokens)
    return Answer(text, reading.prefill_seconds, reading.probe_seconds, reading.fold_seconds)


@dataclass(frozen=True)
class Uncompressed(Method):
    """The whole document in the window, where it fits."""

    name: str = "uncompressed"
    budgeted: bool = False

    def suits(self, bench: Bench, work: Work) -> bool:
        return bench.fits(len(work.ids))

    def answer(self, bench: Bench, work: Work) -> Answer:
        return read_exactly(bench, work.ids, work)


@dataclass(frozen=True)
class Truncated(Method):
    """The first and the last half of what fits into the window; between them the document is cut out."""

    name: str = "truncated"
    budgeted: bool = False

    def suits(self, bench: Bench, work: Work) -> bool:
        return not bench.fits(len(work.ids))

    def answer(self, bench: Bench, work: Work) -> Answer:
        half = (bench.window - ROOM) // 2
        return read_exactly(bench, [*work.ids[:half], *work.ids[-half:]], work)


@dataclass(frozen=True)
class OwnSegment(Method):
    """The segment with what answers, and nothing else: what the model can answer at all."""

    name: str = OWN_SEGMENT
    budgeted: bool = False

    def suits(self, bench: Bench, work: Work) -> bool:
        return work.evidence is not None and len(work.ids) > bench.segment_tokens

    def answer(self, bench: Bench, work: Work) -> Answer:
        if work.evidence is None:
            raise ValueError("evidence is None; a method was asked for work that does not suit it")
        opening, size = bench.engine.loaded.prompt.prefix_ids, bench.segment_tokens
        first, end = (place - len(opening) for place in work.evidence)
        start = max(first // size * size, end - size)  # evidence that a border cuts is read whole
        return read_exactly(bench, [*opening, *work.ids[len(opening) :][start : start + size]], work)


@dataclass(frozen=True)
class MapReduce(Method):
    """Every chunk is asked alone; then the same is asked of all answers together.

    chunk_tokens  of the document at a time; answers that do not fit into the window are cut at its end
    """

    name: str = "map-reduce"
    budgeted: bool = False
    chunk_tokens: int = 4096

    def answer(self, bench: Bench, work: Work) -> Answer:
        opening = bench.engine.loaded.prompt.prefix_ids
        body = work.ids[len(opening) :]
        length = min(self.chunk_tokens, bench.window - ROOM - len(opening))
        chunks = [body[start : start + length] for start in range(0, len(body), length)]
        answers = [read_exactly(bench, [*opening, *chunk], work) for chunk in chunks]
        if len(answers) > 1:
            together = "\n\n".join(answer.text for answer in answers)
            answers.append(read_exactly(bench, bench.document_ids(together)[: bench.window - ROOM], work))
        prefill = sum(answer.prefill_seconds for answer in answers)
        return replace(answers[-1], prefill_seconds=prefill)


@dataclass(frozen=True)
class ByPolicy(Method):
    """A compressed state, then the answer from it.

    aware  whether the policy may look at the instruction while it reads
    """

    policy: str = "express"
    parameters: dict[str, str] = field(default_factory=dict)
    aware: bool = True
    label: str = ""
    budgeted: bool = True

    @property
    def name(self) -> str:  # type: ignore[override]
        known = self.label or self.policy
        return known if self.aware or not self._can_be_told else f"{known} (question unknown)"

    @property
    def told(self) -> bool:
        """Whether the policy sees the instruction while it reads."""
        return self.aware and self._can_be_told

    @property
    def _can_be_told(self) -> bool:
        return "question" in make_policy(self.policy, entries=4096, seed=SEED).parameters

    def make(self, entries: int, instruction: str) -> SelectionPolicy:
        """The policy for a budget. Raises ValueError where the budget is too small for it."""
        parameters = dict(self.parameters)
        policy = make_policy(self.policy, entries=entries, seed=SEED, parameters=parameters)
        if self.told:
            parameters["question"] = instruction
            policy = make_policy(self.policy, entries=entries, seed=SEED, parameters=parameters)
        return policy

    def suits(self, bench: Bench, work: Work) -> bool:
        try:
            self.make(work.entries, work.instruction)
        except ValueError:
            return False
        return True

    def answer(self, bench: Bench, work: Work) -> Answer:
        policy = self.make(work.entries, work.instruction)
        return _written(bench, policy, bench.read(policy, work.ids), work)
