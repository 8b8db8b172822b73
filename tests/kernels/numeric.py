"""How far a result is from the truth, without tolerances that depend on its scale."""

from __future__ import annotations

from torch import Tensor


def error_ratio(got: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference over that of the expected tensor; NaN anywhere gives NaN."""
    difference = (got.double() - expected.double()).square().mean().sqrt()
    return float(difference / expected.double().square().mean().sqrt().clamp_min(1e-300))
