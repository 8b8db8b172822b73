"""Linear layers with their weights laid out for few rows at a time, by oneDNN."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

log = logging.getLogger(__name__)


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


def packable(model: Any) -> bool:
    """Whether the linear layers of a model can be packed: in float32 on a CPU."""
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return False
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        log.warning("This torch has no oneDNN: texts that are written together are slower.")
        return False
    return True


def pack(model: Any, layers: Sequence[nn.Linear]) -> list[PackedLinear]:
    """Replaces layers of a packable model; the new ones, in the same order."""
    packed = {layer: PackedLinear(layer) for layer in layers}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if child in packed:
                setattr(parent, name, packed[child])
    return list(packed.values())
