"""`docexpress plan`: from a config alone, in numbers and words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.main import run
from orchestrator.errors import ModelNotSized
from orchestrator.sizing import model_sizes

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def save(folder: Path, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = {name: value for name, value in (CONFIG | changes).items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_json_and_table_tell_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["plan", str(save(tmp_path)), "--documents", "500", "--redis-gb", "16"]
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tensors = 32 * 8 * 1024 * (2 * 128 * 2 + 8)
    assert tensors < found["state_bytes"] < tensors + 32 * 512
    assert found["states_per_gb"] == round(10**9 / (found["state_bytes"] + 4096), 1)
    assert found["full_cache_bytes"] == 2 * 32 * 8 * 128 * 2 * 100_000
    assert found["documents_that_fit"] == 16 * 10**9 // found["document_bytes"]
    assert run(arguments) == 0
    shown = capsys.readouterr().out
    assert f"{found['documents_that_fit']} documents" in shown
    assert "too few" in shown
    assert "13.1 GB" in shown


def test_a_name_is_looked_up_in_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some--model"
    save(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    assert model_sizes("some/model").layers == 32
    with pytest.raises(ModelNotSized, match="nothing is downloaded"):
        model_sizes("some/other")


def test_the_embedded_model_is_known_without_a_file() -> None:
    sizes = model_sizes("embedded")
    assert (sizes.layers, sizes.kv_heads, sizes.head_dim, sizes.dtype) == (30, 3, 64, "float32")


def test_a_config_without_kv_heads_has_one_for_each_head(tmp_path: Path) -> None:
    assert model_sizes(str(save(tmp_path, num_key_value_heads=...)), "float16").kv_heads == 32


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_hidden_layers": ...}, "does not say num_hidden_layers"),
        ({"num_hidden_layers": "many"}, "does not say num_hidden_layers"),
        ({"num_attention_heads": 0}, "does not say num_attention_heads"),
        ({"num_key_value_heads": "x"}, "does not say num_key_value_heads"),
        ({"torch_dtype": ...}, "give --dtype"),
        ({"torch_dtype": ["x"]}, "give --dtype"),
        ({"sliding_window": 4096}, "sliding window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding_attention"),
        ({"is_encoder_decoder": True}, "encoder"),
        ({"num_key_value_heads": 10**6}, "kv_heads"),
    ],
    ids=str,
)
def test_what_is_no_config_gets_a_sentence(
    changes: dict[str, Any], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(save(tmp_path, **changes))]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", "\xff"])
def test_a_file_that_is_no_json_object_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelNotSized, match=r"config\.json"):
        model_sizes(str(tmp_path))


def test_a_window_that_is_too_short_and_bad_options_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", str(save(tmp_path, max_position_embeddings=2000))]) == 0
    assert "fewer than entries and segment: 2,048" in " ".join(capsys.readouterr().out.split())
    assert run(["plan", "embedded", "--redis-gb", "nan"]) == 2
    assert "redis-gb" in capsys.readouterr().err
