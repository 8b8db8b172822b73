"""The committed table of what every launch takes of a GPU: `python -m kernels.triton.resource_table FILE`.

Writes the table anew: a row that is still up to date is kept, the others are compiled, on all processors.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from kernels.triton.launches import Launch, launches
from kernels.triton.resources import Resources, compile_launch, measure

COLUMNS = ("launch", "registers", "spilled", "shared", "warps", "wgmma", "occupancy", "digest")


def row_of(launch: Launch, resources: Resources) -> dict[str, str]:
    """A row of the table."""
    figures = (
        resources.registers,
        resources.spilled,
        resources.shared,
        resources.warps,
        resources.wgmma,
        f"{resources.occupancy(launch.family):.4g}",
    )
    return dict(zip(COLUMNS, (launch.name, *map(str, figures), launch.digest()), strict=True))


def read(table: Path) -> dict[str, dict[str, str]]:
    """The rows of a table by the name of their launch; none where there is no such file."""
    if not table.exists():
        return {}
    with table.open(newline="", encoding="utf-8") as file:
        return {row["launch"]: row for row in csv.DictReader(file)}


def write(table: Path, rows: Iterable[dict[str, str]]) -> None:
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def measure_rows(names: list[str]) -> Iterator[dict[str, str]]:
    """Rows of the launches of these names, compiled on all processors, in their order."""
    with _pool() as pool:
        yield from pool.map(_measure_row, names)


def compile_all(names: list[str], architecture: int) -> None:
    """Fills Triton's cache with these launches, compiled for an architecture such as 90 on all processors."""
    with _pool() as pool:
        for _ in pool.map(_compile, names, [architecture] * len(names)):
            pass


def _pool() -> ProcessPoolExecutor:
    # Fresh processes, to which names travel, since programs cannot be pickled.
    return ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn"))


def _measure_row(name: str) -> dict[str, str]:
    launch = _launch(name)
    return row_of(launch, measure(launch))


def _compile(name: str, architecture: int) -> None:
    compile_launch(_launch(name), architecture)


def _launch(name: str) -> Launch:
    return next(launch for launch in launches() if launch.name == name)


def main(table: Path) -> None:
    old = read(table)
    wanted = list(launches())
    stale = [launch.name for launch in wanted if old.get(launch.name, {}).get("digest") != launch.digest()]
    rows = {launch.name: old.get(launch.name) for launch in wanted}
    for number, row in enumerate(measure_rows(stale), start=1):
        rows[row["launch"]] = row
        print(f"{number}/{len(stale)} {row}", file=sys.stderr)
        write(table, [row for row in rows.values() if row])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
