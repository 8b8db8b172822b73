"""The health of a worker on this host, for container and service managers."""

from __future__ import annotations

from typing import Self

import grpc
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from cache_store.tls_files import PemFile, check_pair
from orchestrator.cli.errors import UsageProblem
from orchestrator.worker_tls import credentials, secure_channel

ANSWER_SECONDS = 5.0
EVERY_ADDRESS = ("", "0.0.0.0", "[::]")  # noqa: S104 - what a worker listens on, not what this one does


class OwnTls(BaseSettings):
    """What the worker on this host was told: its certificate is the only one that the check trusts.

    Where callers need a certificate, the check shows `grpc_cert`, or else the worker's own.
    """

    model_config = SettingsConfigDict(env_prefix="DOCEXPRESS_", frozen=True, extra="ignore")

    grpc_server_cert: PemFile = None
    grpc_server_key: PemFile = None
    grpc_cert: PemFile = None
    grpc_key: PemFile = None

    @model_validator(mode="after")
    def _pairs_are_whole(self) -> Self:
        check_pair(("GRPC_SERVER_CERT", "GRPC_SERVER_KEY"), self.grpc_server_cert, self.grpc_server_key)
        check_pair(("GRPC_CERT", "GRPC_KEY"), self.grpc_cert, self.grpc_key)
        return self

    def channel(self, address: str) -> grpc.Channel:
        if self.grpc_server_cert is None:
            return grpc.insecure_channel(address)
        cert, key = self.grpc_cert or self.grpc_server_cert, self.grpc_key or self.grpc_server_key
        name = _name_in(self.grpc_server_cert.read_bytes())
        return secure_channel(address, credentials(self.grpc_server_cert, cert, key), name)


def worker_health(listen: str) -> str:
    """SERVING, NOT_SERVING, or why there was no answer; `listen` is host:port as the worker was told.

    Raises UsageProblem for an address that names no port, or a certificate that names no host.
    """
    address = _address(listen)
    with OwnTls().channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=ANSWER_SECONDS
            )
        except grpc.RpcError as error:
            return f"nothing at {address} ({error.code().name})"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def _name_in(cert: bytes) -> str:
    """A host that the first certificate in a PEM file is for: the check comes by loopback, which it need not
    be for."""
    try:
        found = x509.load_pem_x509_certificates(cert)[0].extensions
        names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = None
    for name in names or ():
        if isinstance(name, x509.DNSName | x509.IPAddress):
            return str(name.value)
    raise UsageProblem("the certificate in DOCEXPRESS_GRPC_SERVER_CERT names no host (subjectAltName)")


def _address(listen: str) -> str:
    if listen.startswith("unix:"):
        return listen
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) == 0:
        raise UsageProblem("set --listen or DOCEXPRESS_LISTEN to the host:port that the worker serves on")
    return f"{'127.0.0.1' if host in EVERY_ADDRESS else host}:{port}"
