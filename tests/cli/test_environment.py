"""What the parts of the embedded stack inherit."""

from __future__ import annotations

from orchestrator.embedded.stack import ORCHESTRATOR, WORKER, environment_of

OWN = {
    "PATH": "/bin",
    "DOCEXPRESS_CACHE_URL": "redis://elsewhere:1/0",
    "DOCEXPRESS_METRICS_LISTEN": "127.0.0.1:9464",
}


def test_both_use_the_embedded_store_and_one_port_for_metrics_has_one_owner() -> None:
    made = {part: environment_of(part, OWN, "redis://embedded:2/0") for part in (WORKER, ORCHESTRATOR)}
    for environment in made.values():
        assert environment["PATH"] == "/bin"
        assert environment["DOCEXPRESS_REDIS_URL"] == "redis://embedded:2/0"
        assert "DOCEXPRESS_CACHE_URL" not in environment
    assert made[WORKER]["DOCEXPRESS_METRICS_LISTEN"] == "127.0.0.1:9464"
    assert "DOCEXPRESS_METRICS_LISTEN" not in made[ORCHESTRATOR]
