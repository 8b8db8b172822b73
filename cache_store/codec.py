"""Tensors to bytes and back: the entries of a state as safetensors, one part or more for each layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import safetensors
import torch
from safetensors.torch import load, save
from torch import Tensor

from cache_store.layout import DTYPE_BYTES, Span, StateShape
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV

_NAMES = ("keys", "values", "weights", "tokens")
_SCORES = "scores"
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
            "scored": kv.scores is not None,
        }
    )


def encode(kv: CompressedKV) -> Iterator[bytes]:
    """The parts of a state, in the order of `StateShape.spans`. The same entries give the same bytes."""
    shape = shape_of(kv)
    tensors = dict(zip(_NAMES, kv.entries.tensors(), strict=True))
    if kv.scores is not None:
        tensors[_SCORES] = kv.scores
    tensors = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
    for layer, start, stop in shape.spans():
        yield save({name: tensor[layer, :, start:stop].contiguous() for name, tensor in tensors.items()})


def decode(
    shape: StateShape, seen: int, parts: Iterable[bytes], device: torch.device | str = "cpu"
) -> CompressedKV:
    """The state whose parts these are, on `device`; own memory, laid out as if it had never been cut.

    Raises ValueError where a part does not hold the tensors that `shape` promises.
    """
    tensors = _unfilled(shape)
    for span, part in zip(shape.spans(), parts, strict=True):
        _fill(tensors, span, part)
    weights = tensors["weights"].numpy()
    if not np.isfinite(weights).all() or (weights <= 0).any():
        raise ValueError("weights must be finite and greater than zero")
    tensors = {name: tensor.to(device) for name, tensor in tensors.items()}
    scores = tensors.pop(_SCORES, None)
    return CompressedKV(WeightedKV(**tensors), seen, scores)


def decode_weights(span: Span, part: bytes, seen: int) -> tuple[Tensor, Tensor]:
    """Token indices (int64) and weights (float32) of the entries in one part, both [kv_heads * entries].

    Raises ValueError where the part holds none, or indices beyond the `seen` tokens of the state.
    """
    found = _loaded(span, part)
    if not {"tokens", "weights"} <= found.keys():
        raise ValueError(f"a part of layer {span.layer} has no tokens or weights")
    tokens, weights = found["tokens"].flatten().long(), found["weights"].flatten()
    if len(tokens) != len(weights):
        raise ValueError(f"a part of layer {span.layer} has {len(tokens)} tokens and {len(weights)} weights")
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < seen:
        raise ValueError(f"a part of layer {span.layer} names tokens beyond the {seen} that were read")
    return tokens, weights


def _unfilled(shape: StateShape) -> dict[str, Tensor]:
    rows, dtype = (shape.layers, shape.kv_heads, shape.entries), _DTYPES[shape.dtype]
    tensors = {
        "keys": torch.empty((*rows, shape.head_dim), dtype=dtype),
        "values": torch.empty((*rows, shape.value_dim), dtype=dtype),
        "weights": torch.empty(rows),
        "tokens": torch.empty(rows, dtype=torch.int32),
    }
    return tensors | {_SCORES: torch.empty(rows)} if shape.scored else tensors


def _fill(tensors: Mapping[str, Tensor], span: Span, part: bytes) -> None:
    found = _loaded(span, part)
    if found.keys() != tensors.keys():
        raise ValueError(f"a part of layer {span.layer} holds {sorted(found)}, not {sorted(tensors)}")
    for name, whole in tensors.items():
        place = whole[span.layer, :, span.start : span.stop]
        tensor = found[name]
        if tensor.shape != place.shape or tensor.dtype != place.dtype:
            raise ValueError(
                f"{name} of layer {span.layer} is {tensor.dtype} {tuple(tensor.shape)}, "
                f"not {place.dtype} {tuple(place.shape)}"
            )
        # Bytes by numpy, which copies in this thread: torch would spread each small copy over all cores, and
        # wait there for whatever else keeps them busy.
        np.copyto(place.view(torch.uint8).numpy(), tensor.view(torch.uint8).numpy())


def _loaded(span: Span, part: bytes) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load(part)
    except safetensors.SafetensorError as error:
        raise ValueError(f"a part of layer {span.layer} is not safetensors: {error}") from error
    return tensors
