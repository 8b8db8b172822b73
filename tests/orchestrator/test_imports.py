"""The orchestrator needs no tensor library: everything in it is imported where torch cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORBIDDEN = ("torch", "triton", "transformers", "numpy", "safetensors", "kernels", "kernel_worker")

PROGRAM = f"""
import importlib, pkgutil, sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {FORBIDDEN!r}:
            raise ImportError(f"{{name}} is forbidden here")

sys.meta_path.insert(0, Forbid())
import orchestrator
names = [module.name for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""


def test_torch_is_never_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30


def test_the_hook_works() -> None:
    program = PROGRAM.replace("import orchestrator\n", "import kernels\n")
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0
    assert "kernels is forbidden here" in done.stderr
