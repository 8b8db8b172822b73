"""How many rows a step of decoding needs, so that a row's bits are the same whatever rows are beside it.

A step multiplies every weight with one row for each text. Libraries take one algorithm for a single row and
others for several, and their sums differ in the last bits; a text would then depend on its company. Which
counts of rows agree is different on every processor, so it is tried when a model is loaded.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, nn

from kernel_worker.packed import pack, packable

MOST_ROWS = 8
"""By default, as the settings of a worker have it."""
_ENOUGH = 2
"""A lone text costs hardly more with an empty row beside it."""
_EACH = 32
"""Up to so many rows every count is tried; beyond, doublings."""


@torch.inference_mode()
def settle_rows(model: Any, most: int) -> int | None:
    """From how many rows on, up to `most`, a row's result no longer depends on their number; 1 or 2, mostly.

    Layers of a shape stay as they are, which is fastest for a text alone, where that is enough for them;
    others are packed where they can be. None where only `most` rows agree with themselves: a step must then
    always have so many.
    """
    shapes: dict[tuple[int, int], list[nn.Linear]] = defaultdict(list)
    for layer in model.modules():
        if type(layer) is nn.Linear:
            shapes[layer.in_features, layer.out_features].append(layer)
    fewest = [_settled(model, layers, most) for layers in shapes.values()]
    return max(fewest) if fewest and max(fewest) < max(most, 2) else None


def _settled(model: Any, layers: list[nn.Linear], most: int) -> int:
    """Of layers of one shape, of which the first one is tried."""
    x = torch.randn(most, 1, layers[0].in_features, generator=torch.Generator().manual_seed(0))
    x = x.to(model.device, model.dtype)
    fewest = _fewest(layers[0], x)
    if fewest > _ENOUGH and packable(model):
        return _fewest(pack(model, layers)[0], x)
    return fewest


def _fewest(layer: nn.Module, x: Tensor) -> int:
    """The least count from which on all counts give the first rows of x the bits that all of x gives them.

    What stands in other rows cannot matter: they are other inputs.
    """
    most = len(x)
    counts = [*range(1, min(most, _EACH)), *(1 << n for n in range(5, most.bit_length()) if 1 << n < most)]
    whole, fewest = layer(x), most
    for rows in reversed(counts):
        if not torch.equal(layer(x[:rows]), whole[:rows]):
            break
        fewest = rows
    return fewest
