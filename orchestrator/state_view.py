"""A tenant's stored states, as a user looks at them."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cache_store.connection import redis_errors
from cache_store.errors import ObjectMissing
from cache_store.layout import state_meta
from cache_store.manifest import Manifest
from cache_store.store import CacheStore
from cache_store.transfer import export_state, import_state
from orchestrator.errors import OptionError


@dataclasses.dataclass(frozen=True, slots=True)
class StateInfo:
    """A stored state as its manifest tells it. `meta` holds the rest of the manifest, JSON values.

    `size` in bytes; `created` in seconds since the epoch; `expires_in` in seconds, unless it is read before;
    `kept` marks the final state of a job; `cache_entries` per KV head and layer; `model` is a name where a
    worker with the model is registered, else the beginning of its fingerprint.
    """

    name: str
    size: int
    created: float
    expires_in: float
    kept: bool
    tokens_seen: int
    cache_entries: int
    model: str
    meta: dict[str, Any]


class StateView:
    """`models` are names of models by fingerprint. Raises StoreError."""

    def __init__(self, store: CacheStore, models: Mapping[str, str]) -> None:
        self._store = store
        self._models = models

    def all(self) -> list[StateInfo]:
        """The newest first. What does not describe a state is left out."""
        return self._infos(list(reversed(self._store.list("state"))))

    def one(self, beginning: str) -> StateInfo:
        """The state whose name begins so. Raises ObjectMissing; OptionError when there are several."""
        found = [info for info in self.all() if beginning and info.name.startswith(beginning)]
        if not found:
            raise ObjectMissing(f"There is no stored state {beginning!r}.")
        if len(found) > 1:
            raise OptionError(f"{len(found)} states begin with {beginning!r}: give more of the name")
        return found[0]

    def export(self, beginning: str, path: Path) -> int:
        """Writes a state to a file; the file's bytes."""
        export_state(self._store, self.one(beginning).name, path)
        return path.stat().st_size

    def import_(self, path: Path) -> StateInfo:
        return self._infos([import_state(self._store, path)])[0]

    def delete(self, beginning: str) -> None:
        self._store.delete("state", self.one(beginning).name)

    def _infos(self, manifests: Sequence[Manifest]) -> list[StateInfo]:
        books = self._books(manifests)
        infos = []
        for manifest, (kept, expires) in zip(manifests, books, strict=True):
            try:
                infos.append(self._info(manifest, kept, expires))
            except ValueError:
                continue  # a worker that meets it drops it
        return infos

    def _info(self, manifest: Manifest, kept: bool, expires: float) -> StateInfo:
        meta = state_meta(manifest)
        fingerprint = meta.plan.model_fingerprint
        return StateInfo(
            name=manifest.name,
            size=manifest.size,
            created=manifest.created_ms / 1000,
            expires_in=max(0.0, round(expires - time.time(), 3)),
            kept=kept,
            tokens_seen=meta.seen,
            cache_entries=meta.shape.entries,
            model=self._models.get(fingerprint, fingerprint[:12]),
            meta=meta.model_dump(mode="json", include={"plan", "parent", "shape", "extra"})
            | {"error_estimate": meta.error_estimate},
        )

    def _books(self, manifests: Sequence[Manifest]) -> list[tuple[bool, float]]:
        """Whether each is kept, and when it expires (seconds since the epoch)."""
        keys, client = self._store.keys, self._store.client
        with redis_errors(client), client.pipeline(transaction=False) as pipe:
            for manifest in manifests:
                member = keys.member(manifest.kind, manifest.name)
                pipe.hget(keys.book, member)
                pipe.zscore(keys.expiry, member)
            answers = iter(pipe.execute())
        return [
            (bool(json.loads(record or "{}").get("kept")), (expiry or 0.0) / 1000)
            for record, expiry in zip(answers, answers, strict=True)
        ]
