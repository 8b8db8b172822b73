"""Selection policies: which entries a bounded cache keeps. One small file each, one interface (`policy`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from kernels.selection.compactor import CompactorPolicy
from kernels.selection.composed import (
    ImportanceExpressPolicy,
    PassagesExpressPolicy,
    SnapKVExpressPolicy,
)
from kernels.selection.exact import ExactPolicy
from kernels.selection.expected_attention import ExpectedAttentionPolicy
from kernels.selection.express import ExpressPolicy
from kernels.selection.importance import ImportancePolicy
from kernels.selection.keydiff import KeyDiffPolicy
from kernels.selection.knorm import KnormPolicy
from kernels.selection.kvzip import KVzipPolicy
from kernels.selection.passages import PassagesPolicy
from kernels.selection.policy import CompressedKV, SelectionPolicy
from kernels.selection.pyramidkv import PyramidKVPolicy
from kernels.selection.snapkv import SnapKVPolicy
from kernels.selection.streaming import StreamingPolicy
from kernels.selection.streaming_importance import StreamingImportancePolicy
from kernels.selection.uniform import UniformPolicy

__all__ = ["POLICIES", "CompressedKV", "SelectionPolicy", "make_policy"]

_POLICIES = (
    ExactPolicy,
    StreamingPolicy,
    UniformPolicy,
    ExpressPolicy,
    CompactorPolicy,
    SnapKVPolicy,
    PyramidKVPolicy,
    ExpectedAttentionPolicy,
    KeyDiffPolicy,
    KnormPolicy,
    KVzipPolicy,
    ImportancePolicy,
    StreamingImportancePolicy,
    PassagesPolicy,
    SnapKVExpressPolicy,
    ImportanceExpressPolicy,
    PassagesExpressPolicy,
)
_CLASSES: Mapping[str, type[Any]] = MappingProxyType({policy.name: policy for policy in _POLICIES})
POLICIES: tuple[str, ...] = tuple(_CLASSES)
"""Names that `make_policy` knows."""


def make_policy(
    name: str, *, entries: int, seed: int, parameters: Mapping[str, str] = MappingProxyType({})
) -> SelectionPolicy:
    """The policy `name` for a cache of at most `entries` per KV head and layer.

    seed        decides every random choice; any integer, its low 64 bits count
    parameters  texts for the further fields of the policy's class, for example {"sinks": "16"}

    ValueError names what is wrong and what is allowed.
    """
    if name not in _CLASSES:
        raise ValueError(f"policy is {name!r}; allowed are {', '.join(POLICIES)}")
    if entries < 1:
        raise ValueError(f"entries is {entries}; allowed is 1 or more")
    policy = _CLASSES[name]
    known = {field.name: str(field.type) for field in fields(policy)[2:]}
    for parameter in parameters:
        if parameter not in known:
            allowed = ", ".join(known) or "none"
            raise ValueError(f"parameter {parameter!r} is none of {name!r}; allowed are: {allowed}")
    values = {key: _parse(key, known[key], text) for key, text in parameters.items()}
    made: SelectionPolicy = policy(entries, seed, **values)
    return made


def _parse(name: str, kind: str, text: str) -> int | float | bool | str:
    """The text of one parameter as the type of its field."""
    kind = kind.removesuffix(" | None")
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{name} is {text!r}; allowed are true and false")
        return text.lower() == "true"
    if kind == "str":
        return text
    try:
        return float(text) if kind == "float" else int(text)
    except ValueError:
        allowed = "a number" if kind == "float" else "a whole number"
        raise ValueError(f"{name} is {text!r}; allowed is {allowed}") from None
