"""Names: the same in every process, different for different content (reports row 2)."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from cache_store.naming import (
    Plan,
    derived_name,
    document_name,
    next_name,
    plan_name,
    policy_seed,
    tokens_name,
)

PLAN = Plan("f" * 64, "express", 1024, 1024, 7, "dense", {"sinks": "32", "recent": "512"})

PRINT_NAMES = """
from cache_store.naming import *
plan = Plan("f" * 64, "express", 1024, 1024, 7, "dense", {"recent": "512", "sinks": "32"})
name = plan_name(plan)
print(name, next_name(name, b"\\1\\0\\0\\0"), policy_seed(name), tokens_name("0" * 64, "t"))
"""


def names_in_process(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", PRINT_NAMES], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_processes_with_different_hash_seeds_agree() -> None:
    assert names_in_process("1") == names_in_process("2") != ""


def test_names_never_change() -> None:
    """Stored states are found by name: a change here orphans all of them and needs a new format version."""
    name = plan_name(PLAN)
    assert name == "84fe96f665e91a74159f3d16b3030b3a698a58212e272b41c5804c2d201a685b"
    assert (
        next_name(name, bytes(range(8))) == "0bdb7182bc1d352263789b8389be61ed881156f093bb529aef22550f2b565721"
    )
    assert document_name([b"abc"]) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_fingerprint", "e" * 64),
        ("policy", "streaming"),
        ("cache_entries", 1025),
        ("segment_tokens", 1025),
        ("seed", 8),
        ("positions", "original"),
        ("parameters", {"sinks": "32"}),
    ],
)
def test_every_field_of_the_plan_is_part_of_the_name(field: str, value: object) -> None:
    assert plan_name(dataclasses.replace(PLAN, **{field: value})) != plan_name(PLAN)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cache_entries", 0),
        ("segment_tokens", 2**31),
        ("seed", -1),
        ("seed", 0.5),
        ("positions", "auto"),
        ("policy", "Ex press"),
        ("model_fingerprint", ""),
        ("parameters", ["sinks"]),
    ],
)
def test_bad_plans_are_refused_by_field(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{field} is .*allowed"):
        dataclasses.replace(PLAN, **{field: value})  # type: ignore[arg-type]


def test_plan_survives_json() -> None:
    assert Plan(**PLAN.to_json()) == PLAN  # type: ignore[arg-type]


def test_a_name_depends_on_the_whole_chain() -> None:
    root, one, two = plan_name(PLAN), b"\1\0\0\0", b"\2\0\0\0"
    assert next_name(next_name(root, one), two) != next_name(next_name(root, two), one)
    assert next_name(root, one) != next_name(next_name(root, one), one)


@pytest.mark.parametrize("ids", [b"", b"\0", b"\0" * 5])
def test_ids_must_be_whole(ids: bytes) -> None:
    with pytest.raises(ValueError, match="ids has"):
        next_name(plan_name(PLAN), ids)


def test_document_name_does_not_depend_on_the_cuts() -> None:
    assert document_name([b"ab", b"", b"c"]) == document_name([b"abc"])


def test_seed_has_63_bits() -> None:
    assert policy_seed("f" * 64) == 2**63 - 1
    assert policy_seed("0" * 64) == 0


def test_labels_keep_purposes_apart() -> None:
    assert derived_name("tokens", {"a": 1}) != derived_name("checkpoint", {"a": 1})
    assert tokens_name("0" * 64, "t1") != tokens_name("0" * 64, "t2")
