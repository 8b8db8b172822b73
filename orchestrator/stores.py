"""The tenants' cache stores over one connection pool."""

from __future__ import annotations

from cache_store.connection import connect
from cache_store.store import CacheStore
from orchestrator.settings import Settings


class Stores:
    """Hands out the cache store of a tenant. Safe to share between threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client = connect(settings.cache_url)

    def of(self, tenant: str) -> CacheStore:
        return CacheStore.from_settings(self._settings, tenant, self._client)

    def close(self) -> None:
        self._client.close()
