"""Weighted key-value entries, the one data structure of this package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.dispatch import backend, taken
from kernels.triton.support import unsupported


@dataclass(frozen=True, slots=True)
class WeightedKV:
    """Entries (k_i, v_i, w_i) of a cache: entry i stands for w_i tokens (`express.md`, section 1).

    The leading dimensions `rows` are the same for all four tensors; a model's state has rows
    (layers, kv_heads), and every row holds the same number of entries C.

    keys     [*rows, C, d]    floating point; not rotated by the position embedding
    values   [*rows, C, d_v]  same dtype as keys
    weights  [*rows, C]       float32, greater than zero
    tokens   [*rows, C]       int32, the index in the document of the token an entry came from
    """

    keys: Tensor
    values: Tensor
    weights: Tensor
    tokens: Tensor

    def __post_init__(self) -> None:
        rows = self.keys.shape[:-1]
        for name in ("values", "weights", "tokens"):
            tensor: Tensor = getattr(self, name)
            shape = tensor.shape[:-1] if name == "values" else tensor.shape
            if shape != rows:
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}; keys allow only {tuple(rows)} in front"
                )
        if self.values.dtype != self.keys.dtype or not self.keys.dtype.is_floating_point:
            raise ValueError(
                f"keys and values must share one floating dtype, got {self.keys.dtype}, {self.values.dtype}"
            )
        if self.weights.dtype != torch.float32 or self.tokens.dtype != torch.int32:
            raise ValueError(
                f"weights must be float32 and tokens int32, got {self.weights.dtype} and {self.tokens.dtype}"
            )

    @classmethod
    def exact(cls, keys: Tensor, values: Tensor, first_token: int = 0) -> WeightedKV:
        """Entries of weight 1 for consecutive tokens, the first of which is `first_token`."""
        rows = keys.shape[:-1]
        tokens = torch.arange(first_token, first_token + rows[-1], dtype=torch.int32, device=keys.device)
        return cls(keys, values, torch.ones(rows, device=keys.device), tokens.expand(rows).contiguous())

    @classmethod
    def empty(
        cls,
        rows: Sequence[int],
        d: int,
        d_v: int | None = None,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> WeightedKV:
        """No entries at all, in the given rows."""
        shape = (*rows, 0)
        return cls(
            torch.empty((*shape, d), dtype=dtype, device=device),
            torch.empty((*shape, d if d_v is None else d_v), dtype=dtype, device=device),
            torch.empty(shape, device=device),
            torch.empty(shape, dtype=torch.int32, device=device),
        )

    def __len__(self) -> int:
        """Entries per row."""
        return self.keys.shape[-2]

    @property
    def rows(self) -> torch.Size:
        return self.keys.shape[:-2]

    @property
    def nbytes(self) -> int:
        """Bytes of all four tensors."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors())

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.keys, self.values, self.weights, self.tokens

    def slice(self, start: int, stop: int) -> WeightedKV:
        """Entries start..stop of every row, as views."""
        return WeightedKV(
            self.keys[..., start:stop, :],
            self.values[..., start:stop, :],
            self.weights[..., start:stop],
            self.tokens[..., start:stop],
        )

    def gather(self, index: Tensor) -> WeightedKV:
        """Entries `index` [*rows, P] (int64) of every row, copied in that order."""
        if backend(index.device) == "triton" and taken(unsupported(self.keys, self.values)):
            from kernels.triton.gather import gather

            return gather(self, index)
        # Indexing whole points copies each at once; Tensor.gather would look up every single number.
        count = self.rows.numel()
        places = (torch.arange(count, device=index.device).unsqueeze(-1), index.reshape(count, -1))

        def take(points: Tensor) -> Tensor:
            return points.reshape(count, *points.shape[-2:])[places].view(*index.shape, points.shape[-1])

        return WeightedKV(
            take(self.keys), take(self.values), self.weights.gather(-1, index), self.tokens.gather(-1, index)
        )

    def scaled(self, factor: float) -> WeightedKV:
        """The same entries, each standing for `factor` times as many tokens."""
        return WeightedKV(self.keys, self.values, self.weights * factor, self.tokens)


def concat(parts: Sequence[WeightedKV]) -> WeightedKV:
    """The entries of all parts, in order; rows, head sizes and dtypes must agree."""
    if not parts:
        raise ValueError("parts is empty: nothing tells the rows of the result")
    return WeightedKV(
        torch.cat([part.keys for part in parts], dim=-2),
        torch.cat([part.values for part in parts], dim=-2),
        torch.cat([part.weights for part in parts], dim=-1),
        torch.cat([part.tokens for part in parts], dim=-1),
    )
