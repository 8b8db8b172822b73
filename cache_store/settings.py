"""Where stored objects live and how much a tenant may keep: read once per process, from the environment."""

from __future__ import annotations

from typing import Any

from pydantic import ByteSize, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from cache_store.connection import check_url

WEEK_SECONDS = 7 * 24 * 3600
DEFAULT_BYTE_BUDGET = ByteSize(8 * 1024**3)


def _same_as_broker(data: dict[str, Any]) -> str:
    return str(data.get("redis_url", ""))


class StoreSettings(BaseSettings):
    """Environment variables DOCEXPRESS_REDIS_URL, _CACHE_URL, _STATE_TTL_SECONDS, _TENANT_BYTE_BUDGET.

    URLs are kept out of `repr`, because they may hold a password. A byte budget may be written "8GiB".
    """

    model_config = SettingsConfigDict(env_prefix="DOCEXPRESS_", frozen=True, extra="ignore")

    redis_url: str = Field(default="redis://127.0.0.1:6379/0", repr=False)
    cache_url: str = Field(default_factory=_same_as_broker, repr=False)
    state_ttl_seconds: int = Field(default=WEEK_SECONDS, ge=60, le=10 * 365 * 24 * 3600)
    tenant_byte_budget: ByteSize = Field(default=DEFAULT_BYTE_BUDGET, ge=0)

    @field_validator("redis_url", "cache_url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        return check_url(url)
