"""Words in any script, and scores that are those of the library bm25s."""

from __future__ import annotations

from collections import Counter

import bm25s
import pytest

from kernel_worker.words import window_scores, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The café's GPT-4 is_good.", ["the", "café", "s", "gpt", "4", "is_good"]),
        ("NAÏVE cafe\u0301 STRASSE Straße ﬁne", ["naïve", "café", "strasse", "strasse", "fine"]),
        ("GPT模型说", ["gpt", "模", "模型", "型", "型说", "说"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("Привет, мир", ["привет", "мир"]),
        ("…!?", []),
    ],
    ids=["latin", "folded", "mixed", "marks", "cyrillic", "none"],
)
def test_words_of_a_text(text: str, found: list[str]) -> None:
    assert [word for word, _ in words(text)] == found


def test_places_are_those_of_the_text() -> None:
    text = "An ﬁne 東京 day"
    assert [text[place] for _, place in words(text)] == ["A", "ﬁ", "東", "東", "京", "d"]


def test_scores_are_those_of_the_library() -> None:
    """Windows of one block, all of one length, which is what the library cannot know and we rely on."""
    rows = ["a b a x y z", "b c c x y z", "a a a a x y", "q r s t u v", "x y z u v b", "u v w s t r"]
    question = ["a", "b", "c", "x", "v"]
    counts = [
        {word: number for word, number in Counter(row.split()).items() if word in question} for row in rows
    ]
    index = bm25s.BM25(method="robertson", k1=1.5, b=0.75)
    index.index([row.split() for row in rows], show_progress=False)
    expected = [float(score) for score in index.get_scores(question)]
    assert window_scores(counts, 1) == pytest.approx(expected, abs=1e-5)
    assert max(expected) > 0.5


def test_windows_overlap_so_that_words_on_a_border_meet() -> None:
    blocks: list[dict[str, int]] = [{} for _ in range(12)]
    blocks[3], blocks[4], blocks[9] = {"toll": 1}, {"bridge": 1}, {"bridge": 1}
    scores = window_scores(blocks, 2)
    assert len(scores) == 11
    assert scores.index(max(scores)) == 3
    assert sum(score > 0 for score in scores) == 5


def test_what_stands_everywhere_says_nothing() -> None:
    assert window_scores([{"the": 2}, {"the": 1}, {"the": 5}], 1) == [0, 0, 0]
    assert window_scores([{"the": 2}], 4) == [0]
