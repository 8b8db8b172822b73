"""One worker: a loaded model that is served, announced, drained and stopped."""

from __future__ import annotations

import re
import secrets
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version

import grpc
import redis
from grpc_health.v1 import health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from cache_store.exposition import exposed
from cache_store.settings import StoreSettings
from cache_store.worker_registry import WorkerRecord
from kernel_worker.address import advertised
from kernel_worker.admission import ComputeSlots
from kernel_worker.batcher import Batcher
from kernel_worker.engine import Engine
from kernel_worker.errors import AddressInUse, DeviceFailed
from kernel_worker.gauges import Gauges
from kernel_worker.health import SERVICE, DeviceHealth
from kernel_worker.hot_states import HotStates
from kernel_worker.leases import Leases
from kernel_worker.metrics import Metrics
from kernel_worker.model import LoadedModel
from kernel_worker.readiness import Readiness, warm_up
from kernel_worker.registration import Registration
from kernel_worker.service import KernelWorkerService
from kernel_worker.settings import WorkerSettings
from kernel_worker.stages.desk import Desk
from kernel_worker.tls import add_port
from kernel_worker.watch import Watch
from protos.kernel_worker_pb2_grpc import add_KernelWorkerServicer_to_server

CONTROL_THREADS = 8  # for calls that only ask, and for those that are turned away
FLUSH_SECONDS = 5.0  # for the last answers to reach their callers
SERVER_PING_MS = 30_000  # so that a caller whose machine vanished is noticed, and its work ended


class Worker:
    """Serves on `settings.listen`. `cache` and `broker` are connections to the two stores."""

    def __init__(
        self,
        settings: WorkerSettings,
        store_settings: StoreSettings,
        loaded: LoadedModel,
        *,
        cache: redis.Redis,
        broker: redis.Redis,
    ) -> None:
        self.address = ""
        self.metrics_port: int | None = None
        self._settings, self._broker, self._started_at = settings, broker, time.time()
        slots = ComputeSlots(settings.capacity, settings.waiting)
        self.desk = Desk(
            worker_id=settings.worker_id or _new_id(),
            version=_version(),
            settings=settings,
            store_settings=store_settings,
            client=cache,
            engine=Engine(loaded),
            slots=slots,
            readers=ComputeSlots(1, settings.waiting, "ingest"),
            writers=ComputeSlots(settings.decode_rows, settings.waiting, "decode"),
            batcher=Batcher(loaded, settings.decode_rows, slots.soon),
            leases=Leases(
                count=settings.lease_count, nbytes=settings.lease_bytes, seconds=settings.lease_seconds
            ),
            hot=HotStates(count=settings.hot_states, nbytes=settings.hot_state_bytes),
        )
        self._readiness = Readiness(loaded.device)
        self._health = DeviceHealth(self._readiness)
        self._registration = Registration(
            broker, self._record, every=settings.heartbeat_seconds, ttl=settings.registry_ttl_seconds
        )
        self.metrics = Metrics()
        self.metrics.registry.register(Gauges(self.desk, self._readiness))
        self._server = _server(settings, self.desk, self._health, Watch(self.metrics))
        self._exposition = ExitStack()

    def start(self) -> None:
        """Warms up, serves, and announces the worker, in that order.

        Raises DeviceFailed, AddressInUse, MetricsAddressUnusable, and StoreError where the registry is away;
        nothing runs then.
        """
        try:
            self._start()
        except Exception:
            self.stop()
            raise

    def _start(self) -> None:
        try:
            warm_up(self.desk.engine)
            self._readiness.start()
        except (RuntimeError, ValueError) as error:  # torch's for a device, ours for DOCEXPRESS_KERNELS
            raise DeviceFailed(f"The model does not run on {self.desk.loaded.device}: {error}") from error
        settings = self._settings
        try:
            port = add_port(self._server, settings)
        except RuntimeError as error:
            raise AddressInUse(f"Nothing can listen on {settings.listen}; give another --listen.") from error
        self.metrics_port = self._exposition.enter_context(
            exposed(self.metrics.registry, settings.metrics_listen)
        )
        self.address = advertised(settings.listen, port, settings.advertise, self._broker)
        self._server.start()
        self._health.show(serving=True)
        self._registration.start()

    def drain(self) -> None:
        """Takes no new work from now on. What runs goes on; who holds a lease may still compress it."""
        for slots in (self.desk.slots, self.desk.readers, self.desk.writers):
            slots.drain()
        self.desk.batcher.drain()
        self._health.show(serving=False)
        self._registration.refresh()

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits, and no segment waits to be compressed."""
        return not self.desk.load and not len(self.desk.leases)

    def stop(self) -> None:
        """Withdraws the worker, ends calls that still run after a moment, and waits for their threads."""
        self._registration.close()
        self._server.stop(FLUSH_SECONDS).wait()
        self._readiness.stop()
        self._exposition.close()
        self.desk.batcher.close()
        for slots in (self.desk.writers, self.desk.slots, self.desk.readers):
            slots.close()

    def withdraw(self) -> None:
        """Takes the worker out of the registry, and nothing else: for an end that cannot wait."""
        self._registration.close()

    def _record(self) -> WorkerRecord | None:
        desk, loaded = self.desk, self.desk.loaded
        desk.leases.sweep()
        if not self._readiness.ready:
            return None
        return WorkerRecord(
            id=desk.worker_id,
            address=self.address,
            model_name=loaded.name,
            model_fingerprint=loaded.fingerprint,
            tokenizer_fingerprint=loaded.tokenizer_fingerprint,
            device=str(loaded.device),
            window=loaded.window,
            capacity=desk.slots.capacity,
            decode_rows=desk.batcher.rows,
            load=desk.load,
            bytes_per_token=loaded.bytes_per_token,
            hot_states=desk.hot.names(),
            draining=desk.slots.draining,
            tls=self._settings.tls,
            version=desk.version,
            started_at=self._started_at,
        )


def _server(settings: WorkerSettings, desk: Desk, health: DeviceHealth, watch: Watch) -> grpc.Server:
    """A server that is not started; more threads than admitted calls, so that the others hear so at once."""
    admitted = settings.capacity + 1 + settings.decode_rows + 3 * settings.waiting
    threads = admitted + settings.lease_count
    server = grpc.server(
        ThreadPoolExecutor(threads + CONTROL_THREADS, thread_name_prefix="grpc"),
        interceptors=[watch],
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", round(settings.min_ping_seconds * 1000)),
            ("grpc.keepalive_time_ms", SERVER_PING_MS),
            ("grpc.http2.max_pings_without_data", 0),
        ],
    )
    add_KernelWorkerServicer_to_server(KernelWorkerService(desk), server)  # type: ignore[no-untyped-call]
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    names = (SERVICE, "grpc.health.v1.Health", reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    return server


def _new_id() -> str:
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:100]
    return f"{host}-{secrets.token_hex(4)}"


def _version() -> str:
    try:
        return version("docexpress")
    except PackageNotFoundError:
        return "not installed"
