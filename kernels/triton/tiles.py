"""How much one GPU program does at a time, for each program, family of GPUs, kind of number and head size.

Chosen so that `ptxas` reports no spills and shared memory fits (see `resources`): on sm_80 into the 99 KiB
that its descendants sm_86 and sm_89 have, on sm_90 and sm_100 into 227 KiB.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch

Family = Literal[80, 90, 100]
FAMILIES: tuple[Family, ...] = (80, 90, 100)


@dataclass(frozen=True, slots=True)
class Tile:
    """rows by columns of the matrix of logits or kernel values, warps of a program, stages of pipelining."""

    rows: int
    columns: int
    warps: int
    stages: int


@lru_cache
def family(device: torch.device) -> Family:
    """The family whose tiles a device runs; the interpreter on a CPU runs those of sm_90."""
    if device.type != "cuda":
        return 90
    major, _ = torch.cuda.get_device_capability(device)
    return 90 if major == 9 else 100 if major == 10 else 80


def block_of(head_size: int) -> int:
    """The power of two that holds a head."""
    return max(16, 1 << (head_size - 1).bit_length())


def precision(dtype: torch.dtype, *, tf32: bool = False) -> str:
    """How a matrix product treats its inputs: as they are, or float32 in three passes of tf32 (or one).

    Three passes lose no accuracy against float32 arithmetic that matters here, and run on the tensor cores.
    """
    if dtype != torch.float32:
        return "ieee"
    return "tf32" if tf32 else "tf32x3"


# Keys: (family, float32?, block of the head size).
ATTENTION: dict[tuple[Family, bool, int], Tile] = {
    (80, False, 64): Tile(128, 64, 4, 3),
    (80, False, 128): Tile(128, 64, 8, 2),
    (80, False, 256): Tile(64, 32, 8, 2),
    (80, True, 64): Tile(64, 32, 4, 2),
    (80, True, 128): Tile(32, 32, 4, 2),
    (80, True, 256): Tile(16, 16, 8, 1),
    (90, False, 64): Tile(128, 128, 8, 2),
    (90, False, 128): Tile(128, 128, 8, 2),
    (90, False, 256): Tile(128, 64, 8, 2),
    (90, True, 64): Tile(64, 64, 4, 2),
    (90, True, 128): Tile(32, 32, 4, 2),
    (90, True, 256): Tile(16, 16, 8, 1),
    (100, False, 64): Tile(128, 128, 8, 2),
    (100, False, 128): Tile(128, 64, 8, 3),
    (100, False, 256): Tile(128, 32, 8, 2),
    (100, True, 64): Tile(64, 32, 8, 2),
    (100, True, 128): Tile(32, 32, 8, 2),
    (100, True, 256): Tile(16, 16, 8, 1),
}

DECODE: dict[tuple[Family, bool, int], Tile] = {
    (name, wide, block): tile
    for name in FAMILIES
    for (wide, block), tile in {
        (False, 64): Tile(16, 64, 4, 3),
        (False, 128): Tile(16, 64, 4, 3),
        (False, 256): Tile(16, 32, 4, 3),
        (True, 64): Tile(16, 64, 4, 2),
        (True, 128): Tile(16, 16, 4, 2),
        (True, 256): Tile(16, 16, 8, 1),
    }.items()
}
MERGE = Tile(1, 16, 4, 1)

# With the number of pairs whose signs are decided in one go, and the most coordinates that a product takes at
# a time: float32 in three passes needs too many registers otherwise.
HALVING: dict[tuple[Family, bool, int], tuple[Tile, int, int]] = {
    (80, False, 64): (Tile(64, 64, 4, 2), 16, 64),
    (80, False, 128): (Tile(64, 64, 4, 2), 16, 128),
    (80, False, 256): (Tile(64, 32, 4, 2), 8, 256),
    (90, False, 64): (Tile(64, 64, 4, 2), 16, 64),
    (90, False, 128): (Tile(128, 64, 8, 2), 16, 128),
    (90, False, 256): (Tile(64, 64, 4, 2), 8, 256),
    (100, False, 64): (Tile(64, 64, 4, 2), 16, 64),
    (100, False, 128): (Tile(64, 64, 4, 2), 8, 128),
    (100, False, 256): (Tile(64, 64, 4, 2), 8, 256),
    **{(name, True, 64): (Tile(64, 32, 4, 1), 16, 32) for name in FAMILIES},
    **{(name, True, block): (Tile(64, 32, 4, 1), 16, 16) for name in FAMILIES for block in (128, 256)},
}

GATHER = Tile(32, 1, 4, 1)
