"""Linear layers with their weights laid out for few rows at a time, by oneDNN.

A step of decoding multiplies every weight with one row for each sequence. The usual layout is slow at that,
and gives a row other bits as soon as others are beside it. Packed, eight rows cost less than two did, and a
row's bits are the same in any company (on some processors in any but none): what a sequence says does not
depend on who else is speaking.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)

_TRIED = (1, 2, 3, 4, 5, 8, 12, 16, 24, 32)
"""How many rows the trial compares."""


class PackedLinear(nn.Module):
    """In place of a `nn.Linear` in float32 on a CPU: x [..., in] -> [..., out]. Without gradients."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        # Opaque to torch's ways of moving and saving parameters, so it is none of them.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self._bias, "none", [], "")
        return out


def pack(model: Any) -> int | None:
    """Replaces the linear layers of a model in float32 on a CPU; leaves every other model as it is.

    Returns from how many rows on a row's result is now the same, to the bit, whatever rows are beside it:
    1 or 2, say. None costs nothing but time: who steps several sequences together must then always step
    as many rows.
    """
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return None
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        log.warning("This torch has no oneDNN: sequences that are decoded together are slower.")
        return None
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child))
    layers = {(m.in_features, m.out_features): m for m in model.modules() if isinstance(m, PackedLinear)}
    fewest = [_fewest_rows(layer) for layer in layers.values()]
    return None if not fewest or None in fewest else max(each for each in fewest if each)


@torch.inference_mode()
def _fewest_rows(layer: PackedLinear) -> int | None:
    """The trial of one layer of a shape. What stands in other rows cannot matter: they are other inputs."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(max(_TRIED), 1, layer.in_features, generator=random)
    whole = layer(x)
    fewest = None
    for rows in reversed(_TRIED[:-1]):
        if not torch.equal(layer(x[:rows]), whole[:rows]):
            break
        fewest = rows
    return fewest
