"""What a state is made of, and how its tensors are cut into parts. Knows no tensors: numbers only."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    field_serializer,
    field_validator,
    model_validator,
)

from cache_store.manifest import MAX_PART_BYTES, MAX_PARTS, Manifest, Sha256
from cache_store.naming import Plan

DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

_SAFETENSORS_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}

_WIDTH_ORDER = ("F16", "BF16", "I32", "F32", "F64")  # as safetensors ranks them
_WIDTHS = {"F16": 2, "BF16": 2, "I32": 4, "F32": 4, "F64": 8}

# A part's safetensors header names four or five tensors, their types, shapes and places.
HEADER_ROOM = 1024

Dimension = Annotated[int, Field(ge=1, le=65536)]
LayerError = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Span(NamedTuple):
    """One part: entries start..stop of all KV heads of one layer."""

    layer: int
    start: int
    stop: int


class StateShape(BaseModel):
    """Sizes of a state's tensors, which all have rows (layers, kv_heads).

    keys [*rows, entries, head_dim], values [*rows, entries, value_dim] in `dtype`; weights [*rows, entries]
    float32, tokens [*rows, entries] int32; where `scored`, scores [*rows, entries] float32.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    layers: Dimension
    kv_heads: Dimension
    entries: int = Field(ge=0, lt=2**31)
    head_dim: Dimension
    value_dim: Dimension
    dtype: Literal["float64", "float32", "float16", "bfloat16"]
    scored: bool = False

    @model_validator(mode="after")
    def _fits_into_parts(self) -> Self:
        if self.entry_bytes > MAX_PART_BYTES - HEADER_ROOM:
            raise ValueError("one entry of all heads is larger than a part may be")
        if self.layers * max(1, -(-self.entries // self.entries_per_part)) > MAX_PARTS:
            raise ValueError(f"the state needs more than {MAX_PARTS} parts")
        return self

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry in all KV heads of one layer."""
        numbers = 3 if self.scored else 2  # weights, tokens, scores: four bytes each
        return self.kv_heads * ((self.head_dim + self.value_dim) * DTYPE_BYTES[self.dtype] + 4 * numbers)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all tensors."""
        return self.layers * self.entries * self.entry_bytes

    @property
    def entries_per_part(self) -> int:
        return (MAX_PART_BYTES - HEADER_ROOM) // self.entry_bytes

    def spans(self) -> list[Span]:
        """The parts, in order: one for each layer, or several where it would be larger than a part may be."""
        step = self.entries_per_part
        starts = range(0, max(self.entries, 1), step)
        return [
            Span(layer, start, min(start + step, self.entries))
            for layer in range(self.layers)
            for start in starts
        ]

    def size_bound(self) -> int:
        """The most bytes that the parts hold together, headers included."""
        return self.payload_bytes + len(self.spans()) * HEADER_ROOM

    def stored_bytes(self) -> int:
        """Exactly the bytes that the parts hold together, headers included: a manifest's `size`."""
        return sum(self._part_bytes(span.stop - span.start) for span in self.spans())

    def _part_bytes(self, entries: int) -> int:
        """Of one part with so many entries: safetensors' eight bytes of length, its header, the tensors."""
        row, kind = [self.kv_heads, entries], _SAFETENSORS_NAMES[self.dtype]
        tensors = {
            "keys": (kind, [*row, self.head_dim]),
            "values": (kind, [*row, self.value_dim]),
            "weights": ("F32", row),
            "tokens": ("I32", row),
        }
        if self.scored:
            tensors["scores"] = ("F32", row)
        # safetensors lays out wide types first, then by name; the offsets' digits are part of the length.
        order = sorted(tensors, key=lambda name: (-_WIDTH_ORDER.index(tensors[name][0]), name))
        header, at = {}, 0
        for name in order:
            dtype, shape = tensors[name]
            end = at + math.prod(shape) * _WIDTHS[dtype]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
            at = end
        text = len(json.dumps(header, separators=(",", ":")))
        return 8 + -(-text // 8) * 8 + at


class StateMeta(BaseModel):
    """`meta` of a state's manifest: plan, parent's name, tokens seen, sizes; `extra` is the caller's.

    error_by_layer  what compression cost in attention, an estimate; None where nobody measured it
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: Plan
    parent: Sha256 | None = None
    seen: int = Field(ge=0, lt=2**53)
    shape: StateShape
    error_by_layer: tuple[LayerError, ...] | None = None
    extra: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("plan", mode="before")
    @classmethod
    def _plan_from_json(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        try:
            return Plan(**value)
        except TypeError as error:
            raise ValueError(f"the plan has other fields: {error}") from error

    @model_validator(mode="after")
    def _one_error_for_each_layer(self) -> Self:
        if self.error_by_layer is not None and len(self.error_by_layer) != self.shape.layers:
            raise ValueError("error_by_layer has not one figure for each layer")
        return self

    @property
    def error_estimate(self) -> float | None:
        """The mean over layers."""
        errors = self.error_by_layer
        return None if errors is None else round(sum(errors) / len(errors), 6)

    @field_serializer("plan")
    def _plan_to_json(self, plan: Plan) -> dict[str, str | int | dict[str, str]]:
        return plan.to_json()


def state_meta(manifest: Manifest) -> StateMeta:
    """What the manifest of a state (or checkpoint) says of it.

    Raises ValueError (pydantic.ValidationError) where its meta, or the sizes of its parts, cannot be those of
    a state.
    """
    meta = StateMeta.model_validate(manifest.meta)
    spans = meta.shape.spans()
    if len(spans) != len(manifest.parts):
        raise ValueError(f"the state has {len(manifest.parts)} parts; its shape asks for {len(spans)}")
    for span, part in zip(spans, manifest.parts, strict=True):
        payload = (span.stop - span.start) * meta.shape.entry_bytes
        if not payload < part.size <= payload + HEADER_ROOM:
            raise ValueError(f"a part of layer {span.layer} has {part.size} bytes for {payload} of tensors")
    return meta
