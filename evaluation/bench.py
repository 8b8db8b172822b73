"""A model, and what all methods do with it: read a document by a policy, write an answer from the state."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch

from kernel_worker.cache import Positions
from kernel_worker.engine import Engine
from kernel_worker.estimate import ReadSegment, accumulated, fold_errors
from kernel_worker.sampling import Sampling
from kernels.selection.observation import Observation, Probe
from kernels.selection.policy import CompressedKV, SelectionPolicy
from orchestrator.jobs import JobOptions

PENALTY = JobOptions().repetition_penalty
ROOM = 320  # positions left for an instruction and its answer


@dataclass(frozen=True, slots=True)
class Reading:
    """A document that was read: its state, and seconds of prefill, of probes and of folds.

    errors  what the product stores with the state as its figure for each layer; None where it cannot be told
    """

    state: CompressedKV
    positions: Positions
    prefill_seconds: float = 0.0
    probe_seconds: float = 0.0
    fold_seconds: float = 0.0
    errors: tuple[float, ...] | None = None

    @property
    def estimate(self) -> float | None:
        """The mean over layers, which results show as `error_estimate`."""
        return None if self.errors is None else fmean(self.errors)


@dataclass
class Bench:
    """One engine. Remembers the last first segment, which no policy changes, and observations of it."""

    engine: Engine
    segment_tokens: int
    _key: tuple[int, ...] = ()
    _segment: ReadSegment | None = None
    _segment_seconds: float = 0.0
    _observed: dict[Probe, tuple[Observation | None, float]] = field(default_factory=dict)
    remembered: dict[Hashable, Any] = field(default_factory=dict)
    """What methods keep of the document that they are at, for each other; emptied with every document."""

    @property
    def window(self) -> int:
        return self.engine.loaded.window

    def fits(self, tokens: int) -> bool:
        """Whether so many tokens, an instruction and an answer are within the trained window."""
        return tokens + ROOM <= self.window

    def document_ids(self, document: str) -> list[int]:
        """The ids of the template's opening and the document."""
        prompt = self.engine.loaded.prompt
        return [*prompt.prefix_ids, *prompt.tokenizer.encode(document)]

    def span(self, document: str, part: str) -> tuple[int, int]:
        """Where the tokens of a part stand among the ids of its document."""
        encode, opening = self.engine.loaded.prompt.tokenizer.encode, self.engine.loaded.prompt.prefix_ids
        start = document.index(part)
        before, up_to = (len(encode(document[:end])) for end in (start, start + len(part)))
        return len(opening) + before, len(opening) + up_to

    def text(self, ids: Sequence[int]) -> str:
        """The text of a document's ids."""
        text = self.engine.loaded.prompt.tokenizer.detokenizer()
        return "".join(text.push(token) for token in ids) + text.finish()

    def read(
        self, policy: SelectionPolicy, ids: Sequence[int], *, positions: Positions | None = None
    ) -> Reading:
        """Folds the document segment by segment, as the product does.

        One that is beyond the window is read in segments, too, where others are read in one piece.
        """
        fits = self.fits(len(ids))
        positions = positions or ("original" if fits else "dense")
        piece = self.segment_tokens if fits else min(self.segment_tokens, self.window // 8)
        state, spent = self.engine.empty_state(), (0.0, 0.0, 0.0)
        loaded = self.engine.loaded
        errors: tuple[float, ...] | None = (0.0,) * loaded.layers
        for start in range(0, len(ids), piece):
            part = tuple(ids[start : start + piece])
            segment, prefilled, observed, probed = self._read_segment(policy, state, part, positions)
            begun = time.perf_counter()
            with torch.inference_mode():
                after = policy.fold(state, segment.entries, observed)
            folded = time.perf_counter() - begun
            with torch.inference_mode():
                lost = fold_errors(policy, state, segment, after, loaded.rotary, positions)
            state, errors = after, accumulated(errors, lost)
            spent = (spent[0] + prefilled, spent[1] + probed, spent[2] + folded)
        return Reading(state, positions, *spent, errors)

    def write(self, policy: SelectionPolicy, reading: Reading, instruction: str, tokens: int) -> str:
        """A greedy answer of at most `tokens` tokens."""
        prompt = self.engine.loaded.prompt
        steps = self.engine.decode(
            policy,
            reading.state,
            prompt.instruction_ids(instruction),
            positions=reading.positions,
            sampling=Sampling(max_new_tokens=tokens, repetition_penalty=PENALTY),
        )
        text = prompt.tokenizer.detokenizer()
        return (
            "".join(text.push(step.token) for step in steps if step.token is not None) + text.finish()
        ).strip()

    def _read_segment(
        self, policy: SelectionPolicy, state: CompressedKV, ids: tuple[int, ...], positions: Positions
    ) -> tuple[ReadSegment, float, Observation | None, float]:
        """The segment as read and the policy's observation, each with its seconds."""
        if state.seen:
            segment, prefilled = self._prefill(policy, state, ids, positions)
            return segment, prefilled, *self._observe(policy, state, segment, ids, positions)
        if self._segment is None or self._key != ids:
            self._segment, self._segment_seconds = self._prefill(policy, state, ids, positions)
            self._key, self._observed = ids, {}
        if policy.probe is None:
            return self._segment, self._segment_seconds, None, 0.0
        if policy.probe not in self._observed:
            self._observed[policy.probe] = self._observe(policy, state, self._segment, ids, positions)
        return self._segment, self._segment_seconds, *self._observed[policy.probe]

    def _prefill(
        self, policy: SelectionPolicy, state: CompressedKV, ids: tuple[int, ...], positions: Positions
    ) -> tuple[ReadSegment, float]:
        begun = time.perf_counter()
        segment = self.engine.read(policy, state, ids, positions=positions)
        return segment, time.perf_counter() - begun

    def _observe(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        segment: ReadSegment,
        ids: tuple[int, ...],
        positions: Positions,
    ) -> tuple[Observation | None, float]:
        begun = time.perf_counter()
        observed = self.engine.observe(policy, state, segment.entries, ids, positions=positions)
        return observed, time.perf_counter() - begun
