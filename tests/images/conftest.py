"""Builds the images once, when asked to: it takes minutes, gigabytes of disk, buildah and root."""

from __future__ import annotations

import os
import shutil

import pytest

PROGRAMS = ("buildah", "debootstrap", "ip")
BASE = "python:3.11.14-slim-bookworm"


def why_not(config: pytest.Config) -> str | None:
    if "images" not in config.getoption("markexpr"):
        return "images are built only when asked for: pytest -m images tests/images"
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"needs {', '.join(missing)} (apt-get install buildah debootstrap iproute2)"
    return "needs root, to make file systems and networks" if os.geteuid() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if reason := why_not(config):
        for item in items:
            if item.get_closest_marker("images"):
                item.add_marker(pytest.mark.skip(reason=reason))
