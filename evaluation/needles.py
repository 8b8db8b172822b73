"""Needles in a haystack: own ones in the Python reference, which is everywhere, or those of a data folder.

Every name in a needle is made up, so that no model knows the answer.
"""

from __future__ import annotations

import json
import pydoc_data.topics
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from evaluation.cases import Case
from evaluation.errors import DataMissing

DEPTHS = (10.0, 30.0, 50.0, 70.0, 90.0)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"”’)]*\s")


@dataclass(frozen=True, slots=True)
class Needle:
    """A sentence out of place, what asks for it, and what answers."""

    name: str
    sentence: str
    question: str
    answers: tuple[str, ...]


NEEDLES: tuple[Needle, ...] = (
    Needle(
        "bridge",
        "The toll bridge at Harrowmere closes for repairs on the ninth of October.",
        "On which day does the toll bridge at Harrowmere close for repairs?",
        ("ninth of october", "october 9", "9 october", "october 9th", "october ninth"),
    ),
    Needle(
        "violin",
        "The old violin of Marta Quillen was sold to a dentist from Brackwater.",
        "To whom was the old violin of Marta Quillen sold?",
        ("dentist",),
    ),
    Needle(
        "vault",
        "The combination of the Selby vault is 48-13-77.",
        "What is the combination of the Selby vault?",
        ("48-13-77",),
    ),
    Needle(
        "clock",
        "The clock in the tower of Wexcombe runs eleven minutes fast.",
        "How many minutes fast does the clock in the tower of Wexcombe run?",
        ("eleven", "11"),
    ),
    Needle(
        "statue",
        "The statue in the square of Lindhavn was carved by Otto Verrel.",
        "Who carved the statue in the square of Lindhavn?",
        ("verrel",),
    ),
    Needle(
        "train",
        "The night train to Corvallen departs from platform fourteen.",
        "From which platform does the night train to Corvallen depart?",
        ("fourteen", "14"),
    ),
    Needle(
        "gardener",
        "In her will Lady Penhallow left the silver compass to her gardener.",
        "To whom did Lady Penhallow leave the silver compass?",
        ("gardener",),
    ),
    Needle(
        "island",
        "The survey found that the island of Norrey is made of green basalt.",
        "What is the island of Norrey made of?",
        ("basalt",),
    ),
)


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
) -> list[Case]:
    """`count` documents; needles, depths and places in the haystack vary, and are the same in every run."""
    cases = []
    for number in range(count):
        needle = needles[number % len(needles)]
        depth = depths[(number * 3 + number // len(needles)) % len(depths)]
        first = number * 97 % len(paragraphs)
        turned = [*paragraphs[first:], *paragraphs[:first]]
        document = with_needle(turned, words, depth, needle.sentence)
        name = f"{needle.name}-{words}-{number}"
        cases.append(Case(name, document, needle.question, needle.answers, f"{words} words", depth))
    return cases
