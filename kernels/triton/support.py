"""What the Triton programs take. Needs no Triton, so that the dispatch can ask anywhere."""

from __future__ import annotations

import importlib.util
import math
import os
from functools import lru_cache

import torch
from torch import Tensor

HEAD_SIZES = (64, 80, 96, 128, 256)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
OLDEST_CAPABILITY = 8
_LARGEST = 2**31  # offsets inside one head are 32 bits wide
_MOST_HEADS = 65535  # a grid's second dimension


def unsupported(keys: Tensor, values: Tensor, *others: Tensor, scale: float | None = None) -> str | None:
    """Why the Triton programs do not take keys and values [..., C, d] and others of their kind, or None.

    The others, queries and a prefix, must be like them.
    """
    d = keys.shape[-1]
    if d not in HEAD_SIZES:
        return f"keys has head size {d}; allowed are {', '.join(map(str, HEAD_SIZES))}"
    if keys.dtype not in DTYPES:
        return f"keys has dtype {keys.dtype}; allowed are {', '.join(map(str, DTYPES))}"
    for name, tensor in (("values", values), *(("another argument", tensor) for tensor in others)):
        if tensor.dtype != keys.dtype or tensor.device != keys.device:
            return (
                f"{name} is {tensor.dtype} on {tensor.device}; allowed is what keys is, {keys.dtype} on"
                f" {keys.device}"
            )
        if tensor.shape[-1] != d:
            return f"{name} has head size {tensor.shape[-1]}; allowed is that of keys, {d}"
    if max(tensor.shape[-2] for tensor in (keys, *others)) * d >= _LARGEST:
        return f"keys has {keys.shape[-2]} entries; allowed are fewer than {_LARGEST // d} of head size {d}"
    if keys.dim() == 4 and keys.shape[0] * keys.shape[1] > _MOST_HEADS:
        return f"keys has {keys.shape[0]} x {keys.shape[1]} batches and heads; allowed are {_MOST_HEADS}"
    if scale is not None and not 0.0 < scale < math.inf:
        return f"scale is {scale}; allowed is more than 0"
    return _unsupported_device(keys.device)


def refuse(reason: str | None) -> None:
    """ValueError for a reason of `unsupported`."""
    if reason is not None:
        raise ValueError(reason)


def _unsupported_device(device: torch.device) -> str | None:
    if not _has_triton():
        return "triton is not installed"
    if device.type == "cuda":
        major, minor = _capability(device)
        if major >= OLDEST_CAPABILITY:
            return None
        return f"{device} has compute capability {major}.{minor}; allowed is {OLDEST_CAPABILITY}.0 or newer"
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return f"keys is on {device}; allowed is a CUDA device, or the CPU with TRITON_INTERPRET=1"


@lru_cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@lru_cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
