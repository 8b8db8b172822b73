"""Scores and intervals against values that can be checked by hand."""

from __future__ import annotations

import math

import pytest

from evaluation.scoring import contains_any, normalized, rouge_l
from evaluation.statistics import bootstrap, rank_correlation, rank_interval, wilson


@pytest.mark.parametrize(
    ("text", "accepted", "right"),
    [
        ("It leaves at 7:45.", ("7:45", "19:45"), True),
        ("At 19：45, I think", ("7:45", "19:45"), True),
        ("Platform FOURTEEN!", ("fourteen",), True),
        ("It is 114.", ("14",), False),
        ("", ("x",), False),
    ],
)
def test_an_answer_is_right_when_it_holds_whole_words(
    text: str, accepted: tuple[str, ...], right: bool
) -> None:
    assert contains_any(text, accepted) is right


def test_normalized_text_has_no_case_no_points_and_single_blanks() -> None:
    assert normalized("  Saint\n Odran’s—FERRY ") == "saint odran s ferry"


def test_rouge_takes_the_best_reference() -> None:
    assert rouge_l("the cat sat", ["a dog ran", "the cat sat"]) == 1.0
    assert rouge_l("the cat", ["the cat sat there"]) == pytest.approx(2 * 0.5 / 1.5)
    assert rouge_l("words", []) == 0.0


def test_wilson_interval() -> None:
    low, high = wilson(8, 10)
    assert (low, high) == (pytest.approx(0.4902, abs=1e-4), pytest.approx(0.9433, abs=1e-4))
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(10, 10)[1] == pytest.approx(1.0)


def test_bootstrap_interval_holds_the_mean_and_repeats() -> None:
    values = [0.1, 0.4, 0.2, 0.9, 0.3, 0.5]
    low, high = bootstrap(values)
    assert low < sum(values) / 6 < high
    assert bootstrap(values) == (low, high)
    assert math.isnan(bootstrap([])[0])


def test_rank_correlation_minds_the_order_alone() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 25, 900]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert rank_correlation([1, 1, 2], [5, 5, 9]) == pytest.approx(1.0)
    assert math.isnan(rank_correlation([1.0], [2.0]))


def test_rank_interval() -> None:
    low, high = rank_interval(0.5, 28)
    # atanh(0.5) = 0.54931, 1.95996 * sqrt(1.125 / 25) = 0.41577
    assert (low, high) == (pytest.approx(0.1328, abs=1e-4), pytest.approx(0.7466, abs=1e-4))
    assert rank_interval(0.5, 3) == (-1.0, 1.0)
    assert rank_interval(math.nan, 12) == (-1.0, 1.0)
    assert rank_interval(1.0, 12) == rank_interval(-1.0, 12) == (-1.0, 1.0)
