"""What one worker measures of itself. Labels are methods and codes of the contract: no jobs, no tenants."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from prometheus_client import CollectorRegistry, Counter, Histogram

from protos import kernel_worker_pb2 as pb

See = Callable[[Any], None]

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_P = "docexpress_worker_"


class Metrics:
    """Thread-safe. `registry` is this worker's own, so that two workers in one process do not mix."""

    def __init__(self) -> None:
        self.registry = to = CollectorRegistry()
        calls, ended = "A call that succeeded, from its arrival to its last answer.", "Calls that ended."
        first = "From the arrival of a Decode to its first new token."
        work = "The work of a stage alone, without waiting for a turn."
        stored = "Bytes of the states that Compress answered with."
        self._calls = Counter(f"{_P}calls", ended, ["method", "code"], registry=to)
        self._seconds = Histogram(f"{_P}call_seconds", calls, ["method"], buckets=_SECONDS, registry=to)
        self._work = Histogram(f"{_P}compute_seconds", work, ["stage"], buckets=_SECONDS, registry=to)
        self._first = Histogram(f"{_P}first_token_seconds", first, buckets=_SECONDS, registry=to)
        self._read = Counter(f"{_P}tokens_read", "Document tokens that were prefilled here.", registry=to)
        self._written = Counter(f"{_P}tokens_written", "Tokens that were decoded here.", registry=to)
        self._stored = Counter(f"{_P}state_stored_bytes", stored, registry=to)

    @contextmanager
    def call(self, method: str, context: Any) -> Iterator[See]:
        """Around one call; what it yields is to be shown every answer before it is sent."""
        started, code = time.perf_counter(), "OK"
        try:
            yield self._sees(started)
        except GeneratorExit:  # the caller went away between two answers
            code = grpc.StatusCode.CANCELLED.name
            raise
        except Exception:
            code = getattr(context.code(), "name", grpc.StatusCode.UNKNOWN.name)
            raise
        finally:
            self._calls.labels(method, code).inc()
            if code == "OK":
                self._seconds.labels(method).observe(time.perf_counter() - started)

    def _sees(self, started: float) -> See:
        resumed = 0

        def see(answer: Any) -> None:
            nonlocal resumed
            match answer:
                case pb.DecodeEvent(started=begun) if answer.HasField("started"):
                    resumed = begun.resumed_tokens
                case pb.DecodeEvent(token=token) if answer.HasField("token"):
                    self._token(token.index - resumed, started)
                case pb.DecodeEvent(done=done) if answer.HasField("done"):
                    self._work.labels("decode").observe(done.seconds - done.reread_seconds)
                    if done.reread_seconds:
                        self._work.labels("reread").observe(done.reread_seconds)
                case pb.PrefillEvent(done=done) if answer.HasField("done"):
                    self._work.labels("prefill").observe(done.seconds)
                    self._read.inc(done.tokens)
                case pb.EvidenceResponse():
                    self._work.labels("evidence").observe(answer.seconds)
                case pb.RankResponse():
                    self._work.labels("rank").observe(answer.seconds)
                case pb.CompressResponse():
                    self._work.labels("compress").observe(answer.seconds)
                    self._stored.inc(answer.state_bytes)

        return see

    def _token(self, new: int, started: float) -> None:
        """`new` counts from what a checkpoint held, which is sent again but not written again."""
        if new >= 0:
            self._written.inc()
        if new == 0:
            self._first.observe(time.perf_counter() - started)
