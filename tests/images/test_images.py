"""Both images are built, and every service answers its health check from its image.

pytest -m images tests/images -s
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cluster import text_of
from tests.deploy.compose import services
from tests.images.buildah import Buildah
from tests.images.conftest import BASE
from tests.images.network import Network
from tests.images.services import Stack
from tests.images.stores import STORES, Store

pytestmark = [pytest.mark.images, pytest.mark.timeout(3600)]

WORKER = "kernel-worker-cpu"
SERVICES = ("orchestrator", "api", WORKER, "flower")
IMAGES = ("docexpress-orchestrator", "docexpress-kernel-worker", "docexpress-flower")
USER = 10001


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """All images that compose.yaml builds, as it says."""
    buildah = Buildah(tmp_path_factory.mktemp("images") / "buildah")
    try:
        print(f"\n{BASE} is from {buildah.base(BASE)}")
        for image in IMAGES:
            build = next(each["build"] for each in services().values() if each.get("image") == image)
            buildah.build(image, build["dockerfile"], build.get("args", {}))
            print(f"{image}: {buildah.size(image)}")
        yield buildah
    finally:
        buildah.close()


@pytest.fixture(scope="module")
def stack(buildah: Buildah, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Every service that needs no GPU and no registry, started."""
    folder = tmp_path_factory.mktemp("stack")
    with ExitStack() as ending:
        network = Network(folder / "hosts")
        ending.callback(network.close)
        for name in STORES:
            ending.enter_context(Store(network, name, folder / name))
        stack = Stack(buildah, network, folder)
        ending.callback(stack.kill)
        for name in (*SERVICES, "cli"):
            stack.add(name, services()[name])
        for name in SERVICES:
            stack[name].start()
        yield stack


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_holds_the_package_and_nothing_of_its_making(buildah: Buildah, image: str) -> None:
    root = Path(buildah("mount", buildah("from", "--pull-never", image)))
    (packages,) = (root / "opt/docexpress/lib").glob("python3*/site-packages")
    names = {path.name for path in packages.iterdir()}
    assert {"orchestrator", "cache_store", "protos"} <= names
    assert names.isdisjoint({"tests", "benchmarks", "build"})
    assert ("torch" in names) == ("triton" in names) == (image == "docexpress-kernel-worker")
    made = ["source", "root/.cache", "opt/docexpress/.cache", "var/lib/docexpress/.cache"]
    assert [path for path in made if (root / path).exists()] == []
    assert list((root / "var/lib/apt/lists").glob("*_Packages*")) == []
    assert list((root / "var/cache/apt/archives").glob("*.deb")) == []


def test_images_say_how_they_are_watched_as_the_compose_file_does(buildah: Buildah) -> None:
    for name in ("orchestrator", WORKER):
        service = services()[name]
        image = buildah.config(service["image"])
        assert image["Healthcheck"]["Test"] == service["healthcheck"]["test"]
        assert image["Cmd"] == service["command"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_becomes_healthy_in_its_image(stack: Stack, name: str) -> None:
    print(f"{name}: healthy after {stack[name].until_healthy():.1f} s")


def test_the_worker_serves_from_outside(stack: Stack) -> None:
    stack[WORKER].until_healthy()
    with grpc.insecure_channel(f"{stack[WORKER].address}:50051") as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("name", [WORKER, "orchestrator"])
def test_metrics_are_served_where_the_compose_file_says(stack: Stack, name: str) -> None:
    stack[name].until_healthy()
    assert "docexpress_" in httpx.get(f"http://{stack[name].address}:9464/metrics").text


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_nobody_special(stack: Stack, name: str) -> None:
    stack[name].until_healthy()
    status = Path(f"/proc/{stack[name].number}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert fields["Uid"].split() == fields["Gid"].split() == [str(USER)] * 4
    assert int(fields["CapEff"], 16) == 0
    denied = stack[name].execute("touch", "/opt/docexpress/bin/docexpress")
    assert "denied" in denied.stderr


def test_a_job_goes_through_the_containers(stack: Stack) -> None:
    for name in SERVICES:
        stack[name].until_healthy()
    url = f"http://{stack['api'].address}:8000"
    assert httpx.get(f"{url}/v1/jobs").status_code == 401
    key = stack["cli"].call("keys", "create", "--name", "from the image").strip()
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300) as http:
        assert http.get("/ready").status_code == 200
        job = http.post("/v1/jobs", json={"text": text_of(20), "max_new_tokens": 12}).json()
        with http.stream("GET", f"/v1/jobs/{job['id']}/events") as events:
            last = [line for line in events.iter_lines() if line.startswith("event: ")][-1]
        record: dict[str, Any] = http.get(f"/v1/jobs/{job['id']}").json()
    assert (last, record["status"]) == ("event: done", "done"), record["reason"]
    print(f"the worker's image wrote: {record['result']['summary']!r}")
    assert record["result"]["summary"].strip()


def test_the_command_line_runs_in_its_image(stack: Stack) -> None:
    stack[WORKER].until_healthy()
    text = stack["cli"].call("summarize", "--max-new-tokens", "8", "--quiet", "-", text=text_of(20))
    assert text.strip()
    of_file = stack["cli"].call("summarize", "--max-new-tokens", "8", "--quiet", "constraints.txt")
    assert of_file.strip()
    assert stack["cli"].call("jobs").count("done") >= 2


def test_a_worker_starts_from_a_cache_that_it_may_not_write(stack: Stack) -> None:
    """The first worker has converted the model: others may share its volume, and read it only."""
    stack[WORKER].until_healthy()
    changed = services()[WORKER] | {"volumes": ["model-cache:/var/cache/docexpress:ro"]}
    second = stack.add("second-worker", changed)
    second.start()
    print(f"second worker: healthy after {second.until_healthy():.1f} s")
    assert second.stop() == 0, second.said()


@pytest.mark.parametrize("name", ["api", WORKER, "orchestrator"])  # the last test: they are gone then
def test_a_service_stops_in_good_order(stack: Stack, name: str) -> None:
    stack[name].until_healthy()
    assert stack[name].stop() == 0, stack[name].said()
