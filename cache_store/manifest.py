"""The manifest of a stored object: what there is to read, and how to tell that it is whole."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from cache_store.errors import FormatMismatch, ObjectDamaged
from cache_store.keys import FORMAT_VERSION, NAME_PATTERN, Kind

MAX_PART_BYTES = 16 * 1024**2
MAX_PARTS = 4096
MAX_MANIFEST_BYTES = 1024**2
MAX_TTL_SECONDS = 10 * 365 * 24 * 3600

Sha256 = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]


class PartInfo(BaseModel):
    """Length in bytes and SHA-256 of one part."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    size: int = Field(ge=1, le=MAX_PART_BYTES)
    sha256: Sha256


class Manifest(BaseModel):
    """Describes one object. Everything in it is bounded before anything is read on its word.

    size        bytes of all parts
    created_ms  Unix time of writing
    ttl_seconds how long the object lives after it was last read
    generation  drawn for each upload; part of the keys of the parts
    meta        what the object is about; its meaning belongs to whoever wrote it
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    format: Literal[1] = FORMAT_VERSION
    kind: Kind
    name: Sha256
    generation: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    created_ms: int = Field(ge=0, lt=2**53)
    ttl_seconds: int = Field(ge=1, le=MAX_TTL_SECONDS)
    size: int = Field(ge=0)
    parts: Annotated[tuple[PartInfo, ...], Field(max_length=MAX_PARTS, strict=False)]
    meta: dict[str, JsonValue] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.size != sum(part.size for part in self.parts):
            raise ValueError("size is not the sum of the parts' sizes")
        return self


class _Version(BaseModel):
    format: int


def parse_manifest(raw: bytes, what: str) -> Manifest:
    """The manifest in `raw`; `what` names it in errors.

    Raises FormatMismatch for another format version, ObjectDamaged for anything else that is no manifest.
    """
    if len(raw) > MAX_MANIFEST_BYTES:
        raise ObjectDamaged(f"The manifest of {what} is longer than {MAX_MANIFEST_BYTES} bytes.")
    try:
        version = _Version.model_validate_json(raw).format
        if version != FORMAT_VERSION:
            raise FormatMismatch(
                f"{what} has format version {version}; this program reads version {FORMAT_VERSION}."
            )
        return Manifest.model_validate_json(raw)
    except ValidationError as error:
        raise ObjectDamaged(f"The manifest of {what} is not valid: {first_problem(error)}.") from error


def first_problem(error: ValidationError) -> str:
    """The first thing wrong, in words, without the value itself."""
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(step) for step in problem["loc"])
    return f"{where}: {problem['msg']}" if where else str(problem["msg"])
