"""The health of a worker on this host, for container and service managers."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from orchestrator.cli.errors import UsageProblem

ANSWER_SECONDS = 5.0
EVERY_ADDRESS = ("", "0.0.0.0", "[::]")  # noqa: S104 - what a worker listens on, not what this one does


def worker_health(listen: str) -> str:
    """SERVING, NOT_SERVING, or why there was no answer; `listen` is host:port as the worker was told.

    Raises UsageProblem for an address that names no port.
    """
    address = _address(listen)
    with grpc.insecure_channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(), timeout=ANSWER_SECONDS
            )
        except grpc.RpcError as error:
            return f"nothing at {address} ({error.code().name})"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def _address(listen: str) -> str:
    if listen.startswith("unix:"):
        return listen
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) == 0:
        raise UsageProblem("set --listen or DOCEXPRESS_LISTEN to the host:port that the worker serves on")
    return f"{'127.0.0.1' if host in EVERY_ADDRESS else host}:{port}"
