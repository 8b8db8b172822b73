"""How a channel to a worker is opened: with TLS wherever an authority is set, and never without it then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub

from cache_store.worker_registry import WorkerRecord
from orchestrator.errors import WorkerInsecure
from orchestrator.settings import Settings

ANSWER_SECONDS = 5.0
ChannelOptions = Sequence[tuple[str, int | str]]


class ChannelOpener:
    """Opens channels to workers by their records. Files are read once: a new certificate needs a restart.

    A unix socket stays on this machine and is used as it is.
    """

    def __init__(self, settings: Settings) -> None:
        self._credentials: grpc.ChannelCredentials | None = None
        self._mutual = settings.grpc_cert is not None
        if settings.grpc_ca is not None:
            self._credentials = credentials(settings.grpc_ca, settings.grpc_cert, settings.grpc_key)
        self._name = settings.grpc_server_name

    @property
    def secure(self) -> bool:
        return self._credentials is not None

    def check(self, record: WorkerRecord) -> None:
        """Raises WorkerInsecure where worker and orchestrator were not told the same about TLS.

        Only our own settings decide whether TLS is used: a forged record gets no plaintext out of us.
        """
        if _local(record):
            return
        who = f"worker {record.id} at {record.address}"
        if self.secure and record.tls == "none":
            raise WorkerInsecure(
                f"{who} does not speak TLS, which DOCEXPRESS_GRPC_CA asks for: give it"
                " DOCEXPRESS_GRPC_SERVER_CERT and DOCEXPRESS_GRPC_SERVER_KEY"
            )
        if not self.secure and record.tls != "none":
            raise WorkerInsecure(f"{who} speaks TLS: set DOCEXPRESS_GRPC_CA for the orchestrator")
        if record.tls == "mutual" and not self._mutual:
            raise WorkerInsecure(
                f"{who} asks callers for a certificate: set DOCEXPRESS_GRPC_CERT and DOCEXPRESS_GRPC_KEY"
                " for the orchestrator"
            )

    def open(self, record: WorkerRecord, options: ChannelOptions = ()) -> grpc.Channel:
        """A channel that connects on first use. Raises WorkerInsecure."""
        self.check(record)
        if self._credentials is None or _local(record):
            return grpc.insecure_channel(record.address, options=options)
        return secure_channel(record.address, self._credentials, self._name, options)


def secure_problem(settings: Settings, records: Sequence[WorkerRecord]) -> str | None:
    """What keeps this process from calling one of these workers over TLS, in a sentence; None where nothing
    does. With TLS each worker is asked for its health; without it nothing is called.
    """
    opener = ChannelOpener(settings)
    for record in records:
        try:
            with opener.open(record) as channel:
                if opener.secure:
                    HealthStub(channel).Check(HealthCheckRequest(), timeout=ANSWER_SECONDS)
        except WorkerInsecure as error:
            return str(error)
        except grpc.RpcError as error:
            details = " ".join((error.details() or "").split()) or error.code().name
            return f"worker {record.id} at {record.address} does not answer over TLS: {details}"
    return None


def credentials(ca: Path, cert: Path | None, key: Path | None) -> grpc.ChannelCredentials:
    """Of a caller: trusts `ca`, shows `cert` where there is one."""
    if cert is None or key is None:
        return grpc.ssl_channel_credentials(ca.read_bytes())
    return grpc.ssl_channel_credentials(ca.read_bytes(), key.read_bytes(), cert.read_bytes())


def secure_channel(
    address: str, trusted: grpc.ChannelCredentials, name: str | None, options: ChannelOptions = ()
) -> grpc.Channel:
    """A channel with TLS; the server's certificate has to carry `name`, or its address where that is None."""
    named = [("grpc.ssl_target_name_override", name)] if name else []
    return grpc.secure_channel(address, trusted, options=[*options, *named])


def refused_certificate(details: str) -> bool:
    """Whether these details of UNAVAILABLE tell that the worker's certificate was not accepted."""
    said = details.lower()
    return "handshake failed" in said or "verification check failed" in said


def _local(record: WorkerRecord) -> bool:
    return record.address.startswith("unix:")
