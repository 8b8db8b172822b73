"""The text of the passages that an answer was written from, and the sentence in each that says it best."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cache_store.documents import read_document
from cache_store.store import CacheStore

_SENTENCE = re.compile(r"(?<=[.!?。！？])[\"”’)]*\s+|\n\s*\n|(?<=[。！？])")
_WORD = re.compile(r"\w+")


def passage_texts(store: CacheStore, document: str, passages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The text of each passage (characters start to end); one part of the document is held at a time.

    Raises what `read_document` raises.
    """
    texts, at = [""] * len(passages), 0
    end = max((passage["end"] for passage in passages), default=0)
    for part in read_document(store, document):
        if at >= end:
            break
        for place, passage in enumerate(passages):
            texts[place] += part[max(0, passage["start"] - at) : max(0, passage["end"] - at)]
        at += len(part)
    return texts


def excerpt(text: str, question: str, width: int) -> str:
    """The sentence with most of the question's rarer words, at most `width` characters, on one line."""
    sentences = [sentence for part in _SENTENCE.split(text) if (sentence := " ".join(part.split()))]
    words = [_words(sentence) for sentence in sentences]
    asked = _words(question)

    def worth(place: int) -> float:
        shared = asked & words[place]
        return sum(1 / sum(word in other for other in words) for word in shared)

    best = max(range(len(sentences)), key=worth, default=None)
    return "" if best is None else _shortened(sentences[best], asked, width)


def _shortened(sentence: str, asked: frozenset[str], width: int) -> str:
    """A part of a sentence that begins shortly before the question's first word in it."""
    if len(sentence) <= width:
        return sentence
    found = (match.start() for match in _WORD.finditer(sentence) if match.group().casefold() in asked)
    longest = max(0, len(sentence) - width + 2)
    start = min(longest, max(0, next(found, 0) - width // 4))
    before, after = "…" if start else "", "…" if start < longest else ""
    return before + sentence[start : start + width - 2] + after


def _words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _WORD.findall(text))
