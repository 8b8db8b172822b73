"""Tasks with an answer in words: what to ask, and how to score it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluation.cases import Case
from evaluation.scoring import contains_any, rouge_l
from evaluation.wordings import WORDINGS, Wording


@dataclass(frozen=True)
class Task:
    """Cases, the instruction for each, and the score of a text: higher is better.

    binary  whether scores are right or wrong, so that flips can be counted
    """

    name: str
    cases: Sequence[Case]
    answer_tokens: int
    binary: bool
    score: Callable[[str, Sequence[str]], float]
    wording: Wording = WORDINGS["product"]

    def instruction(self, case: Case) -> str:
        if self.binary:
            return self.wording.question.format(question=case.question)
        if case.question:
            return self.wording.summary_for_query.format(query=case.question)
        return self.wording.summary


def question_task(name: str, cases: Sequence[Case]) -> Task:
    """Right where an accepted answer stands in the text."""
    return Task(name, cases, 32, True, lambda text, accepted: float(contains_any(text, accepted)))


def key_task(name: str, cases: Sequence[Case]) -> Task:
    """Like a question; a random identifier needs more tokens."""
    return Task(name, cases, 56, True, lambda text, accepted: float(contains_any(text, accepted)))


def summary_task(name: str, cases: Sequence[Case]) -> Task:
    """ROUGE-L to the best of the references."""
    return Task(name, cases, 160, False, rouge_l)
