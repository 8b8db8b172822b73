"""compose.yaml as an empty environment leaves it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "compose.yaml"


def load() -> dict[str, Any]:
    """The file with its variables at their defaults, as an empty environment leaves them."""
    text = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", COMPOSE.read_text(encoding="utf-8"))
    loaded: dict[str, Any] = yaml.safe_load(text)
    return loaded


def services() -> dict[str, Any]:
    found: dict[str, Any] = load()["services"]
    return found


def seconds(duration: str) -> int:
    assert duration.endswith("s"), duration
    return int(duration.removesuffix("s"))
