"""How likely a question is over each of many sketches: which segments of a document it is about.

Source: `express.md` section 8. All sketches of one size share a batch; some tens of tokens over some hundred
entries cost a small part of reading a segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from kernel_worker import attention
from kernel_worker.errors import InvalidRequest, WindowExceeded
from kernel_worker.model import LoadedModel
from kernel_worker.rotary import Rotary, dense_positions
from kernels.attention import segment_attention
from kernels.weighted_kv import WeightedKV, concat

BATCH = 16
"""Sketches in one call of the model: bounds the memory, whatever the document's length."""


class SketchCache(Cache):  # type: ignore[misc]
    """For one call of the model over the same tokens after each of several sketches of one size."""

    def __init__(self, sketches: Sequence[WeightedKV], rotary: Rotary, tokens: int) -> None:
        """Each sketch [layers, kv_heads, C, ...]; entries stand at 0..C-1, the tokens follow from C."""
        super().__init__(layers=[])
        self.keys = torch.stack([sketch.keys for sketch in sketches], dim=1)  # [layers, B, kv_heads, C, d]
        self.values = torch.stack([sketch.values for sketch in sketches], dim=1)
        self.log_weights = torch.stack([sketch.weights for sketch in sketches], dim=1).log()
        self._rotary = rotary
        count = self.keys.shape[3]
        self._entry_angles = rotary.angles(dense_positions(count, 0, self.keys.device), self.keys)
        self._token_angles = rotary.angles(dense_positions(tokens, count, self.keys.device), self.keys)

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return int(self.keys.shape[3])

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        """q [B, Hq, S, d], k and v [B, Hkv, S, d] -> [B, Hq, S, d_v]."""
        keys = self._rotary.rotate(self.keys[layer], self._entry_angles)
        q, k = self._rotary.rotate_both(q, k, self._token_angles)
        return segment_attention(q, keys, self.values[layer], self.log_weights[layer], k, v, scale=scale)[0]


def question_likelihoods(
    loaded: LoadedModel, opening: WeightedKV, sketches: Sequence[WeightedKV], question: str
) -> list[float]:
    """Mean log-probability of the question's tokens after each sketch: the higher, the likelier its segment.

    opening   exact entries of the template's opening, which every prompt of the model begins with: without
              its first tokens, where attention rests, no text is likely
    sketches  entries [layers, kv_heads, C_i, ...]; sizes may differ, equal ones share a batch

    Raises InvalidRequest for a blank question, WindowExceeded.
    """
    asked = loaded.tokenizer.encode(question.strip())
    if not asked:
        raise InvalidRequest("The question is empty.")
    lead = loaded.tokenizer.encode("\n\nQuestion: ")
    likelihoods = [0.0] * len(sketches)
    for places in _batches([len(sketch) for sketch in sketches]):
        batch = [concat([opening, sketches[place]]) for place in places]
        if len(batch[0]) + len(lead) + len(asked) > loaded.window:
            raise WindowExceeded(f"A sketch and the question need more than {loaded.window} positions.")
        for place, value in zip(places, _means(loaded, batch, lead, asked), strict=True):
            likelihoods[place] = value
    return likelihoods


def _means(loaded: LoadedModel, batch: list[WeightedKV], lead: list[int], asked: list[int]) -> list[float]:
    ids = [*lead, *asked]
    with torch.inference_mode():
        tokens = torch.tensor([ids], device=loaded.device).expand(len(batch), -1)
        cache = SketchCache(batch, loaded.rotary, len(ids))
        extra: dict[str, Any] = {attention.NAME: cache}
        keep = len(asked) + 1
        logits = loaded.model(
            input_ids=tokens,
            position_ids=torch.zeros_like(tokens),  # see rotary.py
            cache=cache,
            use_cache=True,
            logits_to_keep=keep,
            **extra,
        ).logits[:, :-1]
        logs = logits.float().log_softmax(-1).gather(-1, tokens[:, -len(asked) :].unsqueeze(-1))
        means: list[float] = logs.squeeze(-1).mean(-1).tolist()
        return means


def _batches(sizes: Sequence[int]) -> list[list[int]]:
    """Places of equal sizes together, at most BATCH of them."""
    groups: dict[int, list[int]] = {}
    for place, size in enumerate(sizes):
        groups.setdefault(size, []).append(place)
    return [
        group[start : start + BATCH] for group in groups.values() for start in range(0, len(group), BATCH)
    ]
