"""Settings of the API process, besides those of the orchestrator."""

from __future__ import annotations

from typing import Annotated

from pydantic import ByteSize, Field, SecretStr

from orchestrator.settings import Settings


class ApiSettings(Settings):
    """Environment variables DOCEXPRESS_<NAME>.

    `require_keys` asks for API keys even on loopback, as behind a proxy. `unfinished_jobs_limit` is for each
    tenant (429), `total_unfinished_jobs_limit` for all of them (503): more is refused before any work, though
    requests that arrive at the same moment may pass by it. `streams_limit` bounds the jobs that this process
    watches at once, a thread each, `readers_limit` the files that it reads at once, a process each. A request
    with a document may have `document_bytes_limit` bytes (and a little more for what is around it).
    `cors_origins` is a JSON list; no origin is allowed by default.
    `metrics_token` is what Prometheus sends as its bearer token to read /metrics where keys are required.
    """

    require_keys: bool = False
    unfinished_jobs_limit: int = Field(default=64, ge=1)
    total_unfinished_jobs_limit: int = Field(default=1024, ge=1)
    max_new_tokens_limit: int = Field(default=16384, ge=1)
    state_bytes_limit: ByteSize = Field(default=ByteSize(2 * 1024**3), gt=0)
    streams_limit: int = Field(default=256, ge=1, le=4096)
    readers_limit: int = Field(default=4, ge=1, le=256)
    comment_seconds: float = Field(default=10.0, gt=0)
    retry_after_seconds: int = Field(default=5, ge=1)
    cors_origins: tuple[str, ...] = ()
    metrics_token: Annotated[SecretStr, Field(min_length=16)] | None = None
