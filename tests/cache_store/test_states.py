"""States: saved and loaded whole, refused where they do not fit (reports rows 3, 4 and 8)."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import redis
from safetensors.torch import load, save

from cache_store.codec import encode, shape_of
from cache_store.errors import FormatMismatch, ObjectDamaged, ObjectMissing
from cache_store.layout import StateMeta, state_meta
from cache_store.naming import next_name
from cache_store.states import load_state, load_with_meta, save_state
from cache_store.store import CacheStore
from tests.cache_store.helpers import keys_of, part_key
from tests.cache_store.states_data import NAME, PLAN, assert_same, make_state


def test_saved_states_load_bit_for_bit(store: CacheStore) -> None:
    kv = make_state()
    child = next_name(NAME, b"\1\0\0\0")
    save_state(store, NAME, make_state(0), PLAN, None)
    manifest = save_state(store, child, kv, PLAN, NAME)
    assert_same(kv, load_state(store, child, PLAN))
    meta = state_meta(manifest)
    assert (meta.plan, meta.parent, meta.seen, meta.shape.entries) == (PLAN, NAME, 1000, 11)
    assert load_state(store, NAME, PLAN).entries.keys.shape == (3, 2, 0, 5)


def test_the_estimate_is_stored_where_there_is_one(store: CacheStore) -> None:
    save_state(store, NAME, make_state(), PLAN, None, error_by_layer=(0.1, 0.2, 0.6))
    meta = load_with_meta(store, NAME, PLAN)[1]
    assert (meta.error_by_layer, meta.error_estimate) == ((0.1, 0.2, 0.6), 0.3)
    older = meta.model_dump(mode="json", exclude={"error_by_layer"})
    assert StateMeta.model_validate(older).error_estimate is None


@pytest.mark.parametrize("errors", [(0.1, 0.2), (0.1, 0.2, -0.1), (0.1, 0.2, float("nan"))])
def test_an_estimate_that_cannot_be_is_refused(errors: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="error_by_layer"):
        StateMeta(plan=PLAN, seen=1000, shape=shape_of(make_state()), error_by_layer=errors)


def test_the_true_count_of_tokens_is_stored(store: CacheStore) -> None:
    """Reports row 8: how many tokens were seen does not follow from the number of entries."""
    kv = dataclasses.replace(make_state(), seen=2**40 + 1)
    save_state(store, NAME, kv, PLAN, None)
    assert load_state(store, NAME, PLAN).seen == 2**40 + 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_fingerprint", "e" * 64),
        ("policy", "streaming"),
        ("cache_entries", 65),
        ("segment_tokens", 33),
        ("seed", 8),
        ("positions", "original"),
        ("parameters", {}),
    ],
)
def test_state_of_another_plan_is_refused(store: CacheStore, field: str, value: Any) -> None:
    save_state(store, NAME, make_state(), PLAN, None)
    with pytest.raises(FormatMismatch, match=f"was made with {field}"):
        load_state(store, NAME, dataclasses.replace(PLAN, **{field: value}))
    assert store.exists("state", [NAME]) == [True], "it is somebody's: a refusal must not delete it"


@pytest.mark.parametrize(
    ("field", "value"), [("layers", 4), ("kv_heads", 1), ("head_dim", 8), ("dtype", "bfloat16")]
)
def test_state_of_another_shape_is_refused(store: CacheStore, field: str, value: Any) -> None:
    kv = make_state()
    save_state(store, NAME, kv, PLAN, None)
    wanted = shape_of(kv).model_copy(update={"entries": 0})
    assert_same(kv, load_state(store, NAME, PLAN, expect=wanted))
    with pytest.raises(FormatMismatch, match=f"has {field}"):
        load_state(store, NAME, PLAN, expect=wanted.model_copy(update={field: value}))


def test_a_lost_layer_is_a_miss(store: CacheStore, redis_client: redis.Redis) -> None:
    manifest = save_state(store, NAME, make_state(), PLAN, None)
    redis_client.delete(part_key(store, manifest, 2))
    with pytest.raises(ObjectMissing):
        load_state(store, NAME, PLAN)
    assert keys_of(redis_client) == set()
    save_state(store, NAME, make_state(), PLAN, None)
    assert_same(make_state(), load_state(store, NAME, PLAN))


def put_raw(store: CacheStore, parts: list[bytes], meta: dict[str, Any]) -> None:
    store.put("state", NAME, parts, size=sum(map(len, parts)), meta=meta)


def good_meta() -> dict[str, Any]:
    kv = make_state()
    return StateMeta(plan=PLAN, seen=kv.seen, shape=shape_of(kv)).model_dump(mode="json")


BAD_META: dict[str, dict[str, Any]] = {
    "more layers than parts": {"shape": {**good_meta()["shape"], "layers": 4}},
    "more entries than bytes": {"shape": {**good_meta()["shape"], "entries": 2**20}},
    "fewer entries than bytes": {"shape": {**good_meta()["shape"], "entries": 1}},
    "no plan": {"plan": None},
    "plan of other fields": {"plan": {"x": 1}},
    "plan of other types": {"plan": {**PLAN.to_json(), "policy": 5}},
    "parent is a path": {"parent": "../../secret"},
    "negative count": {"seen": -1},
    "another field": {"code": "x"},
}


@pytest.mark.parametrize("fields", BAD_META.values(), ids=BAD_META.keys())
def test_meta_that_cannot_be_a_states(store: CacheStore, fields: dict[str, Any]) -> None:
    put_raw(store, list(encode(make_state())), good_meta() | fields)
    with pytest.raises(ObjectDamaged, match="does not describe a state"):
        load_state(store, NAME, PLAN)
    assert store.exists("state", [NAME]) == [False]


def test_parts_with_right_checksums_and_wrong_content(store: CacheStore) -> None:
    parts = list(encode(make_state()))
    swapped = save({**load(parts[1]), "keys": load(parts[1])["values"], "values": load(parts[1])["keys"]})
    put_raw(store, [parts[0], swapped, parts[2]], good_meta())
    with pytest.raises(ObjectDamaged, match="not what its manifest says: keys of layer 1"):
        load_state(store, NAME, PLAN)
    assert store.exists("state", [NAME]) == [False]


def test_checkpoints_replace_each_other(store: CacheStore) -> None:
    for step in (1, 2):
        kv = make_state(10 + step)
        save_state(store, NAME, kv, PLAN, None, kind="checkpoint", extra={"ids": [7] * step}, replace=True)
    read, meta = load_with_meta(store, NAME, PLAN, kind="checkpoint")
    assert_same(make_state(12), read)
    assert meta.extra == {"ids": [7, 7]}
    assert store.usage().objects == 1
