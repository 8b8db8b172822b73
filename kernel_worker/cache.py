"""What the model reads during one forward call, or a run of them: a state's entries and the tokens after it.

`update` is called by the model's layers and keeps the new entries un-rotated; `attend` is called by our
attention function right after it, rotates, and calls the kernels. A cache serves one batch item, once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import Cache

from kernel_worker.rotary import Angles, Rotary, dense_positions
from kernels.attention import segment_attention
from kernels.decode import decode_attention
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV

Positions = Literal["dense", "original"]


class StateCache(Cache):  # type: ignore[misc]
    """A state's entries, and room for the tokens that follow on them.

    positions "dense": the entries stand at 0..C-1 in their own order, new tokens follow from C.
    positions "original": every entry stands at its token's index, new tokens follow from state.seen.
    """

    def __init__(
        self, state: CompressedKV, log_weights: Tensor, rotary: Rotary, positions: Positions, room: int
    ) -> None:
        """log_weights [layers, kv_heads, C] float32; room is the number of new tokens that may come."""
        super().__init__(layers=[])
        entries = state.entries
        self.state = state
        self.log_weights = log_weights
        self.rotary = rotary
        self.first = len(entries) if positions == "dense" else state.seen
        self.length = 0  # new tokens so far
        self.queries: list[Tensor] | None = None
        """Set to [] to record un-rotated queries of new tokens: [Hq, S, d] for each layer of each call."""
        self.recorded: int | None = None  # so many of each call, its last ones; None for all
        self.scale: float | None = None  # of the softmax, known after the first call
        self.positions = positions
        self._new_keys = entries.keys.new_empty((*entries.rows, room, entries.keys.shape[-1]))
        self._new_values = entries.values.new_empty((*entries.rows, room, entries.values.shape[-1]))

    def new_entries(self) -> WeightedKV:
        """The new tokens' entries so far: un-rotated, weight 1."""
        return WeightedKV.exact(
            self._new_keys[:, :, : self.length], self._new_values[:, :, : self.length], self.state.seen
        )

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        """Keeps keys and values [1, kv_heads, S, d] of new tokens, and hands them back as they are."""
        start, stop = self.length, self.length + key_states.shape[2]
        self._new_keys[layer_idx, :, start:stop] = key_states[0]
        self._new_values[layer_idx, :, start:stop] = value_states[0]
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens of the document and after it so far."""
        return self.state.seen + self.length

    @abstractmethod
    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        """Attention of new tokens: q [1, Hq, S, d], k and v [1, Hkv, S, d] -> [1, Hq, S, d_v]."""

    def _record(self, q: Tensor, scale: float | None) -> None:
        if self.queries is not None:
            # A copy, where a part would keep the whole of it.
            self.queries.append(q[0] if self.recorded is None else q[0, :, -self.recorded :].clone())
            self.scale = q.shape[-1] ** -0.5 if scale is None else scale

    def _rotated_entries(self, layer: int, angles: Angles | None) -> Tensor:
        """Keys of one layer's entries, [1, kv_heads, C, d]; angles where they are the same for all rows."""
        keys = self.state.entries.keys[layer]
        if angles is not None:
            return self.rotary.rotate(keys.unsqueeze(0), angles)
        # Every KV head holds other tokens: heads become batch items with positions of their own.
        angles = self.rotary.angles(self.state.entries.tokens[layer].long(), keys)
        return self.rotary.rotate(keys.unsqueeze(1), angles).transpose(0, 1)

    def _entry_angles(self) -> Angles | None:
        keys = self.state.entries.keys
        if self.positions != "dense":
            return None
        return self.rotary.angles(dense_positions(keys.shape[2], 0, keys.device), keys)

    def _new_angles(self, count: int) -> Angles:
        keys = self.state.entries.keys
        return self.rotary.angles(dense_positions(count, self.first + self.length, keys.device), keys)


class SegmentCache(StateCache):
    """For one call of the model over a whole segment."""

    def __init__(
        self,
        state: CompressedKV,
        log_weights: Tensor,
        rotary: Rotary,
        positions: Positions,
        tokens: int,
        on_layer: Callable[[int], None] | None = None,
    ) -> None:
        """on_layer(n) is called when n layers are done, the last one apart; what it raises ends the call."""
        super().__init__(state, log_weights, rotary, positions, tokens)
        self._prefix_angles = self._entry_angles()
        self._segment_angles = self._new_angles(tokens)
        self._on_layer = on_layer
        self._tokens = tokens

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        if self._on_layer is not None and layer:
            self._on_layer(layer)
        self._record(q, scale)
        keys = self._rotated_entries(layer, self._prefix_angles)
        values = self.state.entries.values[layer].unsqueeze(0)
        q, k = self.rotary.rotate_both(q, k, self._segment_angles)
        log_weights = self.log_weights[layer].unsqueeze(0)
        return segment_attention(q, keys, values, log_weights, k, v, scale=scale)[0]

    def finish(self) -> WeightedKV:
        """The segment's entries, after the model's call."""
        self.length = self._tokens
        return self.new_entries()


class TokenCache(StateCache):
    """For many calls of the model with one token each, between two folds.

    Entries and new tokens lie in one buffer, rotated once, with room for all tokens to come: a step writes
    its own row and copies nothing.
    """

    def __init__(
        self, state: CompressedKV, log_weights: Tensor, rotary: Rotary, positions: Positions, room: int
    ) -> None:
        super().__init__(state, log_weights, rotary, positions, room)
        entries = state.entries
        self._entries = len(entries)
        self._keys = torch.cat([torch.empty_like(entries.keys), torch.empty_like(self._new_keys)], dim=2)
        self._values = torch.cat([entries.values, torch.empty_like(self._new_values)], dim=2)
        self._weights = torch.cat([log_weights, log_weights.new_zeros((*entries.rows, room))], dim=2)
        angles = self._entry_angles()
        for layer in range(entries.keys.shape[0]):
            self._keys[layer, :, : self._entries] = self._rotated_entries(layer, angles)[0]
        self._angles = self._new_angles(1)

    def step(self) -> None:
        """Call after each token's forward: the next token takes the next place."""
        self.length += 1
        self._angles = self._new_angles(1)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        place = self._entries + self.length
        self._record(q, scale)
        q, k = self.rotary.rotate_both(q, k, self._angles)
        self._keys[layer, :, place] = k[0, :, 0]
        self._values[layer, :, place] = v[0, :, 0]
        stop = place + 1
        return decode_attention(
            q,
            self._keys[layer : layer + 1, :, :stop],
            self._values[layer : layer + 1, :, :stop],
            self._weights[layer : layer + 1, :, :stop],
            scale=scale,
        )[0]
