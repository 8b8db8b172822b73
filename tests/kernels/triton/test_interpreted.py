"""Runs the tests of `interpreted/` in Triton's interpreter, which takes processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("triton")

ROOT = Path(__file__).parents[3]
SUITES = sorted((Path(__file__).parent / "interpreted").glob("test_*.py"))
Runs = dict[Path, "Future[subprocess.CompletedProcess[str]]"]


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    """All suites, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield {suite: pool.submit(_run, suite) for suite in SUITES}


def _run(suite: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", str(suite), "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.stem)
def test_programs_in_the_interpreter(suite: Path, runs: Runs) -> None:
    done = runs[suite].result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
