"""States in the store: saved whole, loaded whole and only where they fit, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from pydantic import JsonValue, ValidationError
from torch import Tensor

from cache_store.codec import decode, decode_weights, encode, shape_of
from cache_store.errors import FormatMismatch, ObjectDamaged
from cache_store.layout import StateMeta, StateShape, state_meta
from cache_store.manifest import Manifest, first_problem
from cache_store.naming import Plan
from cache_store.store import CacheStore
from kernels.selection.policy import CompressedKV


def save_state(
    store: CacheStore,
    name: str,
    kv: CompressedKV,
    plan: Plan,
    parent: str | None,
    *,
    kind: str = "state",
    error_by_layer: Sequence[float] | None = None,
    extra: Mapping[str, JsonValue] | None = None,
    replace: bool = False,
) -> Manifest:
    """Stores a state, entries [layers, kv_heads, C, d], under `name`; does nothing if it is there already.

    A checkpoint is a state of kind "checkpoint" with what its decode needs in `extra`, and replaces the one
    before it. Raises what `CacheStore.put` raises.
    """
    shape = shape_of(kv)
    meta = StateMeta(
        plan=plan,
        parent=parent,
        seen=kv.seen,
        shape=shape,
        error_by_layer=None if error_by_layer is None else tuple(error_by_layer),
        extra=dict(extra or {}),
    )
    return store.put(
        kind,
        name,
        encode(kv),
        size=shape.size_bound(),
        meta=meta.model_dump(mode="json"),
        replace=replace,
    )


def load_state(
    store: CacheStore,
    name: str,
    plan: Plan,
    *,
    kind: str = "state",
    device: torch.device | str = "cpu",
    expect: StateShape | None = None,
) -> CompressedKV:
    """The state `name`, which must have been made under `plan`; `expect` are the sizes that the model needs
    (its `entries` do not matter).

    Raises FormatMismatch for another plan or other sizes; ObjectMissing or ObjectDamaged (dropped then);
    StoreUnavailable. A part of a state is never returned.
    """
    return load_with_meta(store, name, plan, kind=kind, device=device, expect=expect)[0]


def load_with_meta(
    store: CacheStore,
    name: str,
    plan: Plan,
    *,
    kind: str = "state",
    device: torch.device | str = "cpu",
    expect: StateShape | None = None,
) -> tuple[CompressedKV, StateMeta]:
    """Like `load_state`, together with what the manifest says of the state."""
    manifest = store.manifest(kind, name)
    meta = read_meta(store, manifest)
    _check_plan(name, meta.plan, plan)
    if expect is not None:
        _check_shape(name, meta.shape, expect)
    parts = store.parts(kind, name, manifest=manifest)
    with _dropping(store, kind, name):
        return decode(meta.shape, meta.seen, parts, device), meta


def read_weights(
    store: CacheStore, name: str, plan: Plan
) -> tuple[StateMeta, Iterator[tuple[Tensor, Tensor]]]:
    """What the manifest says of a state, and of each part its token indices and weights, see
    `decode_weights`. One part is held at a time, and nothing goes to a device. Raises as `load_state`.
    """
    manifest = store.manifest("state", name)
    meta = read_meta(store, manifest)
    _check_plan(name, meta.plan, plan)

    def parts() -> Iterator[tuple[Tensor, Tensor]]:
        for span, part in zip(meta.shape.spans(), store.parts("state", name, manifest=manifest), strict=True):
            with _dropping(store, "state", name):
                found = decode_weights(span, part, meta.seen)
            yield found

    return meta, parts()


@contextmanager
def _dropping(store: CacheStore, kind: str, name: str) -> Iterator[None]:
    """Drops a state whose parts turn out not to be what its manifest says. Raises ObjectDamaged then."""
    try:
        yield
    except ValueError as error:
        store.delete(kind, name)
        raise ObjectDamaged(
            f"The {kind} {name} is not what its manifest says: {error}; it was dropped."
        ) from error


def read_meta(store: CacheStore, manifest: Manifest) -> StateMeta:
    """What a manifest says of its state. Raises ObjectDamaged, and the object has been dropped then."""
    try:
        return state_meta(manifest)
    except ValueError as error:
        store.delete(manifest.kind, manifest.name)
        reason = first_problem(error) if isinstance(error, ValidationError) else str(error)
        raise ObjectDamaged(
            f"The {manifest.kind} {manifest.name} does not describe a state ({reason}); it was dropped."
        ) from error


def _check_plan(name: str, stored: Plan, wanted: Plan) -> None:
    ours, theirs = wanted.to_json(), stored.to_json()
    for field_name, value in ours.items():
        if theirs[field_name] != value:
            raise FormatMismatch(
                f"State {name} was made with {field_name} {theirs[field_name]}, not with {value}."
            )


def _check_shape(name: str, stored: StateShape, wanted: StateShape) -> None:
    free = {"entries", "scored"}  # the policy's business, not the model's
    ours, theirs = wanted.model_dump(exclude=free), stored.model_dump(exclude=free)
    for field_name, value in ours.items():
        if theirs[field_name] != value:
            raise FormatMismatch(
                f"State {name} has {field_name} {theirs[field_name]}; the model needs {value}."
            )
