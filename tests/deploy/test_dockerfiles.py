"""The Dockerfiles: clean under a linter, and their commands, files and settings exist."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from dockerfile_parse import DockerfileParser

from kernel_worker.settings import WorkerSettings
from orchestrator.settings import Settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "docker"
NAMES = ("orchestrator", "kernel-worker")


def instructions(name: str) -> list[dict[str, Any]]:
    with (FOLDER / f"{name}.Dockerfile").open("rb") as file:
        return list(DockerfileParser(fileobj=file).structure)


def values(name: str, instruction: str) -> list[str]:
    return [each["value"] for each in instructions(name) if each["instruction"] == instruction]


@pytest.mark.parametrize("name", NAMES)
def test_the_linter_has_nothing_to_say(name: str) -> None:
    hadolint = Path(sys.executable).parent / "hadolint"
    linted = subprocess.run(
        [hadolint, "--no-color", FOLDER / f"{name}.Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (linted.returncode, linted.stdout) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_the_linter_sees_what_is_wrong(name: str, tmp_path: Path) -> None:
    wrong = tmp_path / "Dockerfile"
    wrong.write_text(
        (FOLDER / f"{name}.Dockerfile").read_text().replace("-slim-bookworm", "").replace(":3.11.14", "")
    )
    hadolint = Path(sys.executable).parent / "hadolint"
    assert subprocess.run([hadolint, wrong], capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("name", NAMES)
def test_it_does_not_run_as_root_and_is_pinned_throughout(name: str) -> None:
    users = values(name, "USER")
    assert len(users) == 1
    assert int(users[0]) >= 1000
    assert all(re.search(r":\d+\.\d+\.\d+", image) for image in values(name, "FROM"))
    installs = [step for value in values(name, "RUN") for step in value.split("&&") if "pip install" in step]
    assert installs
    assert all(
        "--constraint constraints.txt" in step or "requirements-model.txt" in step for step in installs
    )


@pytest.mark.parametrize("name", NAMES)
def test_its_command_and_its_health_check_exist(name: str) -> None:
    assert json.loads(values(name, "ENTRYPOINT")[0]) == ["docexpress"]
    command = json.loads(values(name, "CMD")[0])
    check = json.loads(values(name, "HEALTHCHECK")[0].partition("CMD ")[2])
    assert check[0] == "docexpress"
    for arguments in (command, check[1:]):
        line = [sys.executable, "-m", "orchestrator.cli", *arguments, "--help"]
        subprocess.run(line, cwd=ROOT, check=True, capture_output=True)
    assert check[1] == command[0]  # it asks the process that runs here


def test_only_the_worker_image_holds_a_tensor_library() -> None:
    wanted = {name: " ".join(values(name, "RUN")) for name in NAMES}
    assert "[worker,traces]" in wanted["kernel-worker"]
    assert "worker" not in "".join((wanted["orchestrator"], *values("orchestrator", "ARG")))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {re.split(r"[\[<>=~; ]", requirement)[0] for requirement in project["dependencies"]}
    assert base.isdisjoint({"torch", "triton", "transformers", "safetensors", "numpy"})


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_is_a_setting(name: str) -> None:
    known = {*WorkerSettings.model_fields, *Settings.model_fields}
    found = re.findall(r"DOCEXPRESS_(\w+)=", " ".join(values(name, "ENV")))
    assert found
    assert {variable.lower() for variable in found} <= known


def test_the_build_sees_all_that_is_installed_and_nothing_else() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {
        pattern.removesuffix("*") for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    files = {
        "pyproject.toml",
        "constraints.txt",
        "requirements-model.txt",
        project["project"]["readme"],
        "LICENSE",
    }
    assert allowed == packages | files
    assert all((ROOT / each).exists() for each in allowed)
