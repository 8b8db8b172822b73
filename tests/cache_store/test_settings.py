"""Settings: from the environment, checked, and silent about passwords."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from cache_store.settings import StoreSettings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REDIS_URL", "CACHE_URL", "STATE_TTL_SECONDS", "TENANT_BYTE_BUDGET"):
        monkeypatch.delenv(f"DOCEXPRESS_{name}", raising=False)


def test_defaults() -> None:
    settings = StoreSettings()
    assert settings.state_ttl_seconds == 7 * 24 * 3600
    assert settings.tenant_byte_budget == 8 * 1024**3
    assert settings.cache_url == settings.redis_url


def test_cache_url_follows_the_broker_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCEXPRESS_REDIS_URL", "redis://broker:6379/0")
    assert StoreSettings().cache_url == "redis://broker:6379/0"
    monkeypatch.setenv("DOCEXPRESS_CACHE_URL", "unix:///run/cache.sock")
    assert StoreSettings().cache_url == "unix:///run/cache.sock"
    assert StoreSettings().redis_url == "redis://broker:6379/0"


def test_byte_budget_with_a_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCEXPRESS_TENANT_BYTE_BUDGET", "2GiB")
    assert StoreSettings().tenant_byte_budget == 2 * 1024**3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS_URL", "http://example.org"),
        ("REDIS_URL", "redis://"),
        ("CACHE_URL", "redis://h:99999"),
        ("STATE_TTL_SECONDS", "0"),
        ("TENANT_BYTE_BUDGET", "-1"),
    ],
)
def test_bad_values_are_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"DOCEXPRESS_{name}", value)
    with pytest.raises(ValidationError, match=name.lower()):
        StoreSettings()


def test_frozen_and_silent_about_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCEXPRESS_REDIS_URL", "redis://:geheim@broker:6379/0")
    settings = StoreSettings()
    assert "geheim" not in repr(settings)
    with pytest.raises(ValidationError, match="frozen"):
        settings.state_ttl_seconds = 60
