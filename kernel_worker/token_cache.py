"""What the model reads while it writes: entries and new tokens of several sequences, a row for each.

Sequences whose rows are equally long share a table, so that one call of the kernels serves all of them.
Nothing of a row's result depends on the rows beside it: its length follows from its own state, and places
that are not filled yet are hidden by their weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from kernel_worker.cache import Positions, entry_angles, first_place, rotated_entries
from kernel_worker.rotary import Rotary
from kernels.decode import decode_attention
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV

BLOCK = 256
"""Rows are as long as the next multiple of it: states of nearly equal sizes share a table."""


class TokenRow:
    """One sequence between two folds: a state, and up to `room` tokens after it."""

    def __init__(
        self, state: CompressedKV, log_weights: Tensor, rotary: Rotary, positions: Positions, room: int
    ) -> None:
        """log_weights [layers, kv_heads, C] float32."""
        self.state, self.log_weights = state, log_weights
        self.rotary, self.positions, self.room = rotary, positions, room
        self.first = first_place(state, positions)
        self.length = 0  # new tokens so far
        self.queries: list[Tensor] | None = None
        """Set to [] to record un-rotated queries of new tokens: [Hq, 1, d] for each layer of each step."""
        self.scale: float | None = None  # of the softmax, known after the first step
        self.table: TokenTable | None = None
        self.place = -1  # in the table

    @property
    def size(self) -> int:
        """The row's length in its table."""
        return -(-(len(self.state.entries) + self.room) // BLOCK) * BLOCK

    @property
    def read(self) -> int:
        """Tokens of the document and after it so far."""
        return self.state.seen + self.length

    def new_entries(self) -> WeightedKV:
        """The new tokens' entries so far: un-rotated, weight 1, a copy."""
        if self.table is None:
            raise RuntimeError("the row has left its table and holds no new tokens")
        start = len(self.state.entries)
        keys = self.table.new_keys[:, self.place, :, : self.length]
        values = self.table.values[:, self.place, :, start : start + self.length]
        return WeightedKV.exact(keys.clone(), values.clone(), self.state.seen)


class TokenTable:
    """Rows of one length, next to each other: rotated keys, values and log-weights for every layer.

    keys, values  [layers, rows, kv_heads, size, d]
    weights       [layers, rows, kv_heads, size] float32, -inf where nothing stands yet
    new_keys      [layers, rows, kv_heads, room, d], of the new tokens alone, un-rotated
    """

    def __init__(self, like: WeightedKV, size: int, room: int) -> None:
        self.rows: list[TokenRow] = []
        self.size, self.room = size, room
        layers, kv_heads = like.rows
        d, d_v = like.keys.shape[-1], like.values.shape[-1]
        # Zeros, since what is hidden is multiplied by 0 all the same.
        self.keys = like.keys.new_zeros(layers, 1, kv_heads, size, d)
        self.values = like.values.new_zeros(layers, 1, kv_heads, size, d_v)
        self.weights = like.weights.new_full((layers, 1, kv_heads, size), -torch.inf)
        self.new_keys = like.keys.new_zeros(layers, 1, kv_heads, room, d)

    def join(self, row: TokenRow) -> None:
        """Copies a row's entries in, rotated. Nothing of who was there stays: 0 times infinite is NaN."""
        place, entries = len(self.rows), row.state.entries
        if place == self.keys.shape[1]:
            self._grow()
        count, angles = len(entries), entry_angles(row.rotary, entries, row.positions)
        for layer in range(entries.rows[0]):
            self.keys[layer, place, :, :count] = rotated_entries(row.rotary, entries, layer, angles)[0]
        self.values[:, place, :, :count] = entries.values
        self.keys[:, place, :, count:] = self.values[:, place, :, count:] = 0
        self.weights[:, place, :, :count] = row.log_weights
        self.weights[:, place, :, count:] = -torch.inf
        row.table, row.place = self, place
        self.rows.append(row)

    def leave(self, row: TokenRow) -> None:
        """The last row takes the place that becomes free."""
        last = self.rows.pop()
        if last is not row:
            for buffer in (self.keys, self.values, self.weights, self.new_keys):
                buffer[:, row.place] = buffer[:, last.place]
            self.rows[row.place] = last
            last.place = row.place
        row.table, row.place = None, -1

    def _grow(self) -> None:
        """Twice as many places, or, where memory is short, nothing is changed."""
        names = ("keys", "values", "weights", "new_keys")
        buffers = [getattr(self, name) for name in names]
        grown = [torch.cat([buffer, torch.zeros_like(buffer)], dim=1) for buffer in buffers]
        for name, buffer in zip(names, grown, strict=True):
            setattr(self, name, buffer)


class BatchCache(Cache):  # type: ignore[misc]
    """One token of every row: serves one call of the model with batch items in the order of `order`."""

    def __init__(self, tables: Sequence[TokenTable], rotary: Rotary) -> None:
        super().__init__(layers=[])
        self.order = [row for table in tables for row in table.rows]
        self._parts: list[_Part] = []
        start = 0
        for table in tables:
            self._parts.append(_Part(table, slice(start, start + len(table.rows))))
            start += len(table.rows)
        keys = tables[0].keys
        places = torch.tensor([[row.first + row.length] for row in self.order], device=keys.device)
        self._angles = rotary.angles(places, keys)
        self._rotary = rotary

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> Any:
        """Hands keys and values [B, kv_heads, 1, d] back as they are; `attend` keeps them."""
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """No length is common to all rows, and nothing asks for it: positions are given, masks are ours."""
        return 0

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        """q [B, Hq, 1, d], k and v [B, Hkv, 1, d] -> [B, Hq, 1, d_v]; items without a row give zeros."""
        count = len(self.order)
        self._record(q, scale)
        turned_q, turned_k = self._rotary.rotate_both(q[:count], k[:count], self._angles)
        out = v.new_zeros(*q.shape[:3], v.shape[-1])
        for part in self._parts:
            own = part.items
            part.keep(layer, k[own], turned_k[own], v[own])
            out[own] = part.attend(layer, turned_q[own], scale)
        return out

    def step(self) -> None:
        """Call after the model's call: the next token takes the next place."""
        for row in self.order:
            row.length += 1

    def _record(self, q: Tensor, scale: float | None) -> None:
        for item, row in enumerate(self.order):
            if row.queries is not None:
                row.queries.append(q[item].clone())  # a part would keep the whole of it
                row.scale = q.shape[-1] ** -0.5 if scale is None else scale


class _Part:
    """The rows of one table in a call, and which of its batch items they are."""

    def __init__(self, table: TokenTable, items: slice) -> None:
        self.table, self.items = table, items
        device = table.keys.device
        self._rows = torch.arange(len(table.rows), device=device)
        self._new = torch.tensor([row.length for row in table.rows], device=device)
        entries = torch.tensor([len(row.state.entries) for row in table.rows], device=device)
        self._places = entries + self._new
        table.weights[:, self._rows, :, self._places] = 0.0

    def keep(self, layer: int, raw_keys: Tensor, keys: Tensor, values: Tensor) -> None:
        table, rows = self.table, self._rows
        table.new_keys[layer][rows, :, self._new] = raw_keys[:, :, 0]
        table.keys[layer][rows, :, self._places] = keys[:, :, 0]
        table.values[layer][rows, :, self._places] = values[:, :, 0]

    def attend(self, layer: int, q: Tensor, scale: float | None) -> Tensor:
        table, count = self.table, len(self.table.rows)
        return decode_attention(
            q,
            table.keys[layer, :count],
            table.values[layer, :count],
            table.weights[layer, :count],
            scale=scale,
        )[0]
