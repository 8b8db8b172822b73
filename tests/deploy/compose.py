"""compose.yaml as an empty environment leaves it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose.yaml"


def load() -> dict[str, Any]:
    """The file with its variables at their defaults, filled in after parsing: what they hold is text."""
    loaded: dict[str, Any] = _filled_in(yaml.safe_load(COMPOSE.read_text(encoding="utf-8")))
    return loaded


def _filled_in(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _filled_in(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled_in(each) for each in value]
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) if isinstance(value, str) else value


def services() -> dict[str, Any]:
    found: dict[str, Any] = load()["services"]
    return found


def seconds(duration: str) -> int:
    assert duration.endswith("s"), duration
    return int(duration.removesuffix("s"))
