"""Options and results: what is refused, and what JSON comes out."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from orchestrator.errors import OptionError
from orchestrator.jobs import JobOptions, JobResult
from orchestrator.settings import Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cache_entries", 0),
        ("segment_tokens", 0),
        ("segment_tokens", 2**31),
        ("max_new_tokens", 0),
        ("reread", -1),
        ("reread", 1025),
        ("seed", -1),
        ("seed", 2**63),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.5),
        ("repetition_penalty", 0.0),
        ("positions", "other"),
        ("model", " "),
        ("policy", ""),
    ],
)
def test_refused_option_is_named(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=f"{name} is .*, but must be "):
        JobOptions(**{name: value})


def test_options_survive_json() -> None:
    options = JobOptions(query="ä?", policy_parameters={"temper": "0.5"}, seed=2**63 - 1)
    assert JobOptions.from_json(json.loads(json.dumps(options.to_json()))) == options


@pytest.mark.parametrize(("kind", "key"), [("summarize", "summary"), ("ask", "answer")])
def test_result_json(kind: Any, key: str) -> None:
    result = JobResult(
        job_id="j",
        kind=kind,
        model="m",
        text="text",
        question=None,
        state="s",
        tokens_read=1,
        prefill_tokens=2,
        tokens_written=3,
        segments=4,
        cache_entries=5,
        state_bytes=6,
        full_cache_bytes=7,
        seconds={"decode": 0.5},
        finish_reason="stop",
        error_estimate=0.25,
        error_by_layer=(0.1, 0.4),
    )
    data = json.loads(json.dumps(result.to_json()))
    assert data == {
        "job_id": "j",
        "kind": kind,
        "model": "m",
        key: "text",
        "question": None,
        "state": "s",
        "tokens_read": 1,
        "prefill_tokens": 2,
        "tokens_written": 3,
        "segments": 4,
        "cache_entries": 5,
        "state_bytes": 6,
        "full_cache_bytes": 7,
        "seconds": {"decode": 0.5},
        "finish_reason": "stop",
        "reread_segments": [],
        "error_estimate": 0.25,
        "error_by_layer": [0.1, 0.4],
    }
    assert JobResult.from_json(data) == result
    for later in ("reread_segments", "error_estimate", "error_by_layer"):
        del data[later]  # as a version without it wrote
    assert JobResult.from_json(data) == dataclasses.replace(result, error_estimate=None, error_by_layer=None)


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCEXPRESS_MAX_ATTEMPTS", "7")
    monkeypatch.setenv("DOCEXPRESS_DOCUMENT_BYTES_LIMIT", "1MiB")
    settings = Settings()
    assert (settings.max_attempts, settings.document_bytes_limit) == (7, 1024**2)
    with pytest.raises(ValueError, match="frozen"):
        settings.max_attempts = 8


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"decode_deadline": 3600}, "every deadline must be shorter than visibility_timeout"),
        ({"visibility_timeout": 900}, "every deadline must be shorter than visibility_timeout"),
        ({"claim_ttl": 2.0}, "claim_ttl must be at least three times claim_beat"),
        ({"tenant": "A:B"}, "tenant is 'A:B'"),
    ],
)
def test_settings_that_do_not_fit(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Settings(**values)
