"""Needles in a haystack: the Python reference, which is everywhere, or the text of a data folder."""

from __future__ import annotations

import json
import pydoc_data.topics
import re
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from evaluation.cases import Case
from evaluation.errors import DataMissing
from evaluation.needle_sentences import Needle

DEPTHS = (10.0, 30.0, 50.0, 70.0, 90.0)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"”’)]*\s")


def own_haystack() -> list[str]:
    """Paragraphs of the Python reference, in the order of their topics."""
    topics = pydoc_data.topics.topics
    text = "\n\n".join(topics[name] for name in sorted(topics))
    return [paragraph.strip() for paragraph in text.split("\n\n") if len(paragraph.split()) > 5]


def read_needles(folder: Path) -> tuple[list[str], tuple[Needle, ...]]:
    """Haystack and single needles of a folder with haystack_walden.txt and needles.json.

    Raises DataMissing.
    """
    haystack, specification = folder / "haystack_walden.txt", folder / "needles.json"
    for path in (haystack, specification):
        if not path.is_file():
            raise DataMissing(
                f"There is no {path}; --data names the folder that holds sets/, books/ and needle/."
            )
    rows = json.loads(specification.read_text(encoding="utf-8"))["needles"]
    needles = tuple(
        Needle(row["id"], row["needle"], row["question"], tuple(row["answers"]))
        for row in rows
        if "needle" in row
    )
    return haystack.read_text(encoding="utf-8").strip().split("\n\n"), needles


def with_needle(paragraphs: Sequence[str], words: int, depth: float, sentence: str) -> str:
    """About `words` words, with the sentence at the sentence end nearest to `depth` percent."""
    taken: list[str] = []
    count = 0
    for paragraph in cycle(paragraphs):
        if count >= words:
            break
        taken.append(paragraph)
        count += len(paragraph.split())
    text = "\n\n".join(taken)
    ends = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    place = min(ends, key=lambda end: abs(end - depth / 100 * len(text)))
    return " ".join(part for part in (text[:place].rstrip(), sentence, text[place:].lstrip()) if part)


def needle_cases(
    paragraphs: Sequence[str],
    needles: Sequence[Needle],
    words: int,
    count: int,
    depths: Sequence[float] = DEPTHS,
    *,
    reworded: bool = False,
) -> list[Case]:
    """`count` documents; needles, depths and places in the haystack vary, and are the same in every run.

    reworded  asks in other words than those of the sentence
    """
    cases = []
    for number in range(count):
        needle = needles[number % len(needles)]
        depth = depths[(number * 3 + number // len(needles) + words // 500) % len(depths)]
        first = number * 97 % len(paragraphs)
        turned = [*paragraphs[first:], *paragraphs[:first]]
        document = with_needle(turned, words, depth, needle.sentence)
        name, question = f"{needle.name}-{words}-{number}", needle.reworded if reworded else needle.question
        group = f"{words} words"
        cases.append(Case(name, document, question, needle.answers, group, depth, needle.sentence))
    return cases
