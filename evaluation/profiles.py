"""How much is measured: tasks with their cases, methods, compressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal

from evaluation.cases import Case, read_set
from evaluation.errors import MethodUnknown
from evaluation.methods import ByPolicy, MapReduce, Method, OwnSegment, Truncated, Uncompressed
from evaluation.needle_sentences import NEEDLES
from evaluation.needles import needle_cases, own_haystack, read_needles
from evaluation.product_rereading import ProductReread
from evaluation.rereading import Reread
from evaluation.tasks import Task, key_task, question_task, summary_task

Half = Literal["choose", "report", "all"]

COMPOSED = ("snapkv+express", "importance+express", "passages+express")
AWARE = (
    "snapkv",
    "pyramidkv",
    "expected_attention",
    "importance",
    "streaming+importance",
    "passages",
    *COMPOSED,
)
"""Policies that can look at the instruction while they read."""
BLIND = ("streaming", "uniform", "express", "compactor", "keydiff", "knorm", "kvzip")
"""Policies that look at the document alone."""
WORDS = ((1, 1024), (2, 1024), (3, 1024), (2, 512), (3, 512), (4, 512), (6, 512), (4, 256), (8, 256))
"""Pieces to read again, and the tokens of a piece, where pieces are ranked by words."""
REWORDED = "far-needle-reworded"
"""The task whose questions share no word with what answers them."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Counts of cases; words of the needle documents; compressions.

    far_words    needle documents beyond the window, read in segments of 1,024 at `far_entries`
    book_windows windows of 8,192 tokens a book
    stream_tokens length of the streams beyond the window
    """

    name: str
    compressions: tuple[int, ...]
    needle_words: tuple[int, ...]
    needle_cases: int
    set_cases: int
    summary_cases: int
    far_words: tuple[int, ...]
    far_cases: int
    far_entries: int
    book_windows: int
    stream_tokens: int


SHORT = Profile("short", (4, 16), (1000,), 4, 2, 0, (), 0, 1024, 1, 0)
FULL = Profile("full", (4, 8, 16, 32), (2150, 4150), 60, 20, 20, (9500, 19000, 48000), 24, 1024, 4, 65536)
PROFILES = {profile.name: profile for profile in (SHORT, FULL)}


def methods(names: Sequence[str] | None = None) -> list[Method]:
    """Baselines first, then all policies, those that can be told the instruction in both ways.

    Raises MethodUnknown for a name that none of them has.
    """
    known: list[Method] = [Uncompressed(), OwnSegment(), Truncated(), MapReduce()]
    known += [ByPolicy(policy=name, aware=True) for name in AWARE]
    known.append(ByPolicy(policy="snapkv", parameters={"width": "15"}, label="snapkv (width 15)"))
    known += [ByPolicy(policy=name, aware=False) for name in BLIND]
    known += [ByPolicy(policy=name, aware=False) for name in AWARE]
    for last in (False, True):
        known += [ProductReread(passages, last) for passages in (1, 2, 3, 5, 12)]
        known += [Reread("words", pieces, unit, last) for pieces, unit in WORDS]
        known += [
            Reread(ranking, pieces, 1024, last) for ranking in ("likelihood", "both") for pieces in (1, 2, 3)
        ]
    if names is None:
        return known
    there = [method.name for method in known]
    for unknown in sorted(set(names) - set(there)):
        near = [name for name in there if unknown in name] or get_close_matches(unknown, there)
        raise MethodUnknown(
            f"There is no method {unknown!r}; near it: {', '.join(map(repr, near)) or 'none'}."
        )
    return [method for method in known if method.name in names]


def tasks(profile: Profile, data: Path | None, half: Half) -> list[Task]:
    """The tasks with answers in words. Without a data folder: needles in the Python reference alone."""
    paragraphs, needles = own_haystack(), NEEDLES
    if data is not None:
        paragraphs, more = read_needles(data / "needle")
        needles = (*more, *NEEDLES)
    made = [
        question_task("needle", _half(needle_cases(paragraphs, needles, words, profile.needle_cases), half))
        for words in profile.needle_words
    ]
    if data is None:
        return _joined(made)
    sets = data / "sets"
    for name in ("nq_multidoc_qa", "pd_qa"):
        made.append(question_task(name, _half(read_set(sets / f"{name}.jsonl", profile.set_cases), half)))
    made.append(
        key_task("kv_retrieval", _half(read_set(sets / "kv_retrieval.jsonl", profile.set_cases), half))
    )
    for name in ("squality", "qmsum", "govreport"):
        made.append(summary_task(name, _half(read_set(sets / f"{name}.jsonl", profile.summary_cases), half)))
    return [task for task in _joined(made) if task.cases]


def far_tasks(profile: Profile, data: Path | None, half: Half) -> list[Task]:
    """Needles in documents beyond the window."""
    if data is None or not profile.far_words:
        return []
    paragraphs, needles = read_needles(data / "needle")
    count = profile.far_cases
    made = [
        question_task(name, _half(needle_cases(paragraphs, known, words, count, reworded=reworded), half))
        for name, known, reworded in (("far-needle", (*needles, *NEEDLES), False), (REWORDED, NEEDLES, True))
        for words in profile.far_words
    ]
    return _joined(made)


def _joined(made: Sequence[Task]) -> list[Task]:
    """Tasks of one name as one."""
    whole: dict[str, Task] = {}
    for task in made:
        if task.name in whole:
            before = whole[task.name]
            task = Task(task.name, [*before.cases, *task.cases], task.answer_tokens, task.binary, task.score)
        whole[task.name] = task
    return list(whole.values())


def _half(cases: Sequence[Case], half: Half) -> list[Case]:
    """Every second case chooses between policies; the others report, so that nothing is tuned on them."""
    if half == "all":
        return list(cases)
    return list(cases[0::2] if half == "choose" else cases[1::2])
