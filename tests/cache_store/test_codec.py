"""Tensors to bytes and back: bit for bit, the same bytes each time, cut where parts would be too large."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load, save

from cache_store.codec import decode, encode, shape_of
from cache_store.layout import HEADER_ROOM, StateShape
from cache_store.manifest import MAX_PART_BYTES
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV
from tests.cache_store.states_data import assert_same, make_state

HASH_PARTS = """
import hashlib
from cache_store.codec import encode
from tests.cache_store.states_data import make_state
print(hashlib.sha256(b"".join(encode(make_state()))).hexdigest())
"""


@pytest.mark.parametrize("entries", [0, 1, 63], ids=lambda entries: f"C{entries}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_round_trip(entries: int, dtype: torch.dtype) -> None:
    kv = make_state(entries, dtype=dtype)
    assert_same(kv, decode(shape_of(kv), kv.seen, encode(kv)))


@pytest.mark.parametrize("entries", [0, 1, 63], ids=lambda entries: f"C{entries}")
def test_scores_travel_with_the_entries(entries: int) -> None:
    plain = make_state(entries)
    scored = CompressedKV(plain.entries, plain.seen, torch.rand(3, 2, entries))
    read = decode(shape_of(scored), scored.seen, encode(scored))
    assert_same(scored, read)
    assert read.scores is not None
    assert scored.scores is not None
    assert torch.equal(read.scores, scored.scores)
    if entries:
        with pytest.raises(ValueError, match="scores"):
            decode(shape_of(plain), plain.seen, encode(scored))
        with pytest.raises(ValueError, match="scores"):
            decode(shape_of(scored), scored.seen, encode(plain))


@pytest.mark.parametrize("scored", [False, True], ids=["plain", "scored"])
@pytest.mark.parametrize("entries", [0, 1, 63, 111], ids=lambda entries: f"C{entries}")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_the_shape_knows_the_bytes_of_the_parts(dtype: torch.dtype, entries: int, scored: bool) -> None:
    plain = make_state(entries, dtype=dtype)
    scores = torch.rand(3, 2, entries) if scored else None
    kv = CompressedKV(plain.entries, plain.seen, scores)
    assert shape_of(kv).stored_bytes() == sum(len(part) for part in encode(kv))


def test_special_values_survive() -> None:
    kv = make_state(3)
    kv.entries.keys[0, 0, 0, :3] = torch.tensor([float("nan"), float("-inf"), -0.0])
    read = decode(shape_of(kv), kv.seen, encode(kv)).entries.keys
    assert torch.equal(read.view(torch.int32), kv.entries.keys.view(torch.int32))


def test_slices_of_larger_tensors_are_encoded_by_their_content() -> None:
    kv = make_state(20)
    part = CompressedKV(kv.entries.slice(3, 17), kv.seen)
    copied = CompressedKV(WeightedKV(*(tensor.clone() for tensor in part.entries.tensors())), kv.seen)
    assert list(encode(part)) == list(encode(copied))


def test_processes_with_different_hash_seeds_write_the_same_bytes() -> None:
    command = [sys.executable, "-c", HASH_PARTS]
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert other.strip() == hashlib.sha256(b"".join(encode(make_state()))).hexdigest()


def test_large_layers_are_cut() -> None:
    """One layer of 40 MB: three parts for each layer, none of them over the limit."""
    kv = make_state(4096, layers=2, kv_heads=8, head_dim=152, value_dim=152)
    shape = shape_of(kv)
    parts = list(encode(kv))
    assert len(parts) == len(shape.spans()) == 6
    assert max(map(len, parts)) <= MAX_PART_BYTES
    assert sum(map(len, parts)) <= shape.size_bound()
    assert_same(kv, decode(shape, kv.seen, parts))


@pytest.mark.parametrize("entries", [0, 1, 1024])
def test_header_stays_in_its_room(entries: int) -> None:
    kv = make_state(entries, layers=1, kv_heads=1, head_dim=256, value_dim=256)
    (part,) = encode(kv)
    assert 0 < len(part) - shape_of(kv).payload_bytes <= HEADER_ROOM


def test_rows_must_be_layers_and_heads() -> None:
    flat = CompressedKV(WeightedKV.empty((4,), 8), 0)
    with pytest.raises(ValueError, match=r"allowed are \(layers, kv_heads\)"):
        shape_of(flat)


def changed(part: bytes, **tensors: torch.Tensor) -> bytes:
    return bytes(save({**load(part), **tensors}))


def test_parts_that_hold_something_else_are_refused() -> None:
    kv = make_state(4, layers=1)
    shape = shape_of(kv)
    (good,) = encode(kv)
    bad = {
        "not safetensors": b"\x80\x04K\x01." + good,
        "is torch.float16": changed(good, keys=kv.entries.keys[0].half()),
        r"weights of layer 0 is torch.float32 \(2, 3\)": changed(good, weights=torch.ones(2, 3)),
        "holds .*'more'": changed(good, more=torch.ones(1)),
        "weights must be finite": changed(good, weights=torch.full((2, 4), float("nan"))),
        "greater than zero": changed(good, weights=torch.zeros(2, 4)),
    }
    for reason, part in bad.items():
        with pytest.raises(ValueError, match=reason):
            decode(shape, kv.seen, [part])
    with pytest.raises(ValueError, match="shorter"):
        decode(shape, kv.seen, [])


@pytest.mark.parametrize(
    "fields",
    [
        {"layers": 5000},
        {"entries": 2**30},
        {"entries": -1},
        {"kv_heads": 0},
        {"head_dim": 65536, "kv_heads": 65536},
        {"dtype": "object"},
        {"extra": 1},
    ],
    ids=str,
)
def test_shapes_out_of_bounds(fields: dict[str, object]) -> None:
    good = {"layers": 2, "kv_heads": 2, "entries": 8, "head_dim": 4, "value_dim": 4, "dtype": "float32"}
    StateShape.model_validate(good)
    with pytest.raises(ValidationError):
        StateShape.model_validate(good | fields)
