"""Names of objects: SHA-256 of canonical bytes, the same in every process and on every machine.

name(S0)      = SHA-256(canonical JSON of the plan)
name(S(i+1))  = SHA-256(name(S(i)) as 32 bytes ++ token ids of segment i as little-endian uint32)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cache_store.keys import FORMAT_VERSION, check_name

POSITIONS = ("dense", "original")


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything besides the token ids that decides the bytes of a state.

    cache_entries is per KV head and layer; segment_tokens is the length of all segments but the last.
    Raises ValueError naming the field, its value and what is allowed.
    """

    model_fingerprint: str
    policy: str
    cache_entries: int
    segment_tokens: int
    seed: int = 0
    positions: str = "dense"
    parameters: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_whole("cache_entries", self.cache_entries, 1, 2**31 - 1)
        _check_whole("segment_tokens", self.segment_tokens, 1, 2**31 - 1)
        _check_whole("seed", self.seed, 0, 2**64 - 1)
        _check_text("model_fingerprint", self.model_fingerprint, r"[\x21-\x7e]{1,128}")
        _check_text("policy", self.policy, r"[a-z0-9_+-]{1,64}")
        _check_text("positions", self.positions, "|".join(POSITIONS))
        if not isinstance(self.parameters, Mapping):
            raise ValueError(f"parameters is a {type(self.parameters).__name__}; allowed is a mapping")
        object.__setattr__(self, "parameters", {str(k): str(v) for k, v in sorted(self.parameters.items())})

    def to_json(self) -> dict[str, str | int | dict[str, str]]:
        """The plan as JSON values; `Plan(**plan.to_json())` is the plan again."""
        return {
            "model_fingerprint": self.model_fingerprint,
            "policy": self.policy,
            "cache_entries": self.cache_entries,
            "segment_tokens": self.segment_tokens,
            "seed": self.seed,
            "positions": self.positions,
            "parameters": dict(self.parameters),
        }


def _check_whole(field_name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{field_name} is {str(value)[:80]}; allowed are whole numbers {low} to {high}")


def _check_text(field_name: str, value: object, pattern: str) -> None:
    if not isinstance(value, str) or not re.fullmatch(pattern, value):
        raise ValueError(f"{field_name} is {str(value)[:80]!r}; allowed is {pattern}")


def canonical_json(value: object) -> bytes:
    """JSON with sorted keys, no spaces, ASCII only: one value, one sequence of bytes."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii")


def derived_name(label: str, fields: Mapping[str, object]) -> str:
    """A name for an object that is decided by `fields` (JSON values); `label` keeps purposes apart."""
    return hashlib.sha256(canonical_json([label, FORMAT_VERSION, fields])).hexdigest()


def plan_name(plan: Plan) -> str:
    """The name of the empty state S(0) of a plan."""
    return derived_name("plan", plan.to_json())


def next_name(name: str, ids: bytes) -> str:
    """The name of the state after the segment with these token ids (little-endian uint32, at least one)."""
    if not ids or len(ids) % 4:
        raise ValueError(f"ids has {len(ids)} bytes; allowed is a positive multiple of 4")
    return hashlib.sha256(bytes.fromhex(check_name(name)) + ids).hexdigest()


def policy_seed(name: str) -> int:
    """The seed of a plan's randomness: the first 63 bits of the name of S(0)."""
    return int.from_bytes(bytes.fromhex(check_name(name))[:8], "big") >> 1


def document_name(chunks: Iterable[bytes]) -> str:
    """The name of a document: SHA-256 of its UTF-8 bytes, wherever they are cut into chunks."""
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def tokens_name(document: str, tokenizer_fingerprint: str) -> str:
    """The name of the token ids of a document under one tokenizer and prompt template."""
    return derived_name("tokens", {"document": check_name(document), "tokenizer": tokenizer_fingerprint})
