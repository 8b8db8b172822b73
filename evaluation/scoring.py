"""How good an answer is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

_NO_WORD = re.compile(r"[^\w\s]")


def normalized(text: str) -> str:
    """Lower case, NFKC, punctuation and runs of blanks as one blank."""
    plain = unicodedata.normalize("NFKC", text.lower())
    return " ".join(_NO_WORD.sub(" ", plain).split())


def contains_any(text: str, accepted: Iterable[str]) -> bool:
    """Whether one of the accepted answers stands in the text as whole words."""
    found = f" {normalized(text)} "
    return any(f" {normalized(answer)} " in found for answer in accepted)


def rouge_l(text: str, references: Iterable[str]) -> float:
    """The best ROUGE-L F-measure against the references, with stemming."""
    return max(
        (float(_scorer().score(reference, text)["rougeL"].fmeasure) for reference in references), default=0.0
    )


@lru_cache(maxsize=1)
def _scorer() -> Any:
    from rouge_score import rouge_scorer

    return rouge_scorer.RougeScorer(["rougeL"], use_stemmer=True)
