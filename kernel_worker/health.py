"""grpc.health.v1, which says SERVING only while the device answers."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2

from kernel_worker.readiness import Readiness

SERVICE = "docexpress.v1.KernelWorker"


class DeviceHealth(health.HealthServicer):
    """Knows the whole server ("") and the one service."""

    def __init__(self, readiness: Readiness) -> None:
        super().__init__()
        self._readiness = readiness
        self.show(serving=False)

    def show(self, *, serving: bool) -> None:
        """What is answered, and told to those who watch, from now on."""
        status = (
            health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )
        for service in ("", SERVICE):
            self.set(service, status)

    def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        answer = super().Check(request, context)
        if answer.status == health_pb2.HealthCheckResponse.SERVING and not self._readiness.ready:
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
        return answer
