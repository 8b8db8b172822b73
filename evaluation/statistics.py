"""Intervals around what was measured."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import fmean

_Z = 1.959963984540054  # 95%
_DRAWS = 2000


def wilson(right: int, of: int) -> tuple[float, float]:
    """95% interval of a share (Wilson, J. Am. Stat. Assoc. 22, 1927); (0, 1) where nothing was measured."""
    if of == 0:
        return 0.0, 1.0
    share, spread = right / of, _Z * _Z / of
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(share * (1 - share) / of + spread / (4 * of))
    return max(0.0, middle - half), min(1.0, middle + half)


def bootstrap(values: Sequence[float]) -> tuple[float, float]:
    """95% percentile interval of the mean; the same values give the same interval."""
    if len(values) < 2:
        mean = values[0] if values else math.nan
        return mean, mean
    draw = random.Random(len(values))
    means = sorted(fmean(draw.choices(values, k=len(values))) for _ in range(_DRAWS))
    return means[int(0.025 * _DRAWS)], means[int(0.975 * _DRAWS)]


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Spearman's rho; ties share the mean of their ranks. NaN for fewer than two values or no variation."""
    a, b = _ranks(one), _ranks(other)
    if len(a) < 2:
        return math.nan
    mean_a, mean_b = fmean(a), fmean(b)
    product = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
    size = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
    return product / size if size else math.nan


def rank_interval(rho: float, count: int) -> tuple[float, float]:
    """95% interval of Spearman's rho (Bonett and Wright, Psychometrika 65, 2000).

    (-1, 1) for fewer than four cases, and where their orders are the same or opposite: it tells nothing then.
    """
    if count < 4 or not -1 < round(rho, 9) < 1:
        return -1.0, 1.0
    middle, half = math.atanh(rho), _Z * math.sqrt((1 + rho * rho / 2) / (count - 3))
    return math.tanh(middle - half), math.tanh(middle + half)


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    first = {value: ordered.index(value) for value in set(values)}
    count = {value: ordered.count(value) for value in first}
    return [first[value] + (count[value] - 1) / 2 for value in values]
