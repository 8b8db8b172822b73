"""Everything one worker process can be told, read once. Torch-free."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from cache_store.exposition import check_address
from cache_store.log_format import LogFormat, LogLevel
from cache_store.tls_files import AuthorityFile, PemFile, check_pair

MIB = 1024 * 1024


class WorkerSettings(BaseSettings):
    """Environment variables are the names below with DOCEXPRESS_ in front; arguments go before them."""

    model_config = SettingsConfigDict(env_prefix="DOCEXPRESS_", frozen=True, extra="ignore")

    model: str = Field(
        default="SmolLM2-135M-Instruct", min_length=1, description="Name or path of the model."
    )
    device: str = Field(default="auto", description='"auto", "cpu", "cuda" or "cuda:N".')
    dtype: Literal["float32", "bfloat16", "float16"] | None = Field(
        default=None, description="None: fits the device."
    )
    cache_dir: str | None = Field(default=None, description="Where a converted model is kept.")

    listen: str = Field(
        default="127.0.0.1:0",
        pattern=r"^(unix:.+|.*:\d{1,5})$",
        description="host:port to serve on, or unix:path; port 0 takes a free one.",
    )
    advertise: str | None = Field(default=None, description="host[:port] for callers; None: as listened on.")
    grpc_server_cert: PemFile = Field(
        default=None, description="PEM file: the server speaks TLS, and nothing else, with this certificate."
    )
    grpc_server_key: PemFile = Field(default=None, description="PEM file: the key of that certificate.")
    grpc_client_ca: AuthorityFile = Field(
        default=None, description="PEM file: callers need a certificate that this authority has signed."
    )
    worker_id: str | None = Field(
        default=None, description="Name in the registry; None: host and a random part."
    )

    capacity: int = Field(default=1, ge=1, le=64, description="Calls computed at once.")
    waiting: int = Field(default=16, ge=0, le=1024, description="Further calls that may wait for a turn.")
    decode_rows: int = Field(
        default=8, ge=1, le=256, description="Texts written together, a token at a time."
    )
    max_new_tokens: int = Field(
        default=16384, ge=1, description="The most tokens that one Decode may ask for."
    )

    lease_seconds: float = Field(
        default=120.0, gt=0, description="How long a prefilled segment waits for Compress."
    )
    lease_count: int = Field(default=8, ge=1)
    lease_bytes: int = Field(default=2048 * MIB, ge=1)
    hot_states: int = Field(
        default=4, ge=0, le=256, description="States kept on the device between segments."
    )
    hot_state_bytes: int = Field(default=1024 * MIB, ge=0)
    checkpoint_seconds: int = Field(
        default=3600, ge=1, description="How long an interrupted Decode can be taken up."
    )

    heartbeat_seconds: float = Field(default=2.0, gt=0)
    registry_ttl_seconds: float = Field(default=6.0, gt=0)
    drain_seconds: float = Field(
        default=60.0, ge=0, description="How long running work may go on after SIGTERM."
    )
    min_ping_seconds: float = Field(
        default=5.0, gt=0, description="Keepalive pings of clients may come this often."
    )
    metrics_listen: Annotated[str | None, AfterValidator(check_address)] = Field(
        default=None, description="host:port that Prometheus may scrape; None: no such port."
    )
    log_level: LogLevel = "INFO"
    log_format: LogFormat = "text"
    traces: bool = Field(default=False, description="Send spans over OTLP; OTEL_... variables say where.")

    @property
    def tls(self) -> Literal["none", "server", "mutual"]:
        """What callers are asked for."""
        if self.grpc_server_cert is None:
            return "none"
        return "server" if self.grpc_client_ca is None else "mutual"

    @model_validator(mode="after")
    def _tls_is_whole(self) -> Self:
        check_pair(("GRPC_SERVER_CERT", "GRPC_SERVER_KEY"), self.grpc_server_cert, self.grpc_server_key)
        if self.grpc_client_ca is not None and self.grpc_server_cert is None:
            raise ValueError("DOCEXPRESS_GRPC_CLIENT_CA needs DOCEXPRESS_GRPC_SERVER_CERT, too")
        if self.grpc_server_cert is not None and self.listen.startswith("unix:"):
            raise ValueError("DOCEXPRESS_GRPC_SERVER_CERT is of no use on a unix socket; unset it")
        return self
