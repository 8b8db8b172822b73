"""Which windows of a text share words with a question: BM25 over a stream, in any script.

Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), section 3.
All windows have one length, so that the normalisation by length falls away. The libraries for it hold all
words of all windows; here nothing is held but the counts of the question's own words.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import regex

SATURATION = 1.5
"""k1 of BM25: how soon a further occurrence of a word adds little."""

# Scripts that put no space between words.
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"
_WORD = regex.compile(rf"(?P<run>{_UNSPACED}+)|[\w\p{{M}}--{_UNSPACED}]+", regex.VERSION1)


def words(text: str) -> Iterator[tuple[str, int]]:
    """The words of a text, folded, each with the place of its first character.

    Where no spaces tell words apart, each character is a word, and so is each pair of neighbours.
    """
    for match in _WORD.finditer(text):
        found, start = match.group(), match.start()
        if match.lastgroup is None:
            yield _folded(found), start
            continue
        for place in range(len(found)):
            yield _folded(found[place]), start + place
            if place + 1 < len(found):
                yield _folded(found[place : place + 2]), start + place


def window_scores(counts: Sequence[Mapping[str, int]], width: int) -> list[float]:
    """BM25 of each window of `width` neighbouring blocks; one window where there are fewer blocks.

    counts  of the question's words in each block of the text

    A word that stands in half of the windows or more says nothing about where to look, and counts 0.
    """
    windows = max(1, len(counts) - width + 1)
    holding: Counter[str] = Counter()
    for first in range(windows):
        holding.update(_together(counts, first, width).keys())
    rarity = {
        word: max(0.0, math.log((windows - number + 0.5) / (number + 0.5)))
        for word, number in holding.items()
    }
    return [
        math.fsum(
            rarity[word] * number / (number + SATURATION)
            for word, number in _together(counts, first, width).items()
        )
        for first in range(windows)
    ]


def _together(counts: Sequence[Mapping[str, int]], first: int, width: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for block in counts[first : first + width]:
        found.update(block)
    return found


def _folded(word: str) -> str:
    return word.casefold() if word.isascii() else unicodedata.normalize("NFKC", word).casefold()
