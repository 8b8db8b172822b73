"""What a job is: its options, record and result. Data alone; `job_store.py` moves it from state to state.

submitted -> ingest -> [ prefill i -> compress i ] for each segment i -> [ rank ] -> decode -> done
             any stage -> failed        any time -> cancelled
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from orchestrator.errors import OptionError

Kind: TypeAlias = Literal["summarize", "ask", "complete"]
Stage: TypeAlias = Literal["ingest", "prefill", "compress", "rank", "decode"]
STAGES: tuple[Stage, ...] = ("ingest", "prefill", "compress", "rank", "decode")
Room: TypeAlias = Literal["calls", "rows"]
"""What of a worker a job takes: one of the calls that it computes at once, or a row of what it writes."""
ROOMS: tuple[Room, ...] = ("calls", "rows")
REREAD = "reread"
"""The first part of a decode that reads again: told apart in events and seconds, but no place of its own."""
PHASES: tuple[str, ...] = (*STAGES[:-1], REREAD, STAGES[-1])
TERMINAL = frozenset({"done", "failed", "cancelled"})
DEFAULT_MODEL = "SmolLM2-135M-Instruct"
_POSITIONS = ("auto", "dense", "original")
_MAX_SEED = 2**63 - 1
_MAX_COUNT = 2**31 - 1
_MAX_REREAD = 1024


@dataclasses.dataclass(frozen=True, slots=True)
class JobOptions:
    """What a user may choose for a job; the defaults are the product's.

    `model` is a name or fingerprint that a registered worker announces. `query` bends a summary towards a
    question. `policy_parameters` go to the selection policy as they are (strings). Without a
    `repetition_penalty` small models fall into loops when they take the likeliest token each time. `reread`
    is the most passages of the document that are read again for a question or a query; with 0 the answer
    comes from the state.
    """

    model: str = DEFAULT_MODEL
    query: str | None = None
    cache_entries: int = 1024
    segment_tokens: int = 1024
    policy: str = "express"
    policy_parameters: Mapping[str, str] = dataclasses.field(default_factory=dict)
    positions: str = "auto"
    max_new_tokens: int = 256
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    repetition_penalty: float = 1.1
    reread: int = 3

    def __post_init__(self) -> None:
        """Raises OptionError for a value that no worker would accept."""
        for name in ("cache_entries", "segment_tokens", "max_new_tokens"):
            _positive(name, getattr(self, name))
        _require(
            "reread", self.reread, 0 <= self.reread <= _MAX_REREAD, f"an integer from 0 to {_MAX_REREAD}"
        )
        _require("seed", self.seed, 0 <= self.seed <= _MAX_SEED, "an integer from 0 to 2^63 - 1")
        _require("temperature", self.temperature, _finite(self.temperature, 0.0), "a number of at least 0")
        _require("top_p", self.top_p, 0.0 < self.top_p <= 1.0, "a number above 0 and at most 1")
        penalty = self.repetition_penalty
        _require("repetition_penalty", penalty, _finite(penalty, 0.0) and penalty > 0, "a number above 0")
        _require("positions", self.positions, self.positions in _POSITIONS, "one of " + ", ".join(_POSITIONS))
        _require("model", self.model, bool(self.model.strip()), "the name of a model")
        _require("policy", self.policy, bool(self.policy.strip()), "the name of a policy")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobOptions:
        return cls(**data)


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """One job as its record stood at the moment of reading. Times are seconds since the epoch.

    `attempt` counts deliveries of stages (it never goes back, so that an old message matches nothing);
    `failures` counts failed tries since the job last made progress. `best_segments` and `best_tokens` are
    the marks that tell progress from going over the same ground again. `claim` is the token of the task
    that works on the stage now, "" when it is queued or parked. `plan_seed` is the seed of the state, which a
    question shares with the job it asks; `options.seed` that of the text. `question` is what is asked, or the
    whole instruction where the kind is "complete". `passages` are what the decode reads again, as `rank`
    chose them: objects with segment, first and count (token ids), start and end (characters), score;
    `needs_state` tells that it chose none, so that the text has to come from the state.
    """

    id: str
    tenant: str
    kind: Kind
    title: str
    status: str
    options: JobOptions
    created: float
    updated: float
    stage: Stage = "ingest"
    segment: int = 0
    attempt: int = 0
    failures: int = 0
    claim: str = ""
    parked: bool = False
    not_before: float = 0.0
    queued: float = 0.0
    missing_since: float = 0.0
    question: str | None = None
    document: str = ""
    tokens: str = ""
    token_count: int = 0
    prefill_tokens: int = 0
    segments: int = 0
    model_fingerprint: str = ""
    positions: str = ""
    bytes_per_token: int = 0
    plan_seed: int = 0
    state: str = ""
    parent_state: str = ""
    cache_entries: int = 0
    state_bytes: int = 0
    lease: str = ""
    worker: str = ""
    passages: Sequence[Mapping[str, Any]] = ()
    needs_state: bool = False
    best_segments: int = 0
    best_tokens: int = 0
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    reason: str = ""
    retryable: bool = False
    invalid: bool = False

    @property
    def finished(self) -> bool:
        return self.status in TERMINAL

    @property
    def room(self) -> Room:
        """What it takes where it stands. Texts are written together, and beside what is read."""
        return "rows" if self.stage == "decode" else "calls"

    @property
    def sought(self) -> str:
        """What is looked for in the document: a question or a query; "" where the whole of it matters."""
        if not self.options.reread or self.kind == "complete":
            return ""
        return ((self.question if self.kind == "ask" else self.options.query) or "").strip()

    @property
    def after_reading(self) -> Stage:
        """The stage that follows once the document's last state is stored."""
        return "rank" if self.sought and not self.needs_state else "decode"

    @property
    def can_do_without_state(self) -> bool:
        """Whether a state that is gone need not be made again: a question is answered from passages. The
        state is the product of every other job, and holds all of a document that fits into its budget."""
        fits = self.token_count <= self.options.cache_entries
        return self.kind == "ask" and bool(self.sought) and not self.needs_state and not fits


@dataclasses.dataclass(frozen=True, slots=True)
class JobResult:
    """What a finished job answers; `to_json` gives the documented object.

    `prefill_tokens` counts document tokens that this job itself prefilled: 0 when the state was stored
    already, and 0 for a question (the question's own tokens are the decode's prompt and are not counted).
    `full_cache_bytes` is what the uncompressed KV cache of `tokens_read` tokens would take. `reread_segments`
    are the passages that the text was written from, in the document's order, as objects with segment (from
    0, where the passage begins), start and end (characters of the document's text) and score; empty where the
    text was written from the state. `state`, `cache_entries` and `state_bytes` are None where the state was
    stored no longer and the text came from passages all the same. `error_estimate` is what compression cost
    in attention, relative and as the worker estimated it: the mean over layers, of which `error_by_layer` has
    each; None for a state that came without, or that is gone.
    """

    job_id: str
    kind: Kind
    model: str
    text: str
    question: str | None
    state: str | None
    tokens_read: int
    prefill_tokens: int
    tokens_written: int
    segments: int
    cache_entries: int | None
    state_bytes: int | None
    full_cache_bytes: int
    seconds: Mapping[str, float]
    finish_reason: str
    reread_segments: Sequence[Mapping[str, Any]] = ()
    error_estimate: float | None = None
    error_by_layer: Sequence[float] | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields in their documented order; `text` is named `summary` or `answer`, by the kind."""
        data: dict[str, Any] = {"job_id": self.job_id, "kind": self.kind, "model": self.model}
        data["summary" if self.kind == "summarize" else "answer"] = self.text
        for field in dataclasses.fields(self)[4:]:
            value = getattr(self, field.name)
            data[field.name] = dict(value) if isinstance(value, Mapping) else value
        data["reread_segments"] = [dict(passage) for passage in self.reread_segments]
        data["error_by_layer"] = None if self.error_by_layer is None else list(self.error_by_layer)
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobResult:
        later = {"reread_segments", "error_estimate", "error_by_layer"}
        names = {field.name for field in dataclasses.fields(cls)} - later - {"text"}
        text = data["summary" if data["kind"] == "summarize" else "answer"]
        # A result of before there was reading again, or the estimate, lacks their fields.
        errors = data.get("error_by_layer")
        return cls(
            text=text,
            reread_segments=tuple(data.get("reread_segments", ())),
            error_estimate=data.get("error_estimate"),
            error_by_layer=None if errors is None else tuple(errors),
            **{name: data[name] for name in names},
        )


def _positive(name: str, value: int) -> None:
    _require(name, value, 1 <= value <= _MAX_COUNT, f"an integer from 1 to {_MAX_COUNT}")


def _finite(value: float, least: float) -> bool:
    return math.isfinite(value) and value >= least


def _require(name: str, value: object, fine: bool, allowed: str) -> None:
    if not fine:
        raise OptionError(f"{name} is {value!r}, but must be {allowed}", name)
