"""Starting a program: tensors laid out as it wants them, on the device where they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_ALIGNMENT = 16  # bytes of an address, elements of a stride


def launch(
    program: Any,
    grid: tuple[int, ...],
    device: torch.device,
    arguments: tuple[object, ...],
    constants: Mapping[str, object],
    options: Mapping[str, int],
) -> None:
    """Starts `grid` instances of a Triton program on `device`; on a CPU, in Triton's interpreter."""
    if device.type == "cpu":
        widened = {name: "widen" if name == "PRECISION" else value for name, value in constants.items()}
        program[grid](*arguments, **widened)
    else:
        with torch.cuda.device(device):
            program[grid](*arguments, **constants, **options)


def aligned(tensor: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """The tensor [..., d] and its strides but the last, which is 1; a copy only where the layout is unfit.

    What the compiler takes as given about addresses and strides holds for every result, so that one compiled
    program serves them all. A dimension of one element or none gets stride 0.
    """
    strides = _strides(tensor)
    if tensor.stride(-1) != 1 or tensor.data_ptr() % _ALIGNMENT or any(s % _ALIGNMENT for s in strides):
        tensor = tensor.clone(memory_format=torch.contiguous_format)
        strides = _strides(tensor)
    return tensor, strides


def _strides(tensor: Tensor) -> tuple[int, ...]:
    sizes, strides = tensor.shape[:-1], tensor.stride()[:-1]
    return tuple(stride if size > 1 else 0 for size, stride in zip(sizes, strides, strict=True))
