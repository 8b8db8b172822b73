"""The attention function that transformers calls in place of its own; the model's code stays as it is."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import AttentionInterface

from kernel_worker.cache import SegmentCache
from kernel_worker.token_cache import BatchCache

NAME = "docexpress"
"""The key in transformers' table of attention functions, and the keyword that carries the cache to it."""


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    docexpress: SegmentCache | BatchCache,
    scaling: float | None = None,
    **_ignored: Any,
) -> tuple[Tensor, None]:
    """query [B, Hq, S, d], key and value [B, Hkv, S, d], all un-rotated -> [B, S, Hq, d_v].

    Holds nothing itself: everything that lasts is in the cache, which the caller of the model passes in.
    """
    out = docexpress.attend(module.layer_idx, query, key, value, scaling)
    return out.transpose(1, 2).contiguous(), None


def register() -> None:
    """Makes the function known to transformers. A model that does not ask for it by name sees no change."""
    AttentionInterface.register(NAME, attention)
