"""compose.yaml: valid, and what it names exists: commands, options, settings, files, memory policies."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_worker.settings import WorkerSettings
from orchestrator.embedded.valkey import valkey_program
from orchestrator.settings import Settings
from tests.deploy.compose import COMPOSE, ROOT, load, seconds, services

STORES = ("broker", "cache-store")
WORKERS = ("kernel-worker", "kernel-worker-cpu")
MONITORS = {"prometheus": [], "grafana": ["127.0.0.1:3000:3000"], "flower": ["127.0.0.1:5555:5555"]}
SERVICES = (*STORES, *WORKERS, *MONITORS, "orchestrator", "api")


def test_the_file_follows_the_compose_specification(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    subprocess.run([*command, str(COMPOSE)], check=True, capture_output=True)
    wrong = tmp_path / "compose.yaml"
    wrong.write_text(COMPOSE.read_text().replace("restart:", "restarts:"))
    assert subprocess.run([*command, str(wrong)], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_restarts_is_watched_and_what_is_published_is_on_loopback(name: str) -> None:
    service = services()[name]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    published = {"api": ["127.0.0.1:8000:8000"], **MONITORS}
    assert service.get("ports", []) == published.get(name, [])
    assert "stop_grace_period" in service


def test_only_the_cpu_worker_the_command_line_and_monitors_wait_for_a_profile() -> None:
    profiles = {name: service["profiles"] for name, service in services().items() if "profiles" in service}
    assert profiles == {
        "kernel-worker-cpu": ["cpu"],
        "cli": ["cli"],
        "prometheus": ["monitoring"],
        "grafana": ["monitoring"],
        "flower": ["flower"],
    }
    assert set(services()) == {*SERVICES, "cli"}


def test_the_gpu_is_reserved_for_the_gpu_worker_alone() -> None:
    for name, service in services().items():
        devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
        assert [device["capabilities"] for device in devices] == (
            [["gpu"]] if name == "kernel-worker" else []
        )


def test_workers_may_be_many() -> None:
    for name in WORKERS:
        assert "container_name" not in services()[name]
        assert "hostname" not in services()[name]


def docexpress_commands() -> list[list[str]]:
    """The arguments of `docexpress`, the images' entry point, in every command and health check."""
    others = (*STORES, *MONITORS)
    commands = [list(service["command"]) for name, service in services().items() if name not in others]
    tests = [service["healthcheck"].get("test", []) for service in services().values()]
    return commands + [test[2:] for test in tests if test[:2] == ["CMD", "docexpress"]]


@pytest.mark.parametrize("arguments", docexpress_commands(), ids=" ".join)
def test_every_command_exists_with_its_options(arguments: list[str]) -> None:
    assert help_of(arguments).returncode == 0


def test_a_command_or_an_option_that_is_none_would_be_noticed() -> None:
    assert len(docexpress_commands()) == 9
    assert help_of(["work"]).returncode == 2
    assert help_of(["worker", "--chek"]).returncode == 2


def help_of(arguments: list[str]) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "orchestrator.cli", *arguments, "--help"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False)


@pytest.mark.parametrize("name", STORES)
def test_each_store_starts_with_its_options_and_drops_nothing(name: str, tmp_path: Path) -> None:
    command: list[str] = services()[name]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"
    running = subprocess.Popen(
        [valkey_program(), *command[1:], "--port", "0", "--unixsocket", "socket"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    with running.stdout as output:
        lines = [line for line in iter(output.readline, "") if stop_when_ready(running, line)]
    assert running.wait(timeout=20) == 0, lines
    assert (tmp_path / "dump.rdb").exists()  # it saves when it is stopped


def stop_when_ready(process: subprocess.Popen[str], line: str) -> bool:
    if "Ready to accept connections" in line:
        process.send_signal(signal.SIGTERM)
    return True


def test_broker_and_cache_store_are_two_servers_with_volumes_of_their_own() -> None:
    volumes = [services()[name]["volumes"] for name in STORES]
    assert volumes[0] != volumes[1]
    for name in (*WORKERS, "orchestrator", "api", "cli"):
        environment = services()[name]["environment"]
        assert environment["DOCEXPRESS_REDIS_URL"].startswith("redis://broker:")
        assert environment["DOCEXPRESS_CACHE_URL"].startswith("redis://cache-store:")
        assert {
            needed: how["condition"] for needed, how in services()[name]["depends_on"].items()
        } == dict.fromkeys(STORES, "service_healthy")


@pytest.mark.parametrize("name", [*WORKERS, "orchestrator", "api", "cli"])
def test_every_variable_is_a_setting_with_a_value_that_it_takes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = WorkerSettings if name in WORKERS else Settings
    known = {*kind.model_fields, *Settings.model_fields}  # a worker reads the settings of the stores, too
    for variable in [each for each in os.environ if each.startswith("DOCEXPRESS_")]:
        monkeypatch.delenv(variable)
    variables = services()[name]["environment"]
    for variable, value in variables.items():
        if variable.startswith("OTEL_"):  # OpenTelemetry's own
            continue
        assert variable.removeprefix("DOCEXPRESS_").lower() in known
        monkeypatch.setenv(variable, str(value))
    Settings()
    kind()


def test_a_worker_may_finish_before_it_is_killed() -> None:
    for name in WORKERS:
        drain = int(services()[name]["environment"]["DOCEXPRESS_DRAIN_SECONDS"])
        assert seconds(services()[name]["stop_grace_period"]) > drain


def test_every_file_and_volume_exists() -> None:
    for name, service in services().items():
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            here = source.startswith(".") and (ROOT / source).is_dir()
            assert here or source in load()["volumes"], (name, source)


def test_every_image_that_is_not_built_here_is_pinned() -> None:
    images = [service["image"] for service in services().values() if "build" not in service]
    assert len(images) == 4
    for image in images:
        assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+[a-z-]*", image), image
