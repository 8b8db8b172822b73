"""What the programs take of a GPU, compiled ahead of time; the committed table says it of every launch.

A row carries a digest of all that decides what the compiler makes of a launch, so a table that is not of this
code fails here, and what it says must be allowed. That it says what the compiler does is checked on a sample;
DOCEXPRESS_COMPILE_ALL=1 compiles every launch (minutes).
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest

pytest.importorskip("triton")

from kernels.triton.launches import Launch, launches
from kernels.triton.resource_table import COLUMNS, measure_rows, read
from kernels.triton.resources import SHARED_PER_PROGRAM, Resources, measure

TABLE = Path(__file__).parents[3] / "docs" / "kernel_resources.csv"
TABLE_TRITON = "3.7.1"
LAUNCHES = {launch.name: launch for launch in launches()}
# One of each program on each family, every head size, dtype and kind of product among them.
ALL = os.environ.get("DOCEXPRESS_COMPILE_ALL") == "1"
SAMPLE = [
    "attention-sm80-fp16-d64",
    "attention-sm90-bf16-d128",
    "attention-sm90-fp32-tf32-d80",
    "attention-sm100-bf16-d256",
    "decode-part-sm80-bf16-d256",
    "decode-part-sm90-fp32-d96",
    "decode-part-sm100-fp16-d128",
    "decode-merge-sm80-fp32-d64",
    "decode-merge-sm90-bf16-d128",
    "decode-merge-sm100-fp16-d80",
    "halving-sm80-bf16-d96",
    "halving-sm90-bf16-d128",
    "halving-sm100-fp16-d64",
    "gather-sm80-i16-d80",
    "gather-sm90-i16-d128",
    "gather-sm100-i32-d256",
]
needs_pinned_triton = pytest.mark.skipif(
    version("triton") != TABLE_TRITON, reason=f"the table is of triton {TABLE_TRITON}"
)


@needs_pinned_triton
def test_the_table_is_of_this_code() -> None:
    rows = read(TABLE)
    digests = {name: row["digest"] for name, row in rows.items()}
    assert digests == {name: launch.digest() for name, launch in LAUNCHES.items()}, (
        f"write it anew: python -m kernels.triton.resource_table {TABLE}"
    )


@needs_pinned_triton
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_launch_fits_and_spills_nothing(name: str) -> None:
    row = read(TABLE)[name]
    assert row["spilled"] == "0"
    assert int(row["shared"]) <= SHARED_PER_PROGRAM[LAUNCHES[name].family]
    assert float(row["occupancy"]) > 0.0
    if name.startswith(("attention-sm90-fp16", "attention-sm90-bf16")):
        assert int(row["wgmma"]) > 0


@pytest.mark.timeout(3600 if ALL else 300)
def test_the_compiler_says_the_same() -> None:
    """Another version of Triton hands out registers in its own way and may spill; programs still fit."""
    names = list(LAUNCHES) if ALL else SAMPLE
    rows = read(TABLE)
    for row in measure_rows(names):
        launch = LAUNCHES[row["launch"]]
        assert int(row["shared"]) <= SHARED_PER_PROGRAM[launch.family], row
        if version("triton") == TABLE_TRITON:
            assert row == {column: rows[launch.name][column] for column in COLUMNS}


def test_a_spill_would_be_noticed() -> None:
    """The same program with too few registers."""
    launch = LAUNCHES["attention-sm80-fp16-d64"]
    starved = Launch(launch.program, 80, "fp16", launch.constants, launch.options | {"maxnreg": 64})
    assert measure(starved).spilled > 0


def test_occupancy_is_that_of_nvidias_calculator() -> None:
    assert Resources(registers=255, spilled=0, shared=164864, warps=8, wgmma=1).occupancy(90) == 8 / 64
    assert Resources(registers=128, spilled=0, shared=32768, warps=4, wgmma=0).occupancy(80) == 16 / 64
    assert Resources(registers=32, spilled=0, shared=1024, warps=4, wgmma=0).occupancy(90) == 1.0
    assert Resources(registers=40, spilled=0, shared=0, warps=4, wgmma=0).occupancy(90) == 48 / 64
