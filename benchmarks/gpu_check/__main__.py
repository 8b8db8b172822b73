"""python -m benchmarks.gpu_check FOLDER [--seconds 450]: see `benchmarks/gpu_check.sh`.

Exit code 1 where a program was wrong. What was found so far is on disk at every moment.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks.gpu_check import correctness, machine, plot, speed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=450.0, help="what does not fit is left out")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    here = machine.Machine(device, time.monotonic() + options.seconds)
    results: dict[str, Any] = {"machine": here.describe()}
    for name, value in _steps(here, results):
        results[name] = value
        results["seconds"] = round(time.monotonic() - here.started, 1)
        _write(options.folder / "results.json", results)
        latest = value[-1] if isinstance(value, list) and value else value
        print(f"[{results['seconds']} s] {name}: {json.dumps(latest)}", flush=True)
    drawn = plot.draw(results["prefill"], results["machine"], options.folder / "results.png")
    print(
        f"wrote {options.folder}/results.json" + (" and results.png" if drawn else ", no plot: no matplotlib")
    )
    wrong = [case for case in results["correctness"] if not case["ok"]]
    return 1 if wrong else 0


def _steps(here: machine.Machine, results: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, value) of each part of the results, in order; a part that grows comes again and again."""
    if here.gpu:
        yield "cache", machine.fill_cache(here)
    compiled: list[str] = []
    if here.gpu:
        triton.knobs.compilation.listener = lambda **seen: (
            None if seen["cache_hit"] else compiled.append(seen["metadata"]["name"])
        )
    yield from _growing("correctness", correctness.cases(here))
    yield "peaks", machine.peaks(here)
    for name, part in (("halving", speed.halving), ("decode", speed.decode), ("prefill", speed.prefill)):
        yield from _growing(name, part(here, results["peaks"]))
    # Launches that the table of resources does not know: there should be none.
    yield "compiled_later", compiled


def _growing(name: str, rows: Iterator[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    found: list[dict[str, Any]] = []
    for row in rows:
        found.append(row)
        yield name, found


def _write(file: Path, results: dict[str, Any]) -> None:
    """Whole or not at all."""
    temporary = file.with_suffix(".part")
    temporary.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    temporary.replace(file)


if __name__ == "__main__":
    sys.exit(main())
