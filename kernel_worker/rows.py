"""How many rows a step of decoding needs, so that a row's bits are the same whatever rows are beside it.

A step multiplies every weight with one row for each text. Libraries take one algorithm for a single row and
others for several, and their sums differ in the last bits; a text would then depend on its company. Which
counts of rows agree is different on every processor, so it is tried when a model is loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from kernel_worker.packed import PackedLinear, pack

MOST_ROWS = 8
"""By default."""
_EACH = 32
"""Up to so many rows every count is tried; beyond, doublings."""


def settle_rows(model: Any, most: int) -> int | None:
    """From how many rows on, up to `most`, a row's result no longer depends on their number.

    1 or 2 where that can be had: with the layers as they are, which is fastest for a text alone, or else
    packed. None where it holds for `most` alone; a step must then always have so many rows.
    """
    fewest = _fewest_rows(model, most)
    if fewest is not None and fewest <= 2:
        return fewest
    return _fewest_rows(model, most) if pack(model) else fewest


@torch.inference_mode()
def _fewest_rows(model: Any, most: int) -> int | None:
    """The trial of a layer of each shape. What stands in other rows cannot matter: they are other inputs."""
    counts = [*range(1, min(most, _EACH)), *(1 << n for n in range(6, most.bit_length()) if 1 << n < most)]
    layers = {
        (layer.in_features, layer.out_features): layer
        for layer in model.modules()
        if isinstance(layer, nn.Linear | PackedLinear)
    }
    found = [_agreeing(layer, counts, most, model) for layer in layers.values()]
    return max(found) if found and max(found) < max(most, 2) else None


def _agreeing(layer: Any, counts: Sequence[int], most: int, model: Any) -> int:
    """The least count from which on all give the first rows the bits that `most` rows give them."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(most, 1, layer.in_features, generator=random).to(model.device, model.dtype)
    whole, fewest = layer(x), most
    for rows in reversed(counts):
        if not torch.equal(layer(x[:rows]), whole[:rows]):
            break
        fewest = rows
    return fewest
