"""The part that the orchestrator imports works in a process that has no torch and no safetensors."""

from __future__ import annotations

import subprocess
import sys

import pytest

TORCH_FREE = [
    "connection", "documents", "errors", "keys", "layout", "manifest", "naming", "settings", "store",
    "tokens", "transfer", "worker_registry",
]  # fmt: skip

IMPORT = """
import sys

class Forbidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {
            "torch", "safetensors", "numpy", "transformers", "triton", "grpc", "celery"
        }:
            raise ImportError(f"{name} must not be imported here")

sys.meta_path.insert(0, Forbidden())
import importlib
for module in sys.argv[1:]:
    importlib.import_module(f"cache_store.{module}")
"""


def import_alone(*modules: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", IMPORT, *modules]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_imports_without_torch() -> None:
    result = import_alone(*TORCH_FREE)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("module", ["codec", "states"])
def test_the_hook_does_forbid(module: str) -> None:
    result = import_alone(module)
    assert "must not be imported here" in result.stderr
