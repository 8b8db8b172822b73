"""A real gRPC worker without a model: it stores real objects, writes a text that follows from them, and goes
wrong exactly when its script says so.

Token ids are the document's UTF-8 bytes. The text is a function of the state's name and the instruction, so
that any detour that ends in the same state gives the same text.
"""

from __future__ import annotations

import hashlib
import threading
import uuid
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import suppress
from typing import Any

import grpc

from cache_store.connection import connect
from cache_store.documents import read_document
from cache_store.errors import ObjectMissing, StoreUnavailable
from cache_store.layout import StateMeta, StateShape
from cache_store.naming import Plan, next_name, plan_name, tokens_name
from cache_store.settings import StoreSettings
from cache_store.store import CacheStore
from cache_store.tokens import read_tokens, token_count, write_tokens
from cache_store.worker_registry import WorkerRecord, announce, withdraw
from protos import kernel_worker_pb2 as pb
from protos import kernel_worker_pb2_grpc as pb_grpc

LAYERS = 2
BYTES_PER_TOKEN = 64
ERRORS = (0.125, 0.375)
TTL_SECONDS = 1.5
BEAT_SECONDS = 0.2

Fault = Callable[["ScriptedWorker", grpc.ServicerContext], None]


def status(code: grpc.StatusCode, details: str = "as the script says", reason: str = "") -> Fault:
    """A fault that ends the call with a status."""

    def fault(worker: ScriptedWorker, context: grpc.ServicerContext) -> None:
        if reason:
            context.set_trailing_metadata((("docexpress-reason", reason),))
        context.abort(code, details)

    return fault


def die(worker: ScriptedWorker, context: grpc.ServicerContext) -> None:
    """A fault that takes the whole worker away, without a word to the registry."""
    worker.kill()
    context.abort(grpc.StatusCode.UNAVAILABLE, "dying")


class Gate:
    """A fault that holds the call until the test opens the gate, or the caller goes away."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self.cancelled = threading.Event()

    def __call__(self, worker: ScriptedWorker, context: grpc.ServicerContext) -> None:
        gone = threading.Event()
        if not context.add_callback(gone.set):
            gone.set()
        self.reached.set()
        while not self.open.wait(0.01):
            if gone.is_set():
                self.cancelled.set()
                context.abort(grpc.StatusCode.CANCELLED, "the caller is gone")


class ScriptedWorker(pb_grpc.KernelWorkerServicer):
    """Serves inside `with`. `script[method]` are faults for the calls to come, `None` for a good one;
    `calls` are the methods and requests that have come."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        model: str = "tiny",
        fingerprint: str = "f1",
        capacity: int = 1,
        decode_rows: int = 1,
        name: str | None = None,
    ) -> None:
        self.id = name or f"w-{uuid.uuid4().hex[:8]}"
        self.model, self.fingerprint = model, fingerprint
        self.capacity, self.decode_rows = capacity, decode_rows
        self.script: defaultdict[str, deque[Fault | None]] = defaultdict(deque)
        self.token_script: dict[int, Fault] = {}  # by token: before it is sent
        self.before_lease: dict[int, Fault] = {}  # by segment: when Prefill is done but for its last answer
        self.calls: list[tuple[str, Any]] = []
        self.leases: set[str] = set()
        self.draining = False
        self._settings = settings
        self._client = connect(settings.redis_url)
        self._store_client = connect(settings.cache_url)
        self._stop = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
        pb_grpc.add_KernelWorkerServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._beats = threading.Thread(target=self._announce, daemon=True)

    def methods(self) -> list[str]:
        """The methods that were called, with the segment where there is one."""
        return [
            f"{method} {request.segment}" if method in ("Prefill", "Compress") else method
            for method, request in self.calls
        ]

    def kill(self) -> None:
        """As if the process had died: no more beats, connections cut, the record stays until it lapses."""
        self._stop.set()
        threading.Thread(target=self._server.stop, args=(0,), daemon=True).start()

    def __enter__(self) -> ScriptedWorker:
        self._server.start()
        self._beats.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._beats.join()
        self._server.stop(0).wait()
        withdraw(self._client, self.id)
        self._client.close()
        self._store_client.close()

    def record(self) -> WorkerRecord:
        return WorkerRecord(
            id=self.id,
            address=f"127.0.0.1:{self._port}",
            model_name=self.model,
            model_fingerprint=self.fingerprint,
            tokenizer_fingerprint="bytes",
            device="cpu",
            window=4096,
            capacity=self.capacity,
            decode_rows=self.decode_rows,
            bytes_per_token=BYTES_PER_TOKEN,
            draining=self.draining,
            version="0",
            started_at=0.0,
        )

    def _announce(self) -> None:
        while True:
            with suppress(StoreUnavailable):  # like a real worker: the next beat announces it
                announce(self._client, self.record(), TTL_SECONDS)
            if self._stop.wait(BEAT_SECONDS):
                return

    def _begin(self, method: str, request: Any, context: grpc.ServicerContext) -> None:
        self.calls.append((method, request))
        faults = self.script[method]
        fault = faults.popleft() if faults else None
        if fault is not None:
            fault(self, context)

    def _store(self, tenant: str) -> CacheStore:
        return CacheStore.from_settings(self._settings, tenant, self._store_client)

    def Ingest(self, request: pb.IngestRequest, context: grpc.ServicerContext) -> pb.IngestResponse:
        self._begin("Ingest", request, context)
        store = self._store(request.tenant)
        name = tokens_name(request.document, "bytes")
        try:
            if not store.exists("tokens", [name])[0]:
                ids = array("I", list("".join(read_document(store, request.document)).encode()))
                write_tokens(store, name, [ids.tobytes()], max_count=len(ids))
        except ObjectMissing as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        count = token_count(store.manifest("tokens", name))
        plan = _plan(request.plan, "dense")
        names = [plan_name(plan)]
        for start in range(0, count, plan.segment_tokens):
            ids_of = read_tokens(store, name, start, min(count, start + plan.segment_tokens))
            names.append(next_name(names[-1], ids_of))
        found = [index for index, there in enumerate(store.exists("state", names)) if there]
        done = max(found, default=0)
        return pb.IngestResponse(
            tokens=name,
            token_count=count,
            segments=len(names) - 1,
            done_segments=done,
            state=names[done],
            positions="dense",
        )

    def Prefill(self, request: pb.PrefillRequest, context: grpc.ServicerContext) -> Iterator[pb.PrefillEvent]:
        self._begin("Prefill", request, context)
        self._require(request.tenant, request.plan, request.parent, context)
        for layer in range(1, LAYERS + 1):
            yield pb.PrefillEvent(progress=pb.PrefillProgress(layers_done=layer, layers=LAYERS))
        lease = uuid.uuid4().hex
        self.leases.add(lease)
        if (fault := self.before_lease.pop(request.segment, None)) is not None:
            fault(self, context)
        yield pb.PrefillEvent(done=pb.PrefillDone(lease=lease, worker_id=self.id, tokens=1, seconds=0.0))

    def Compress(self, request: pb.CompressRequest, context: grpc.ServicerContext) -> pb.CompressResponse:
        self._begin("Compress", request, context)
        if request.lease not in self.leases:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the lease is lost")
        self.leases.remove(request.lease)
        store, plan = self._store(request.tenant), _plan(request.plan)
        start = request.segment * plan.segment_tokens
        count = token_count(store.manifest("tokens", request.tokens))
        stop = min(count, start + plan.segment_tokens)
        name = next_name(request.parent, read_tokens(store, request.tokens, start, stop))
        size = _save_state(store, name, plan, stop)
        return pb.CompressResponse(
            state=name, cache_entries=plan.cache_entries, state_bytes=size, tokens_seen=stop, seconds=0.0
        )

    def Rank(self, request: pb.RankRequest, context: grpc.ServicerContext) -> pb.RankResponse:
        """Each of the question's words that the document holds, once, is a passage: bytes are tokens."""
        self._begin("Rank", request, context)
        try:
            text = "".join(read_document(self._store(request.tenant), request.document))
        except ObjectMissing as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        found = sorted((text.index(word), word) for word in request.question.split() if word in text)
        return pb.RankResponse(
            passages=[
                pb.Passage(
                    segment=start // request.plan.segment_tokens,
                    span=pb.TokenSpan(first=start, count=len(word)),
                    start=start,
                    end=start + len(word),
                    score=1.0,
                )
                for start, word in found[: request.count]
            ]
        )

    def Decode(self, request: pb.DecodeRequest, context: grpc.ServicerContext) -> Iterator[pb.DecodeEvent]:
        self._begin("Decode", request, context)
        if not request.reread:
            self._require(request.tenant, request.plan, request.state, context)
        counts = [span.count for span in request.reread]
        for place in range(len(counts)):
            read = pb.RereadProgress(tokens_done=sum(counts[: place + 1]), tokens=sum(counts))
            yield pb.DecodeEvent(reread=read)
        yield pb.DecodeEvent(started=pb.DecodeStarted(prompt_tokens=3, resumed_tokens=0, checkpoint=""))
        source = request.state + "".join(f" {span.first}+{span.count}" for span in request.reread)
        for index, text in enumerate(words(source, request.instruction, request.max_new_tokens)):
            if (fault := self.token_script.pop(index, None)) is not None:
                fault(self, context)
            yield pb.DecodeEvent(token=pb.DecodeToken(index=index, text=text))
        yield pb.DecodeEvent(
            done=pb.DecodeDone(
                finish_reason="length",
                tokens_written=request.max_new_tokens,
                seconds=0.0,
                reread_seconds=100.0 * len(request.reread),
            )
        )

    def Release(self, request: pb.ReleaseRequest, context: grpc.ServicerContext) -> pb.ReleaseResponse:
        self._begin("Release", request, context)
        self.leases.discard(request.lease)
        return pb.ReleaseResponse()

    def _require(self, tenant: str, plan: pb.StatePlan, name: str, context: grpc.ServicerContext) -> None:
        if name != plan_name(_plan(plan)) and not self._store(tenant).exists("state", [name])[0]:
            context.abort(grpc.StatusCode.NOT_FOUND, f"state {name[:8]} is gone")


def words(state: str, instruction: str, count: int) -> list[str]:
    """The text that a state and an instruction give, in pieces."""
    digest = hashlib.sha256(f"{state} {instruction}".encode()).hexdigest()
    return [f"{digest[index % 60 : index % 60 + 3]} " for index in range(count)]


def _plan(message: pb.StatePlan, positions: str | None = None) -> Plan:
    return Plan(
        model_fingerprint=message.model_fingerprint,
        policy=message.policy,
        cache_entries=message.cache_entries,
        segment_tokens=message.segment_tokens,
        seed=message.seed,
        positions=positions or message.positions,
        parameters=dict(message.parameters),
    )


def _save_state(store: CacheStore, name: str, plan: Plan, seen: int) -> int:
    """A state of zeros, in the sizes that its manifest tells."""
    shape = StateShape(
        layers=LAYERS, kv_heads=1, entries=plan.cache_entries, head_dim=2, value_dim=2, dtype="float32"
    )
    meta = StateMeta(plan=plan, seen=seen, shape=shape, error_by_layer=ERRORS)
    parts = [bytes((span.stop - span.start) * shape.entry_bytes + 8) for span in shape.spans()]
    manifest = store.put("state", name, parts, size=shape.size_bound(), meta=meta.model_dump(mode="json"))
    return manifest.size
