"""Dashboard, alerts and scrape configuration: they ask for what is exported, where it is exported."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import CollectorRegistry
from tornado.options import options as tornado_options

from orchestrator.settings import Settings
from orchestrator.telemetry.counts import COUNTERS, HISTOGRAMS
from orchestrator.telemetry.exporter import Exporter
from tests.deploy.compose import services
from tests.kernel_worker.server.conftest import lab, loaded, worker

__all__ = ["lab", "loaded", "worker"]  # fixtures

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "dashboards" / "docexpress.json"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "info": ("_info",)}
PAGE = (DEPLOY.parent / "docs" / "operate.md").read_text()


def names_of(registry: CollectorRegistry) -> set[str]:
    """The names under which Prometheus knows what a registry holds, also where nothing was counted yet."""
    return {
        family.name + suffix for family in registry.collect() for suffix in SUFFIXES.get(family.type, ("",))
    }


@pytest.fixture
def exported(valkey_url: str, worker: Any) -> Iterator[set[str]]:
    exporter = Exporter(Settings(redis_url=valkey_url))
    yield names_of(exporter.registry) | names_of(worker.metrics.registry)
    exporter.close()


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return found


def expressions() -> list[str]:
    """All that dashboard and alerts ask, Grafana's variables filled in."""
    asked = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])]
    alerts = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())
    asked += [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    return [expression.replace("$__rate_interval", "1m") for expression in asked]


def metrics_in(expression: str) -> set[str]:
    """The metrics that a query selects. Raises ValueError unless it is one."""
    return set(re.findall(r"docexpress_\w+", str(promql.parse(expression))))


def test_every_query_is_one_and_asks_for_what_is_exported(exported: set[str]) -> None:
    assert len(expressions()) > 40
    for expression in expressions():
        asked = metrics_in(expression)
        assert asked, expression
        assert asked <= exported, expression


def test_the_dashboard_shows_all_that_the_job_machine_counts() -> None:
    shown = set().union(*map(metrics_in, expressions()))
    counted = {f"docexpress_{counter.name}_total" for counter in COUNTERS}
    counted |= {f"docexpress_{histogram.name}_bucket" for histogram in HISTOGRAMS}
    assert counted <= shown


def test_a_wrong_query_would_be_noticed(exported: set[str]) -> None:
    assert not metrics_in("rate(docexpress_jobs_total[1m])") <= exported
    with pytest.raises(ValueError, match="parenthesis"):
        metrics_in("sum(docexpress_jobs")


def test_the_table_in_the_docs_names_every_metric(exported: set[str]) -> None:
    told = set(re.findall(r"`(docexpress_\w+)`", PAGE))
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported}
    assert told == families | {"docexpress_worker_device_memory_bytes"}  # on a GPU alone


def test_the_dashboard_is_whole() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, panel["title"]
        taken |= cells
    assert {name["name"] for name in dashboard()["templating"]["list"]} == {"datasource"}


def test_prometheus_scrapes_where_metrics_are_served() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    asked = {
        (name, found["port"])
        for job in config["scrape_configs"]
        for found in job["dns_sd_configs"]
        for name in found["names"]
    }
    served = {
        (name, int(service["environment"]["DOCEXPRESS_METRICS_LISTEN"].rpartition(":")[2]))
        for name, service in services().items()
        if "DOCEXPRESS_METRICS_LISTEN" in service.get("environment", {})
    }
    assert asked == served
    assert len(asked) == 3
    mounted = services()["prometheus"]["volumes"][0].split(":")[1]
    for file in config["rule_files"]:
        assert (DEPLOY / "prometheus" / Path(file).relative_to(mounted)).is_file()


def test_grafana_finds_prometheus_and_the_dashboard() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    source = yaml.safe_load((folder / "datasources" / "prometheus.yaml").read_text())["datasources"][0]
    name, port = source["url"].removeprefix("http://").split(":")
    assert name in services()
    assert f"http://127.0.0.1:{port}/" in services()[name]["healthcheck"]["test"][-1]
    provider = yaml.safe_load((folder / "dashboards" / "docexpress.yaml").read_text())["providers"][0]
    mounts = dict(reversed(volume.split(":")[:2]) for volume in services()["grafana"]["volumes"])
    assert (DEPLOY.parent / mounts[provider["options"]["path"]] / DASHBOARD.name).is_file()


def test_flower_is_a_command_of_celery_with_our_options() -> None:
    assert "flower" in entry_points(group="celery.commands").names
    importlib.import_module("flower.options")
    known = {name.replace("_", "-") for name in tornado_options}
    assert {option.removeprefix("--").split("=")[0] for option in services()["flower"]["command"]} <= known
