"""Imports go one way, and what a process does not need it does not load.

Each package is imported, with all its modules, in a process of its own whose import hook refuses what the
package must not need.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SERVICES = {"grpc", "redis", "celery", "kombu", "orchestrator", "kernel_worker"}
TENSORS = {"torch", "triton", "transformers", "safetensors", "numpy", "accelerate", "gguf"}

FORBIDDEN = {
    "protos": {"kernels", "cache_store", "kernel_worker", "orchestrator", "redis", "celery"} | TENSORS,
    "kernels": {"protos", "cache_store", "transformers", "safetensors"} | SERVICES,
    "cache_store": {"kernel_worker", "orchestrator", "grpc", "celery", "transformers", "protos"},
    "kernel_worker": {"orchestrator", "celery", "kombu", "typer"},
    "orchestrator": {"kernels", "kernel_worker"} | TENSORS,
}
# What the orchestrator uses of the cache store must be free of tensors, too; the codec is for workers.
WITH_TENSORS = {"cache_store.codec", "cache_store.states"}
# These exist where a GPU's compiler does.
NEED_TRITON = ("kernels.triton",)

PROGRAM = """
import importlib, pkgutil, sys

package, forbidden, skipped = sys.argv[1], set(sys.argv[2].split(",")), tuple(sys.argv[3].split(","))


class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in forbidden:
            raise ImportError(f"{package} must not need {name}")


sys.meta_path.insert(0, Refusal())
imported = [package]
root = importlib.import_module(package)
for module in pkgutil.walk_packages(root.__path__, package + "."):
    if not module.name.startswith(skipped) and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        imported.append(module.name)
print(len(imported))
"""


def import_all(
    package: str, forbidden: set[str], skipped: tuple[str, ...]
) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PROGRAM, package, ",".join(sorted(forbidden)), ",".join(skipped)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("package", FORBIDDEN)
def test_a_package_does_without_what_it_must_not_need(package: str) -> None:
    skipped = ("-", *(NEED_TRITON if package == "kernels" else ()))
    done = import_all(package, FORBIDDEN[package], skipped)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1


def test_the_cache_store_without_its_codec_does_without_tensors() -> None:
    done = import_all("cache_store", FORBIDDEN["cache_store"] | TENSORS | {"kernels"}, tuple(WITH_TENSORS))
    assert done.returncode == 0, done.stderr


def test_a_forbidden_import_would_be_noticed() -> None:
    done = import_all("orchestrator", {"redis"}, ("-",))
    assert done.returncode == 1
    assert "orchestrator must not need redis" in done.stderr


def test_the_command_line_starts_without_what_only_some_commands_need() -> None:
    late = ["celery", "grpc", "redis", "pydantic"]
    program = f"import sys, orchestrator.cli.app; print([name for name in {late} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
