"""Who works: kernel workers and orchestrators, and how busy they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from orchestrator.pool import Member

WORKER_STATES = ("ready", "draining", "suspended")


def worker_state(member: Member) -> str:
    """Suspended is a worker to which a call failed, until it announces itself again."""
    if member.record.draining:
        return "draining"
    return "ready" if member.trusted else "suspended"


def pool_families(members: Sequence[Member], orchestrators: int) -> Iterator[Metric]:
    workers = GaugeMetricFamily("docexpress_workers", "Registered kernel workers.", labels=["state"])
    states = [worker_state(member) for member in members]
    for state in WORKER_STATES:
        workers.add_metric([state], states.count(state))
    yield workers
    for name, text, value in (
        (
            "workers_capacity_calls",
            "Calls that the workers can compute at once; those that drain are left out.",
            sum(member.record.capacity for member in members if not member.record.draining),
        ),
        (
            "workers_capacity_rows",
            "Texts that the workers can write at once; those that drain are left out.",
            sum(member.record.decode_rows for member in members if not member.record.draining),
        ),
        (
            "workers_reserved_calls",
            "Jobs that have reserved a worker for anything but a decode.",
            sum(member.reserved["calls"] for member in members),
        ),
        (
            "workers_reserved_rows",
            "Jobs that have reserved a row of a worker's decodes.",
            sum(member.reserved["rows"] for member in members),
        ),
        (
            "workers_load_calls",
            "Calls that run on the workers or wait there.",
            sum(member.record.load for member in members),
        ),
        ("orchestrators", "Orchestrators that take messages from the queues.", orchestrators),
    ):
        yield GaugeMetricFamily(f"docexpress_{name}", text, value=value)
