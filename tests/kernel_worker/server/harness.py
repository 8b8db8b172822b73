"""A worker in this process with a tiny model, reached as in production: over gRPC and Valkey."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import pytest
import redis
from pydantic import ByteSize

from cache_store.naming import Plan
from cache_store.settings import StoreSettings
from cache_store.store import CacheStore
from kernel_worker.model import LoadedModel
from kernel_worker.settings import WorkerSettings
from kernel_worker.worker import Worker
from protos import kernel_worker_pb2 as pb
from protos.kernel_worker_pb2_grpc import KernelWorkerStub
from tests.cache_store.helpers import store_document
from tests.kernel_worker.server.waiting import PATIENCE

DEADLINE = 30.0
POLICY = "express"
SENTENCES = (
    "The quick brown fox number {} jumps over the lazy dog, and the dog does not mind. ",
    "Line {} of a document that is read in segments.\n",
)


def text_of(sentences: int) -> str:
    """A text whose sentences all differ."""
    return "".join(SENTENCES[number % 2].format(number) for number in range(sentences))


def worker_settings(**changes: Any) -> WorkerSettings:
    """Settings of a test worker: nothing from the environment, a fast heartbeat."""
    values: dict[str, Any] = {
        "model": "tiny",
        "device": "cpu",
        "heartbeat_seconds": 0.1,
        "log_level": "DEBUG",
    }
    return WorkerSettings(**(values | changes))


@dataclass
class Answer:
    """All events of a Decode."""

    started: pb.DecodeStarted
    tokens: list[pb.DecodeToken]
    done: pb.DecodeDone | None = None

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)


@dataclass
class Client:
    """One caller of one worker, for one tenant and one plan."""

    stub: KernelWorkerStub
    store: CacheStore
    plan: pb.StatePlan
    tenant: str = "default"
    tokens: str = field(default="", init=False)

    def document(self, text: str) -> str:
        return store_document(self.store, text).name

    def ingest(self, document: str) -> pb.IngestResponse:
        request = pb.IngestRequest(tenant=self.tenant, document=document, plan=self.plan)
        answer: pb.IngestResponse = self.stub.Ingest(request, timeout=DEADLINE)
        self.tokens = answer.tokens
        self.plan.positions = answer.positions
        return answer

    def prefill_request(self, segment: int, parent: str) -> pb.PrefillRequest:
        return pb.PrefillRequest(
            tenant=self.tenant, plan=self.plan, tokens=self.tokens, segment=segment, parent=parent
        )

    def prefill(self, segment: int, parent: str) -> pb.PrefillDone:
        events = list(self.stub.Prefill(self.prefill_request(segment, parent), timeout=DEADLINE))
        done: pb.PrefillDone = events[-1].done
        return done

    def compress_request(self, segment: int, parent: str, lease: str) -> pb.CompressRequest:
        return pb.CompressRequest(
            tenant=self.tenant,
            plan=self.plan,
            tokens=self.tokens,
            segment=segment,
            parent=parent,
            lease=lease,
        )

    def compress(self, segment: int, parent: str, lease: str) -> pb.CompressResponse:
        answer: pb.CompressResponse = self.stub.Compress(
            self.compress_request(segment, parent, lease), timeout=DEADLINE
        )
        return answer

    def step(self, segment: int, parent: str) -> pb.CompressResponse:
        """One segment: Prefill and Compress."""
        return self.compress(segment, parent, self.prefill(segment, parent).lease)

    def read(self, document: str) -> str:
        """The whole document, from wherever its furthest state is; the name of its last state."""
        found = self.ingest(document)
        state = found.state
        for segment in range(found.done_segments, found.segments):
            state = self.step(segment, state).state
        return state

    def decode_request(self, state: str, **changes: Any) -> pb.DecodeRequest:
        values: dict[str, Any] = {"instruction": "What does it say?", "max_new_tokens": 20, "top_p": 1.0}
        return pb.DecodeRequest(tenant=self.tenant, plan=self.plan, state=state, **(values | changes))

    def decode(self, state: str, **changes: Any) -> Answer:
        return collect(self.stub.Decode(self.decode_request(state, **changes), timeout=DEADLINE))


def collect(events: Iterator[pb.DecodeEvent]) -> Answer:
    """All events of a Decode that ends well."""
    answer = Answer(next(events).started, [])
    for event in events:
        if event.WhichOneof("event") == "token":
            answer.tokens.append(event.token)
        else:
            answer.done = event.done
    return answer


def stub_of(channel: grpc.Channel) -> KernelWorkerStub:
    return KernelWorkerStub(channel)  # type: ignore[no-untyped-call]  # generated without types


def plan_message(loaded: LoadedModel, **changes: Any) -> pb.StatePlan:
    values: dict[str, Any] = {
        "model_fingerprint": loaded.fingerprint,
        "policy": POLICY,
        "cache_entries": 128,
        "segment_tokens": 32,
        "seed": 7,
        "positions": "auto",
        "parameters": {"sinks": "4"},
    }
    return pb.StatePlan(**(values | changes))


def plan_of(message: pb.StatePlan) -> Plan:
    return Plan(
        model_fingerprint=message.model_fingerprint,
        policy=message.policy,
        cache_entries=message.cache_entries,
        segment_tokens=message.segment_tokens,
        seed=message.seed,
        positions=message.positions,
        parameters=dict(message.parameters),
    )


def endless(loaded: LoadedModel) -> LoadedModel:
    """The model without a token that ends an answer: it writes as much as it is asked for."""
    return dataclasses.replace(loaded, prompt=dataclasses.replace(loaded.prompt, stop_ids=frozenset()))


class Gate:
    """Holds the model in the middle of a forward pass: before layer `layer`, from pass number `after` on.

    A hook of torch, so everything around it is what runs in production.
    """

    def __init__(self, loaded: LoadedModel, *, layer: int = 1, after: int = 0) -> None:
        self.reached = threading.Event()
        self.passes = 0
        self._after, self._open = after, threading.Event()
        self._hook = loaded.model.model.layers[layer].register_forward_pre_hook(self._wait)

    def _wait(self, *_: object) -> None:
        self.passes += 1
        if self.passes > self._after:
            self.reached.set()
            assert self._open.wait(PATIENCE)

    def open(self) -> None:
        self._open.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
        self._hook.remove()


def object_name(text: str) -> str:
    """A name that no object has."""
    return hashlib.sha256(text.encode()).hexdigest()


def refusal(call: Callable[[], object]) -> Any:
    """The grpc.RpcError with which a call ends."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value


@dataclass
class Lab:
    """Starts workers on one Valkey, and stops them."""

    redis_url: str
    client: redis.Redis
    loaded: LoadedModel
    workers: list[Worker] = field(default_factory=list)
    channels: list[grpc.Channel] = field(default_factory=list)

    def worker(self, *, tenant_byte_budget: int = 2**33, **changes: Any) -> Worker:
        stores = StoreSettings(redis_url=self.redis_url, tenant_byte_budget=ByteSize(tenant_byte_budget))
        worker = Worker(
            worker_settings(**changes), stores, self.loaded, cache=self.client, broker=self.client
        )
        worker.start()
        self.workers.append(worker)
        return worker

    def channel(self, worker: Worker, *options: tuple[str, int]) -> grpc.Channel:
        # Channels to the same address share a connection unless told not to.
        channel = grpc.insecure_channel(
            worker.address, options=[("grpc.use_local_subchannel_pool", 1), *options]
        )
        self.channels.append(channel)
        return channel

    def caller(self, worker: Worker, tenant: str = "default", **plan: Any) -> Client:
        return Client(
            stub_of(self.channel(worker)),
            CacheStore(self.client, tenant),
            plan_message(self.loaded, **plan),
            tenant,
        )

    def close(self) -> None:
        for channel in self.channels:
            channel.close()
        for worker in self.workers:
            worker.drain()
            worker.stop()
