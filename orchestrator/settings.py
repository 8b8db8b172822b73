"""The orchestrator's settings: one frozen object per process, read once from the environment."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, ByteSize, Field, model_validator

from cache_store.exposition import check_address
from cache_store.keys import check_tenant
from cache_store.log_format import LogFormat, LogLevel
from cache_store.settings import StoreSettings
from cache_store.tls_files import AuthorityFile, HostName, PemFile, check_pair
from orchestrator.documents import limits

Seconds = Annotated[float, Field(gt=0, le=7 * 24 * 3600)]


class Settings(StoreSettings):
    """Environment variables DOCEXPRESS_<NAME>, besides those of the cache store. Times are seconds.

    `visibility_timeout` is after how long Redis delivers a message again that nobody acknowledged; every
    deadline has to be shorter. `claim_ttl` is after how long a stage counts as abandoned whose task no longer
    says that it lives (`claim_beat` apart). `worker_wait_seconds` is how long a job waits while no worker
    with its model is registered at all; for a busy one it waits as long as it takes. The limits of documents
    are told in `orchestrator/documents/limits.py`. `metrics_listen` is host:port where
    `docexpress orchestrate` lets Prometheus scrape, without authentication; by default it does not.
    `task_events` tells Celery's monitors (Flower) of each task. `traces` sends spans over OTLP to where
    OpenTelemetry's own variables (OTEL_...) say.

    `grpc_ca` (PEM) makes calls to workers use TLS, and only TLS; `grpc_cert` and `grpc_key` are shown to
    workers that ask for a certificate. A worker's certificate carries its address, or `grpc_server_name`.
    """

    tenant: Annotated[str, AfterValidator(check_tenant)] = "default"
    document_bytes_limit: ByteSize = Field(default=ByteSize(limits.DOCUMENT_BYTES), gt=0)
    document_unpacked_limit: ByteSize = Field(default=ByteSize(limits.UNPACKED_BYTES), gt=0)
    document_pages_limit: int = Field(default=limits.PAGES, ge=1)
    document_seconds_limit: Seconds = limits.SECONDS
    document_memory_limit: ByteSize = Field(default=ByteSize(limits.MEMORY_BYTES), ge=256 * 1024**2)
    concurrency: int = Field(default=32, ge=1, le=512)
    max_attempts: int = Field(default=5, ge=1, le=100)
    worker_wait_seconds: Seconds = 60.0
    job_ttl_seconds: int = Field(default=7 * 24 * 3600, ge=60)

    visibility_timeout: int = Field(default=3600, ge=10)
    ingest_deadline: Seconds = 600.0
    prefill_deadline: Seconds = 900.0
    compress_deadline: Seconds = 600.0
    decode_deadline: Seconds = 1800.0
    release_deadline: Seconds = 5.0
    evidence_deadline: Seconds = 60.0
    keepalive_seconds: Seconds = 20.0
    keepalive_timeout_seconds: Seconds = 10.0

    claim_ttl: Seconds = 10.0
    claim_beat: Seconds = 1.0
    reservation_ttl: Seconds = 15.0
    reaper_interval: Seconds = 0.5
    lost_message_seconds: Seconds = 5.0
    retry_backoff: Seconds = 2.0
    retry_backoff_limit: Seconds = 15.0
    busy_pause: Seconds = 1.0
    stuck_seconds: Seconds = 60.0
    event_stream_length: int = Field(default=2000, ge=100)

    metrics_listen: Annotated[str | None, AfterValidator(check_address)] = None
    task_events: bool = False
    log_format: LogFormat = "text"
    log_level: LogLevel = "INFO"
    traces: bool = False

    grpc_ca: AuthorityFile = None
    grpc_cert: PemFile = None
    grpc_key: PemFile = None
    grpc_server_name: HostName = None

    @property
    def reading_limits(self) -> limits.ReadingLimits:
        return limits.ReadingLimits(
            document_bytes=self.document_bytes_limit,
            unpacked_bytes=self.document_unpacked_limit,
            pages=self.document_pages_limit,
            seconds=self.document_seconds_limit,
            memory_bytes=self.document_memory_limit,
        )

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        check_pair(("GRPC_CERT", "GRPC_KEY"), self.grpc_cert, self.grpc_key)
        if self.grpc_ca is None and (self.grpc_cert or self.grpc_server_name):
            raise ValueError("DOCEXPRESS_GRPC_CA has to be set for TLS to workers")
        return self

    @model_validator(mode="after")
    def _times_fit(self) -> Self:
        longest = max(
            self.ingest_deadline, self.prefill_deadline, self.compress_deadline, self.decode_deadline
        )
        if longest >= self.visibility_timeout:
            raise ValueError(
                f"every deadline must be shorter than visibility_timeout ({self.visibility_timeout} s), "
                f"the longest is {longest:g} s"
            )
        if self.claim_beat * 3 > self.claim_ttl:
            raise ValueError("claim_ttl must be at least three times claim_beat")
        return self
