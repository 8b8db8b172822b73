"""Rank: where in a stored document a question's words stand together. Text alone; the model is not run."""

from __future__ import annotations

import logging
import time
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from cache_store.documents import read_document
from cache_store.naming import Plan
from cache_store.tokens import token_count
from kernel_worker.calls import Call
from kernel_worker.errors import InvalidRequest
from kernel_worker.stages.desk import Desk, invalid_arguments
from kernel_worker.stages.reread import Span, gap_ids
from kernel_worker.tokenizer import TextTokenizer
from kernel_worker.words import window_scores, words

log = logging.getLogger(__name__)

BLOCKS = 8
"""In a segment. Windows begin at each block, so that no fact is cut by all that could hold it."""
WINDOW_BLOCKS = 2
MARGIN_BLOCKS = 1
"""Read before and after a window: what a sentence refers to mostly stands beside it."""
PASSAGE_BLOCKS = WINDOW_BLOCKS + 2 * MARGIN_BLOCKS


@dataclass(frozen=True, slots=True)
class RankRequest:
    """`count` is the most passages wanted; `instruction` and `max_new_tokens` are those of the decode."""

    tenant: str
    plan: Plan
    document: str
    tokens: str
    question: str
    instruction: str
    max_new_tokens: int
    count: int


@dataclass(frozen=True, slots=True)
class Passage:
    """`segment` in which it begins; characters [start, end) of the document; `score` among its like."""

    segment: int
    span: Span
    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """Passages in the order of the document, apart from each other; `seconds` of work."""

    passages: tuple[Passage, ...]
    seconds: float


@dataclass(slots=True)
class Blocks:
    """A document in blocks of `size` tokens: 16 bytes and the question's own words are held of each."""

    size: int
    tokens: int = 0
    starts: array[int] = field(default_factory=lambda: array("Q"))  # first character of each block
    ends: array[int] = field(default_factory=lambda: array("Q"))  # last character + 1
    counts: list[dict[str, int]] = field(default_factory=list)

    def add(self, piece: str, spans: Sequence[tuple[int, int]], at: int, asked: frozenset[str]) -> None:
        """A piece of the text, which begins at character `at`, and where its tokens stand in it."""
        for first, last in spans:
            if self.tokens % self.size == 0:
                self.starts.append(at + first)
                self.ends.append(0)
                self.counts.append({})
            self.ends[-1] = max(self.ends[-1], at + last)
            self.tokens += 1
        if not spans:
            return
        before = self.tokens - len(spans)
        for word, place in words(piece):
            if word in asked:
                token = before + bisect_right(spans, place, key=itemgetter(0)) - 1
                counts = self.counts[max(0, token) // self.size]
                counts[word] = counts.get(word, 0) + 1


def rank(desk: Desk, call: Call, request: RankRequest) -> Ranked:
    """The passages of the document that share the rarest words with the question, `count` at most.

    As many as the model's window holds beside the instruction and a quarter of it for the answer; all of a
    document that is no longer than so many passages. None where no word of the question tells passages apart.

    Raises InvalidRequest, StateMismatch for another model's plan, ObjectMissing and ObjectDamaged for the
    document or its tokens, CallerGone; what `ComputeSlots.run` raises.
    """
    desk.policy(request.plan)
    if not request.question.strip():
        raise InvalidRequest("The question is empty.")
    room = _room(desk, request)
    return desk.readers.run(call, lambda: _rank(desk, call, request, room))


def _room(desk: Desk, request: RankRequest) -> int:
    """How many tokens may be read again."""
    window = desk.loaded.window
    instruction = len(desk.prompt_ids(request.plan, request.instruction))
    answer = min(request.max_new_tokens, window // 4)
    return window - len(desk.loaded.prompt.prefix_ids) - instruction - answer


def _rank(desk: Desk, call: Call, request: RankRequest, room: int) -> Ranked:
    started, store = time.perf_counter(), desk.store(request.tenant)
    with invalid_arguments():
        stored = token_count(store.manifest("tokens", request.tokens))
        chunks = read_document(store, request.document)
    size = max(1, request.plan.segment_tokens // BLOCKS)
    gap = len(gap_ids(desk.loaded))
    count = min(request.count, max(0, room) // (PASSAGE_BLOCKS * size + gap))
    blocks = read_blocks(desk.loaded.tokenizer, call, chunks, request.question, size)
    prefix = len(desk.loaded.prompt.prefix_ids)
    if stored != prefix + blocks.tokens:
        raise InvalidRequest(f"The tokens {request.tokens} are not those of document {request.document}.")
    passages = tuple(
        _passage(blocks, first, stop, score, prefix, request.plan.segment_tokens)
        for first, stop, score in best_passages(blocks, count)
    )
    seconds = time.perf_counter() - started
    log.info("Rank: %d passages of %d tokens in %.2f s.", len(passages), stored, seconds)
    return Ranked(passages, seconds)


def read_blocks(
    tokenizer: TextTokenizer, call: Call, chunks: Iterable[str], question: str, size: int
) -> Blocks:
    """The document in `chunks` as blocks of `size` tokens. Raises CallerGone."""
    asked = frozenset(word for word, _ in words(question))
    blocks, at = Blocks(size), 0
    for piece, spans in tokenizer.located(chunks):
        call.check()
        blocks.add(piece, spans, at, asked)
        at += len(piece)
    return blocks


def best_passages(blocks: Blocks, count: int) -> list[tuple[int, int, float]]:
    """(first block, last block + 1, score) of the best passages, in order and apart from each other."""
    number = len(blocks.counts)
    scores = window_scores(blocks.counts, WINDOW_BLOCKS)
    if count and number <= count * PASSAGE_BLOCKS:
        return [(0, number, max(scores))]
    chosen: list[tuple[int, int, float]] = []
    for first in sorted(range(len(scores)), key=lambda window: (-scores[window], window)):
        if len(chosen) >= count or scores[first] <= 0:
            break
        stop = first + WINDOW_BLOCKS
        if not any(start <= first and stop <= end for start, end, _ in chosen):
            passage = max(0, first - MARGIN_BLOCKS), min(number, stop + MARGIN_BLOCKS), scores[first]
            chosen.append(passage)
    return _joined(sorted(chosen))


def _joined(passages: Sequence[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    """Those that overlap or touch as one, with the better score."""
    joined: list[tuple[int, int, float]] = []
    for start, end, score in passages:
        if joined and start <= joined[-1][1]:
            first, last, better = joined.pop()
            start, end, score = first, max(last, end), max(better, score)
        joined.append((start, end, score))
    return joined


def _passage(
    blocks: Blocks, first: int, stop: int, score: float, prefix: int, segment_tokens: int
) -> Passage:
    start = first * blocks.size
    span = Span(prefix + start, min(blocks.tokens, stop * blocks.size) - start)
    return Passage(span.first // segment_tokens, span, blocks.starts[first], blocks.ends[stop - 1], score)
