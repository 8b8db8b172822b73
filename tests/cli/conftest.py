from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import CommandLine
from tests.cli.waiting import until


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[CommandLine]:
    """A command line that must have left nothing running when the test ends."""
    line = CommandLine(tmp_path / "home")
    yield line
    until(lambda: not line.processes())
