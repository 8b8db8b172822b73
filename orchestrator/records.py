"""A job's record as a Redis hash: each field one JSON value."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from orchestrator.jobs import Job, JobOptions

# In place of a value: the store's own clock at the moment of writing (`scripts.py`).
NOW = "@now"
_FIELDS = frozenset(field.name for field in dataclasses.fields(Job))


def encode(fields: Mapping[str, Any]) -> dict[str, str]:
    """Fields of a Job to hash values. Raises KeyError for a field that Job does not have."""
    unknown = fields.keys() - _FIELDS
    if unknown:
        raise KeyError(f"a job has no field {sorted(unknown)}")
    return {name: NOW if value is NOW else encode_value(value) for name, value in fields.items()}


def encode_value(value: Any) -> str:
    if isinstance(value, JobOptions):
        value = value.to_json()
    elif isinstance(value, Mapping):
        value = dict(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def decode(record: Mapping[bytes, bytes]) -> Job:
    """A hash to a Job. Fields that this version does not know (written by a newer one) are left aside."""
    values = {name.decode(): json.loads(value) for name, value in record.items()}
    known = {name: value for name, value in values.items() if name in _FIELDS}
    known["options"] = JobOptions.from_json(known["options"])
    known["passages"] = tuple(known.get("passages", ()))
    return Job(**known)


def encode_job(job: Job) -> dict[str, str]:
    return encode({field.name: getattr(job, field.name) for field in dataclasses.fields(Job)})
