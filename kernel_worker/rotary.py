"""The model's own rotary embedding, applied late.

The model runs with all positions 0, where its rotation is the identity, so that queries and keys reach our
attention un-rotated; there they are rotated to the positions of the moment with the model's own code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernel_worker.errors import ModelUnsupported

STATIC_TYPES = frozenset({"default", "linear", "llama3", "yarn"})

Angles = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Rotary:
    """Rotates by position. `embedding` gives cosines and sines, `apply` uses them: both are the model's."""

    embedding: Any
    apply: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, model: Any) -> Rotary:
        """Raises ModelUnsupported where the model has none, or one that changes with the length of a text."""
        base = model.base_model
        embedding = getattr(base, "rotary_emb", None)
        apply = getattr(sys.modules[type(base).__module__], "apply_rotary_pos_emb", None)
        if embedding is None or apply is None:
            raise ModelUnsupported(f"{type(model).__name__} has no rotary positions, and states need them.")
        kind = getattr(embedding, "rope_type", None)
        if kind not in STATIC_TYPES:
            raise ModelUnsupported(
                f"Rotary positions of type {kind!r} do not suit, only {', '.join(sorted(STATIC_TYPES))}."
            )
        return cls(embedding, apply)

    def angles(self, positions: Tensor, like: Tensor) -> Angles:
        """Cosines and sines [B, S, d] of positions [B, S], in the dtype of `like`.

        Where the model scales its rotation (yarn), un-rotated queries and keys already carry the factor
        from position 0; it is taken out here, so that it counts once.
        """
        cos, sin = self.embedding(like, positions)
        factor = self.embedding.attention_scaling
        return (cos, sin) if factor == 1.0 else (cos / factor, sin / factor)

    def rotate(self, x: Tensor, angles: Angles) -> Tensor:
        """x [B, H, S, d], rotated; angles [B, S, d] or [1, S, d]."""
        return self.apply(x, x[:, :0], *angles)[0]

    def rotate_both(self, q: Tensor, k: Tensor, angles: Angles) -> tuple[Tensor, Tensor]:
        """q [B, Hq, S, d] and k [B, Hkv, S, d], rotated by the same angles."""
        return self.apply(q, k, *angles)


def dense_positions(count: int, first: int, device: torch.device) -> Tensor:
    """Positions first..first+count-1, [1, count] int64."""
    return torch.arange(first, first + count, device=device).unsqueeze(0)
