"""What the model reads during a call over a segment: a state's entries, and the segment's own tokens.

`update` is called by the model's layers and keeps the new entries un-rotated; `attend` is called by our
attention function right after it, rotates, and calls the kernels. A cache serves one batch item, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from torch import Tensor
from transformers import Cache

from kernel_worker.rotary import Angles, Rotary, dense_positions
from kernels.attention import segment_attention
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV

Positions = Literal["dense", "original"]


def first_place(state: CompressedKV, positions: Positions) -> int:
    """Where the first token after a state stands."""
    return len(state.entries) if positions == "dense" else state.seen


def entry_angles(rotary: Rotary, entries: WeightedKV, positions: Positions) -> Angles | None:
    """Angles of dense entries, which are the same for all rows; None where rows hold different tokens."""
    if positions != "dense":
        return None
    return rotary.angles(dense_positions(len(entries), 0, entries.keys.device), entries.keys)


def rotated_entries(rotary: Rotary, entries: WeightedKV, layer: int, angles: Angles | None) -> Tensor:
    """Keys of one layer's entries where they stand, [1, kv_heads, C, d]; angles as of `entry_angles`."""
    keys = entries.keys[layer]
    if angles is not None:
        return rotary.rotate(keys.unsqueeze(0), angles)
    # Every KV head holds other tokens: heads become batch items with positions of their own.
    angles = rotary.angles(entries.tokens[layer].long(), keys)
    return rotary.rotate(keys.unsqueeze(1), angles).transpose(0, 1)


class SegmentCache(Cache):  # type: ignore[misc]
    """A state's entries, and the tokens that follow on them, for one call of the model.

    positions "dense": the entries stand at 0..C-1 in their own order, new tokens follow from C.
    positions "original": every entry stands at its token's index, new tokens follow from state.seen.
    """

    def __init__(
        self,
        state: CompressedKV,
        log_weights: Tensor,
        rotary: Rotary,
        positions: Positions,
        tokens: int,
        on_layer: Callable[[int], None] | None = None,
    ) -> None:
        """log_weights [layers, kv_heads, C] float32; tokens is the number of new ones.

        on_layer(n) is called when n layers are done, the last one apart; what it raises ends the call.
        """
        super().__init__(layers=[])
        entries = state.entries
        self.state = state
        self.log_weights = log_weights
        self.rotary = rotary
        self.positions = positions
        self.first = first_place(state, positions)
        self.queries: list[Tensor] | None = None
        """Set to [] to record un-rotated queries of the new tokens: [Hq, S, d] for each layer."""
        self.recorded: int | None = None  # so many, the last ones; None for all
        self.scale: float | None = None  # of the softmax, known after the call
        self._keys = entries.keys.new_empty((*entries.rows, tokens, entries.keys.shape[-1]))
        self._values = entries.values.new_empty((*entries.rows, tokens, entries.values.shape[-1]))
        self._prefix_angles = entry_angles(rotary, entries, positions)
        places = dense_positions(tokens, self.first, entries.keys.device)
        self._segment_angles = rotary.angles(places, entries.keys)
        self._on_layer = on_layer

    def new_entries(self) -> WeightedKV:
        """The new tokens' entries, after the model's call: un-rotated, weight 1."""
        return WeightedKV.exact(self._keys, self._values, self.state.seen)

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        """Keeps keys and values [1, kv_heads, S, d] of the new tokens, and hands them back as they are."""
        self._keys[layer_idx] = key_states[0]
        self._values[layer_idx] = value_states[0]
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens of the document before the new ones."""
        return self.state.seen

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        """Attention of the new tokens: q [1, Hq, S, d], k and v [1, Hkv, S, d] -> [1, Hq, S, d_v]."""
        if self._on_layer is not None and layer:
            self._on_layer(layer)
        self._record(q, scale)
        keys = rotated_entries(self.rotary, self.state.entries, layer, self._prefix_angles)
        values = self.state.entries.values[layer].unsqueeze(0)
        q, k = self.rotary.rotate_both(q, k, self._segment_angles)
        log_weights = self.log_weights[layer].unsqueeze(0)
        return segment_attention(q, keys, values, log_weights, k, v, scale=scale)[0]

    def _record(self, q: Tensor, scale: float | None) -> None:
        if self.queries is not None:
            # A copy, where a part would keep the whole of it.
            self.queries.append(q[0] if self.recorded is None else q[0, :, -self.recorded :].clone())
            self.scale = q.shape[-1] ** -0.5 if scale is None else scale
