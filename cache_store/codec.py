"""Tensors to bytes and back: the entries of a state as safetensors, one part or more for each layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import safetensors
import torch
from safetensors.torch import load, save

from cache_store.layout import DTYPE_BYTES, Span, StateShape
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV

_NAMES = ("keys", "values", "weights", "tokens")
_DTYPES = {name: getattr(torch, name) for name in DTYPE_BYTES}


def shape_of(kv: CompressedKV) -> StateShape:
    """The sizes of a state. Raises ValueError where it does not have rows (layers, kv_heads)."""
    entries = kv.entries
    if len(entries.rows) != 2:
        raise ValueError(f"entries have rows {tuple(entries.rows)}; allowed are (layers, kv_heads)")
    return StateShape.model_validate(
        {
            "layers": entries.rows[0],
            "kv_heads": entries.rows[1],
            "entries": len(entries),
            "head_dim": entries.keys.shape[-1],
            "value_dim": entries.values.shape[-1],
            "dtype": str(entries.keys.dtype).removeprefix("torch."),
        }
    )


def encode(kv: CompressedKV) -> Iterator[bytes]:
    """The parts of a state, in the order of `StateShape.spans`. The same entries give the same bytes."""
    shape = shape_of(kv)
    tensors = [tensor.detach().cpu() for tensor in kv.entries.tensors()]
    for layer, start, stop in shape.spans():
        part = {
            name: tensor[layer, :, start:stop].contiguous()
            for name, tensor in zip(_NAMES, tensors, strict=True)
        }
        yield save(part)


def decode(
    shape: StateShape, seen: int, parts: Iterable[bytes], device: torch.device | str = "cpu"
) -> CompressedKV:
    """The state whose parts these are, on `device`; own memory, laid out as if it had never been cut.

    Raises ValueError where a part does not hold the tensors that `shape` promises.
    """
    entries = _unfilled(shape)
    for span, part in zip(shape.spans(), parts, strict=True):
        _fill(entries, span, part)
    weights = entries.weights.numpy()
    if not np.isfinite(weights).all() or (weights <= 0).any():
        raise ValueError("weights must be finite and greater than zero")
    on_device = WeightedKV(*(tensor.to(device) for tensor in entries.tensors()))
    return CompressedKV(on_device, seen)


def _unfilled(shape: StateShape) -> WeightedKV:
    rows, dtype = (shape.layers, shape.kv_heads, shape.entries), _DTYPES[shape.dtype]
    return WeightedKV(
        torch.empty((*rows, shape.head_dim), dtype=dtype),
        torch.empty((*rows, shape.value_dim), dtype=dtype),
        torch.empty(rows),
        torch.empty(rows, dtype=torch.int32),
    )


def _fill(entries: WeightedKV, span: Span, part: bytes) -> None:
    try:
        found = load(part)
    except safetensors.SafetensorError as error:
        raise ValueError(f"a part of layer {span.layer} is not safetensors: {error}") from error
    if found.keys() != set(_NAMES):
        raise ValueError(f"a part of layer {span.layer} holds {sorted(found)}, not {sorted(_NAMES)}")
    for name in _NAMES:
        place = getattr(entries, name)[span.layer, :, span.start : span.stop]
        tensor = found[name]
        if tensor.shape != place.shape or tensor.dtype != place.dtype:
            raise ValueError(
                f"{name} of layer {span.layer} is {tensor.dtype} {tuple(tensor.shape)}, "
                f"not {place.dtype} {tuple(place.shape)}"
            )
        # Bytes by numpy, which copies in this thread: torch would spread each small copy over all cores, and
        # wait there for whatever else keeps them busy.
        np.copyto(place.view(torch.uint8).numpy(), tensor.view(torch.uint8).numpy())
