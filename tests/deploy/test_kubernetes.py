"""Kubernetes manifests: valid, and what they name exists: settings, commands, ports, probes, metrics."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import promql_parser as promql
import pytest
import yaml

from kernel_worker.settings import WorkerSettings
from orchestrator.http.settings import ApiSettings
from orchestrator.settings import Settings
from tests.deploy.test_compose import help_of

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
FILES = sorted(FOLDER.rglob("*.yaml"))
OLDEST, NEWEST = "1.29", kubernetes_validate.latest_version()
KINDS = {"orchestrator": Settings, "api": ApiSettings, "kernel-worker": WorkerSettings}
STORES = ("broker", "cache-store")


@cache
def documents() -> tuple[dict[str, Any], ...]:
    return tuple(each for file in FILES for each in yaml.safe_load_all(file.read_text(encoding="utf-8")))


def objects(kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in documents() if each["kind"] == kind}


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = (objects("Deployment") | objects("StatefulSet"))[name]["spec"]["template"]["spec"]
    return found


def container(name: str) -> dict[str, Any]:
    (found,) = pod(name)["containers"]
    return dict(found)


def ports(name: str) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(name)["ports"]}


def environment(name: str) -> dict[str, str]:
    """What the settings map and the container give a process; the pod's name where that is the value."""
    shared: dict[str, str] = objects("ConfigMap")["docexpress-settings"]["data"]
    own = {each["name"]: each.get("value", "kernel-worker-abc12") for each in container(name).get("env", [])}
    return {**shared, **own}


def own_objects() -> list[dict[str, Any]]:
    return [each for each in documents() if each["kind"] not in ("Kustomization", "ScaledObject")]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_every_object_is_one_that_the_cluster_takes(version: str) -> None:
    assert len(own_objects()) == 12
    for each in own_objects():
        kubernetes_validate.validate(each, version, strict=True)
    wrong = dict(own_objects()[0], speck={})
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def test_every_file_belongs_to_a_kustomization() -> None:
    named = set()
    for file in FOLDER.glob("*/kustomization.yaml"):
        for resource in yaml.safe_load(file.read_text())["resources"]:
            assert (file.parent / resource).exists(), resource
            named.add((file.parent / resource).resolve())
    assert {file for file in FILES if file.name != "kustomization.yaml"} <= named


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl builds kustomizations")
def test_the_most_special_kustomization_builds() -> None:
    command = ["kubectl", "kustomize", str(FOLDER / "gpu")]
    built = subprocess.run(command, capture_output=True, text=True, check=True)
    made = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(built.stdout)}
    worker = made["Deployment", "kernel-worker"]["spec"]
    assert "replicas" not in worker
    (own,) = worker["template"]["spec"]["containers"]
    assert own["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert {"name": "DOCEXPRESS_DEVICE", "value": "cuda"} in own["env"]
    assert {each["metadata"]["namespace"] for each in made.values()} == {"docexpress"}
    assert len(made) == len(own_objects()) + 2


@pytest.mark.parametrize("name", KINDS)
def test_every_variable_is_a_setting_with_a_value_that_it_takes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {*KINDS[name].model_fields, *Settings.model_fields}
    for variable in [each for each in os.environ if each.startswith("DOCEXPRESS_")]:
        monkeypatch.delenv(variable)
    for variable, value in environment(name).items():
        assert variable.removeprefix("DOCEXPRESS_").lower() in known, variable
        monkeypatch.setenv(variable, value)
    KINDS[name]()
    assert str(Settings().redis_url) == "redis://broker:6379/0"
    assert all(source.keys() & {"configMapRef", "secretRef"} for source in container(name)["envFrom"])


@pytest.mark.parametrize("name", KINDS)
def test_every_command_exists_with_its_options(name: str) -> None:
    assert help_of(container(name)["args"]).returncode == 0
    probe = container(name)["startupProbe"].get("exec", {"command": ["docexpress", "worker"]})
    assert help_of(probe["command"][1:]).returncode == 0


@pytest.mark.parametrize("name", [*KINDS, *STORES])
def test_every_process_is_probed_limited_and_confined(name: str) -> None:
    own = container(name)
    assert {"startupProbe", "livenessProbe"} <= own.keys()
    assert own["resources"]["requests"].keys() == {"cpu", "memory"}
    assert "memory" in own["resources"]["limits"]
    assert own["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod(name)["securityContext"]["runAsNonRoot"] is True
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = own.get(probe, {})
        if "grpc" in asked:
            assert asked["grpc"]["port"] == ports(name)["grpc"]
        if "httpGet" in asked:
            assert asked["httpGet"]["port"] in ports(name)


def test_processes_listen_where_they_are_asked() -> None:
    for name, port, variable in (
        ("kernel-worker", "grpc", "LISTEN"),
        ("kernel-worker", "metrics", "METRICS_LISTEN"),
        ("orchestrator", "metrics", "METRICS_LISTEN"),
    ):
        assert environment(name)[f"DOCEXPRESS_{variable}"] == f"0.0.0.0:{ports(name)[port]}"
    arguments = container("api")["args"]
    assert int(arguments[arguments.index("--port") + 1]) == ports("api")["http"]


def test_services_and_policies_select_pods_that_exist() -> None:
    names = {*KINDS, *STORES}
    for name, service in objects("Service").items():
        app = service["spec"]["selector"]["app"]
        assert app in names
        for port in service["spec"]["ports"]:
            target = port.get("targetPort", port["port"])
            assert target in ports(app) or target in ports(app).values(), name
    for store in STORES:
        assert store in objects("Service"), "the URLs name it"
    told = yaml.safe_dump(list(objects("NetworkPolicy").values()))
    assert all(name in told for name in names)


def test_a_worker_that_is_taken_away_may_drain() -> None:
    drain = int(environment("kernel-worker")["DOCEXPRESS_DRAIN_SECONDS"])
    assert pod("kernel-worker")["terminationGracePeriodSeconds"] >= drain + 10


@pytest.mark.parametrize("name", STORES)
def test_stores_drop_nothing(name: str) -> None:
    command = container(name)["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


@pytest.mark.parametrize("name", ["kernel-worker", "orchestrator"])
def test_scaling_counts_unacknowledged_jobs(name: str) -> None:
    spec = objects("ScaledObject")[name]["spec"]
    assert spec["scaleTargetRef"]["name"] in objects("Deployment")
    assert 1 <= spec["minReplicaCount"] < spec["maxReplicaCount"]
    (trigger,) = spec["triggers"]
    query = str(promql.parse(trigger["metadata"]["query"]))
    assert "docexpress_queue_depth_jobs" in query, "which counts every unfinished job"
    assert float(trigger["metadata"]["threshold"]) > 0
    assert trigger["metadata"]["ignoreNullValues"] == "false"
