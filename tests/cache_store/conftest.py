"""Fixtures of the store's tests."""

from __future__ import annotations

import uuid

import pytest
import redis

from cache_store.store import CacheStore


@pytest.fixture
def tenant() -> str:
    """A tenant nobody else has."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def store(redis_client: redis.Redis, tenant: str) -> CacheStore:
    """An empty store of that tenant."""
    return CacheStore(redis_client, tenant)
