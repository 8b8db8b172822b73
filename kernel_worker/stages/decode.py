"""Decode: text is written from a stored state, or from passages that are read again before.

It can be taken up again where it broke off.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from cache_store.errors import BudgetExceeded, FormatMismatch, ObjectDamaged, ObjectMissing, StoreUnavailable
from cache_store.naming import Plan, derived_name
from cache_store.states import load_with_meta, save_state
from cache_store.store import CacheStore
from kernel_worker.admission import DRAINING
from kernel_worker.cache import Positions
from kernel_worker.calls import Call
from kernel_worker.decoding import DecodeCheckpoint, DecodeStep, Decoding
from kernel_worker.engine import FOLD_EVERY
from kernel_worker.errors import InvalidRequest, WorkerDraining
from kernel_worker.sampling import Sampling
from kernel_worker.stages.desk import Desk, invalid_arguments, positions_of
from kernel_worker.stages.reread import Span, exact_policy, passage_ids, read_again
from kernel_worker.tokenizer import StreamDetokenizer
from kernels.selection import CompressedKV, SelectionPolicy

log = logging.getLogger(__name__)

_IDS: TypeAdapter[tuple[int, ...]] = TypeAdapter(
    Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
)


@dataclass(frozen=True, slots=True)
class DecodeRequest:
    """With passages to read again the text is written from these alone; `tokens` names their ids."""

    tenant: str
    plan: Plan
    state: str
    instruction: str
    sampling: Sampling
    tokens: str = ""
    reread: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Rereading:
    tokens_done: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Started:
    """`resumed_tokens` come from the checkpoint of that name, and are sent again from index 0."""

    prompt_tokens: int
    resumed_tokens: int
    checkpoint: str


@dataclass(frozen=True, slots=True)
class Token:
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Finished:
    finish_reason: str
    tokens_written: int
    seconds: float
    reread_seconds: float


DecodeEvent = Rereading | Started | Token | Finished
Emit = Callable[[DecodeEvent], None]


@dataclass(frozen=True, slots=True)
class _Writing:
    """One decode on its way. The checkpoint's name holds everything that decides the text."""

    request: DecodeRequest
    policy: SelectionPolicy
    positions: Positions
    prompt: tuple[int, ...]
    reread: tuple[int, ...]  # ids of the passages, with the template's opening
    checkpoints: CacheStore
    checkpoint: str


class _Voice:
    """Hands tokens on as text. One without text of its own waits for the next that has some, so that text
    that is still held back at the end belongs to a token."""

    def __init__(self, text: StreamDetokenizer, emit: Emit) -> None:
        self._text, self._emit = text, emit
        self._waiting: list[Token] = []

    def say(self, index: int, token: int) -> None:
        text = self._text.push(token)
        self._waiting.append(Token(index, text))
        if text:
            self._hand_on()

    def finish(self) -> None:
        if self._waiting:
            self._waiting[-1] = Token(self._waiting[-1].index, self._text.finish())
            self._hand_on()

    def _hand_on(self) -> None:
        for token in self._waiting:
            self._emit(token)
        self._waiting.clear()


def decode(desk: Desk, call: Call, request: DecodeRequest) -> Iterator[DecodeEvent]:
    """Rereading where there is something to read, Started, a Token for each token, Finished. Ends within a
    token, or a layer of reading, when the caller goes away.

    After every fold a checkpoint is stored before any later token is handed out; the same request finds it,
    on any worker, and gives the same text. A finished decode leaves no checkpoint behind. A draining worker
    goes on to the next checkpoint.

    Raises InvalidRequest for an empty or too long instruction or too many tokens, WorkerDraining, and what
    `Desk.policy`, `Desk.state`, `ComputeSlots` and `Batcher.steps` raise.
    """
    policy = desk.policy(request.plan)
    prompt = desk.prompt_ids(request.plan, request.instruction)
    if request.sampling.max_new_tokens > desk.settings.max_new_tokens:
        raise InvalidRequest(
            f"max_new_tokens is {request.sampling.max_new_tokens}; this worker writes at most"
            f" {desk.settings.max_new_tokens}."
        )
    positions = positions_of(request.plan)
    ids: tuple[int, ...] = ()
    if request.reread:
        store = desk.store(request.tenant)
        ids = passage_ids(desk, store, request.tokens, request.reread, len(prompt))
        policy, positions = exact_policy(desk), "original"
    checkpoints = desk.checkpoints(request.tenant)
    name = _checkpoint_name(request, prompt, ids)
    writing = _Writing(request, policy, positions, prompt, ids, checkpoints, name)
    return desk.writers.stream(call, partial(_write, desk, call, writing))


def _checkpoint_name(request: DecodeRequest, prompt: tuple[int, ...], reread: tuple[int, ...]) -> str:
    return derived_name(
        "checkpoint",
        {
            "plan": request.plan.to_json(),
            "state": request.state,
            "prompt": list(prompt),
            "reread": list(reread),
            "sampling": asdict(request.sampling),
            "fold_every": FOLD_EVERY,
        },
    )


def _write(desk: Desk, call: Call, writing: _Writing, emit: Emit) -> None:
    started, voice = time.perf_counter(), _Voice(desk.loaded.tokenizer.detokenizer(), emit)
    resumed = _load_checkpoint(desk, writing)
    state = resumed.state if resumed else _state(desk, call, writing, emit)
    reread_seconds = time.perf_counter() - started if writing.reread else 0.0
    ids = resumed.ids if resumed else ()
    emit(Started(len(writing.prompt), len(ids), writing.checkpoint))
    for index, token in enumerate(ids):
        voice.say(index, token)
    with closing(_steps(desk, call, writing, state, resumed)) as steps:
        del state, resumed  # as large as all passages, and needed only until the text has begun
        for step in steps:
            call.check()
            if step.token is None:
                break
            # The one after the prompt costs little to compute again; each later one stands for a whole fold.
            if step.checkpoint is not None and step.index > 0:
                _save_checkpoint(desk, writing, step.checkpoint)
            voice.say(step.index, step.token)
    voice.finish()
    seconds = time.perf_counter() - started
    log.info("Decode from %.12s: %d tokens in %.2f s.", writing.request.state, step.index, seconds)
    emit(Finished(step.finish or "length", step.index, seconds, reread_seconds))
    _drop_checkpoint(writing)


def _state(desk: Desk, call: Call, writing: _Writing, emit: Emit) -> CompressedKV:
    """What the text is written from: the stored state, or the passages, read now."""
    request = writing.request
    if not writing.reread:
        return desk.state(desk.store(request.tenant), request.plan, request.state)

    def progress(done: int, tokens: int) -> None:
        emit(Rereading(done, tokens))

    piece = request.plan.segment_tokens
    return desk.slots.run(call, lambda: read_again(desk, call, writing.reread, piece, progress))


def _steps(
    desk: Desk, call: Call, writing: _Writing, state: CompressedKV, resumed: DecodeCheckpoint | None
) -> Generator[DecodeStep, None, None]:
    """The prompt, then tokens in company."""
    # A policy may refuse what it would have to hold: its own sentence tells.
    with invalid_arguments():
        desk.engine.check_decode(
            writing.policy,
            state,
            writing.prompt,
            positions=writing.positions,
            sampling=writing.request.sampling,
            checkpoint=resumed,
        )
        steps = desk.batcher.steps(call, partial(_start, desk, call, writing, state, resumed))
        del state, resumed
        yield from steps


def _start(
    desk: Desk, call: Call, writing: _Writing, state: CompressedKV, resumed: DecodeCheckpoint | None
) -> tuple[DecodeStep | None, Decoding | None]:
    """Reads the prompt, unless the text goes on from a checkpoint."""
    sampling, positions, first = writing.request.sampling, writing.positions, None
    if resumed is None:
        first = desk.engine.read_prompt(
            writing.policy,
            state,
            writing.prompt,
            positions=positions,
            sampling=sampling,
            on_layer=lambda _: call.check(),
        )
        if first.checkpoint is None:
            return first, None
        resumed = first.checkpoint
    decoding = Decoding(
        desk.loaded, writing.policy, resumed, positions=positions, sampling=sampling, fold_every=FOLD_EVERY
    )
    return first, decoding


def _load_checkpoint(desk: Desk, writing: _Writing) -> DecodeCheckpoint | None:
    """Where an earlier call with the same request stopped; one that cannot be used is none."""
    if not writing.checkpoints.exists("checkpoint", [writing.checkpoint])[0]:
        return None
    try:
        state, meta = load_with_meta(
            writing.checkpoints,
            writing.checkpoint,
            writing.request.plan,
            kind="checkpoint",
            device=desk.loaded.device,
            expect=desk.shape(),
        )
        ids = _IDS.validate_python(meta.extra.get("ids"))
    except (ObjectMissing, ObjectDamaged, FormatMismatch, ValidationError) as error:
        log.warning("Decoding starts over without its checkpoint: %s", type(error).__name__)
        return None
    return DecodeCheckpoint(state, ids)


def _drop_checkpoint(writing: _Writing) -> None:
    try:
        writing.checkpoints.delete("checkpoint", writing.checkpoint)
    except StoreUnavailable as error:  # it expires
        log.warning("A checkpoint was not deleted: %s", error)


def _save_checkpoint(desk: Desk, writing: _Writing, checkpoint: DecodeCheckpoint) -> None:
    """Stores the checkpoint, if there is room for it: without one a broken decode starts over, no worse.

    Raises WorkerDraining, now that the rest can be written elsewhere.
    """
    try:
        save_state(
            writing.checkpoints,
            writing.checkpoint,
            checkpoint.state,
            writing.request.plan,
            None,
            kind="checkpoint",
            extra={"ids": list(checkpoint.ids)},
            replace=True,
        )
    except (BudgetExceeded, StoreUnavailable) as error:
        log.warning("A checkpoint was not stored: %s", error)
    if desk.writers.draining:
        raise WorkerDraining(DRAINING)
