"""Random inputs of attention, and the float64 truth about them."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.reference import weighted_attention

DTYPES = [
    (torch.float32, 2e-6),
    (torch.float16, 2e-3),
    (torch.bfloat16, 1.5e-2),
]  # (dtype, largest error ratio)


def normal(*sizes: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def log_weights(*sizes: int, seed: int) -> Tensor:
    """Of weights from 1 to 2^20."""
    powers = torch.randint(0, 21, sizes, generator=torch.Generator().manual_seed(seed))
    return powers * torch.tensor(2.0).log()


def truth(
    q: Tensor, pk: Tensor, pv: Tensor, log_w: Tensor, k: Tensor, v: Tensor, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """`segment_attention` by its specification, in float64."""
    return weighted_attention(
        q.double(),
        torch.cat([pk, k], 2).double(),
        torch.cat([pv, v], 2).double(),
        torch.cat([log_w, log_w.new_zeros(k.shape[:3])], 2).double(),
        scale=scale,
        causal_from=pk.shape[2] + k.shape[2] - q.shape[2],
    )
