"""Needle documents: the sentence is there once, whole, where it should be; no question answers itself."""

from __future__ import annotations

import pytest

from evaluation.needle_sentences import NEEDLES, Needle
from evaluation.needles import needle_cases, own_haystack, with_needle
from evaluation.rereading import by_words
from evaluation.scoring import contains_any, normalized


def test_each_document_holds_its_needle_once_and_near_its_depth() -> None:
    sentences = {needle.name: needle.sentence for needle in NEEDLES}
    cases = needle_cases(own_haystack(), NEEDLES, 900, 12)
    assert len({case.name for case in cases}) == 12
    assert len({case.document for case in cases}) == 12
    for case in cases:
        sentence = sentences[case.name.split("-")[0]]
        assert case.evidence == sentence
        assert case.document.count(sentence) == 1
        assert 850 < len(case.document.split()) < 1300
        found = 100 * case.document.index(sentence) / len(case.document)
        assert case.depth is not None
        assert abs(found - case.depth) < 12


def test_answers_stand_in_the_needles_and_nowhere_else() -> None:
    text = " ".join(own_haystack())
    for needle in NEEDLES:
        assert contains_any(needle.sentence, needle.answers), needle.name
        assert not contains_any(needle.question, needle.answers), needle.name
        assert normalized(needle.sentence) not in normalized(text), needle.name


@pytest.mark.parametrize("needle", NEEDLES, ids=lambda needle: needle.name)
def test_no_word_of_a_sentence_helps_to_find_it_by_other_words(needle: Needle) -> None:
    score, none = by_words([needle.sentence, "Nothing to see here."], needle.reworded)
    assert (score, none) == (0.0, 0.0)
    assert needle.reworded
    assert not contains_any(needle.reworded, needle.answers)
    assert by_words([needle.sentence, "Nothing to see here."], needle.question)[0] > 0


@pytest.mark.parametrize("depth", [0.0, 100.0])
def test_a_needle_can_stand_at_either_end(depth: float) -> None:
    text = with_needle(["One sentence. Another one."], 3, depth, "The needle.")
    assert text == (
        "The needle. One sentence. Another one." if depth == 0 else "One sentence. Another one. The needle."
    )
