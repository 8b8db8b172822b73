"""A whole stack for the tests of the API: Valkey, an orchestrator, a worker with a tiny model, the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from cache_store.connection import connect
from kernel_worker.model import LoadedModel, assemble
from kernel_worker.settings import WorkerSettings
from kernel_worker.worker import Worker
from orchestrator.http.server import BackgroundServer, take_address
from orchestrator.http.settings import ApiSettings
from tests.kernel_worker.tiny import tiny_model, tiny_tokenizer

MODEL = "tiny-llama"
READING: dict[str, Any] = {
    "model": MODEL,
    "policy": "uniform",
    "policy_parameters": {"sinks": "4"},
    "cache_entries": 64,
    "segment_tokens": 96,
    "positions": "dense",  # a text does not end with the window
}
OPTIONS: dict[str, Any] = READING | {"max_new_tokens": 20}
ENDLESS = 12_000  # tokens that take longer to write than any test waits
END_OF_TURN = 2


def text_of(mark: str, sentences: int = 12) -> str:
    """A text of its own for each mark."""
    return " ".join(f"{mark}: sentence {number} tells of {number * 37 % 101}." for number in range(sentences))


def talkative_model() -> LoadedModel:
    """A tiny model that never ends a text: the logit of its end token is 0, and some other one is higher.

    Its window holds a question and some passages that are read again.
    """
    model = tiny_model(max_position_embeddings=512)
    with torch.no_grad():
        model.lm_head.weight[END_OF_TURN] = 0.0
    return assemble(model, tiny_tokenizer(), name="tiny-llama")


@contextmanager
def tiny_worker(settings: ApiSettings) -> Iterator[Worker]:
    """The real worker, in this process."""
    own = WorkerSettings(model="tiny", device="cpu", heartbeat_seconds=0.2)
    cache, broker = connect(settings.cache_url), connect(settings.redis_url)
    worker = Worker(own, settings, talkative_model(), cache=cache, broker=broker)
    worker.start()
    try:
        yield worker
    finally:
        worker.stop()
        cache.close()
        broker.close()


@contextmanager
def serving(settings: ApiSettings, *, host: str = "127.0.0.1", **changes: Any) -> Iterator[str]:
    """A server on a free port, with these settings changed; its URL."""
    with BackgroundServer(settings.model_copy(update=changes), take_address(host, 0)) as server:
        yield server.url
