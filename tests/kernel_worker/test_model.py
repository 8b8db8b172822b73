"""Loading: what is served, what is refused in one sentence, and what a fingerprint knows."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from kernel_worker import attention
from kernel_worker.errors import ForeignKernels, ModelDamaged, ModelUnknown, ModelUnsupported
from kernel_worker.model import assemble, load_model
from kernel_worker.suitability import refuse_foreign_kernels
from tests.kernel_worker.tiny import save_tiny, tiny_loaded, tiny_model, tiny_tokenizer


def test_a_folder_is_loaded_without_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        pytest.fail("the network was asked")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    loaded = load_model(str(save_tiny(tmp_path)), device="cpu")
    assert (loaded.layers, loaded.kv_heads, loaded.head_dim, loaded.window) == (3, 2, 8, 256)
    assert loaded.dtype == torch.float32
    assert loaded.bytes_per_token == 2 * 3 * 2 * 8 * 4
    assert loaded.prompt.stop_ids == {2}
    assert loaded.model.config._attn_implementation == attention.NAME


def test_all_end_tokens_of_the_generation_settings_count(tmp_path: Path) -> None:
    model = tiny_model()
    model.generation_config.eos_token_id = [7, 9]
    model.save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    assert load_model(str(tmp_path), device="cpu").prompt.stop_ids == {2, 7, 9}


class TestFingerprint:
    def test_the_same_from_memory_and_from_another_place(self, tmp_path: Path) -> None:
        first = load_model(str(save_tiny(tmp_path / "a")), device="cpu")
        second = load_model(str(save_tiny(tmp_path / "b")), device="cpu")
        assert first.fingerprint == second.fingerprint == tiny_loaded().fingerprint
        assert len(first.fingerprint) == 64

    @pytest.mark.parametrize(
        "change",
        [
            {"seed": 1},
            {"rms_norm_eps": 1e-4},
            {"rope_parameters": {"rope_theta": 9e3, "rope_type": "default"}},
        ],
        ids=["weights", "config", "rotary"],
    )
    def test_another_model_has_another(self, change: dict[str, Any]) -> None:
        assert tiny_loaded(**change).fingerprint != tiny_loaded().fingerprint

    def test_another_dtype_has_another(self, tmp_path: Path) -> None:
        folder = str(save_tiny(tmp_path))
        half = load_model(folder, device="cpu", dtype=torch.bfloat16)
        assert half.dtype == torch.bfloat16
        assert half.bytes_per_token == 192
        assert half.fingerprint != load_model(folder, device="cpu").fingerprint

    def test_another_tokenizer_has_another(self) -> None:
        tokenizer = tiny_tokenizer()
        tokenizer.chat_template += " "
        other = assemble(tiny_model(), tokenizer, name="tiny")
        assert other.fingerprint != tiny_loaded().fingerprint
        assert other.tokenizer_fingerprint != tiny_loaded().tokenizer_fingerprint


def test_other_models_see_no_change() -> None:
    before = tiny_model()
    ids = torch.arange(5, 25).unsqueeze(0)
    with torch.inference_mode():
        expected = before(ids).logits
        forward = type(before).forward
        served = tiny_loaded()
        assert torch.equal(before(ids).logits, expected)
        assert torch.equal(tiny_model()(ids).logits, expected)
    assert type(before).forward is forward
    assert before.config._attn_implementation == "sdpa"
    assert not served.model._forward_hooks
    assert not served.model._forward_pre_hooks
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is not attention.attention


class TestRefusals:
    def test_an_unknown_name(self, tmp_path: Path) -> None:
        with pytest.raises(ModelUnknown, match="no model 'nobody/nothing'"):
            load_model("nobody/nothing", device="cpu")
        with pytest.raises(ModelUnknown, match="config"):
            load_model(str(tmp_path), device="cpu")

    def test_a_folder_without_weights(self, tmp_path: Path) -> None:
        (save_tiny(tmp_path) / "model.safetensors").unlink()
        with pytest.raises(ModelUnknown, match="safetensors"):
            load_model(str(tmp_path), device="cpu")

    def test_pickled_weights(self, tmp_path: Path) -> None:
        (save_tiny(tmp_path) / "model.safetensors").unlink()
        torch.save(tiny_model().state_dict(), tmp_path / "pytorch_model.bin")
        with pytest.raises(ModelUnknown, match="safetensors"):
            load_model(str(tmp_path), device="cpu")

    def test_damaged_weights(self, tmp_path: Path) -> None:
        path = save_tiny(tmp_path) / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(ModelDamaged, match="cannot be read"):
            load_model(str(tmp_path), device="cpu")

    def test_a_sliding_window(self) -> None:
        with pytest.raises(ModelUnsupported, match="sliding"):
            tiny_loaded("mistral", sliding_window=64)
        with pytest.raises(ModelUnsupported, match="sliding_attention"):
            tiny_loaded("qwen2", use_sliding_window=True, sliding_window=64, max_window_layers=1)

    def test_rotary_positions_that_change_with_the_length(self) -> None:
        rope = {
            "rope_theta": 1e4,
            "rope_type": "dynamic",
            "factor": 2.0,
            "original_max_position_embeddings": 64,
        }
        with pytest.raises(ModelUnsupported, match="dynamic"):
            tiny_loaded(rope_parameters=rope)

    def test_a_model_without_rotary_positions(self) -> None:
        config = transformers.GPT2Config(vocab_size=400, n_embd=16, n_layer=2, n_head=2, n_positions=64)
        model = transformers.AutoModelForCausalLM.from_config(config)
        with pytest.raises(ModelUnsupported, match="rotary"):
            assemble(model, tiny_tokenizer(), name="gpt2")

    def test_attention_that_does_more_than_ours(self) -> None:
        """Gemma 2 caps its logits: only the trial can tell."""
        config = transformers.Gemma2Config(
            vocab_size=400,
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            attn_logit_softcapping=0.01,
            layer_types=["full_attention"] * 2,
            initializer_range=0.3,
            max_position_embeddings=128,
        )
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        with pytest.raises(ModelUnsupported, match="cannot repeat"):
            assemble(model, tiny_tokenizer(), name="gemma2")

    def test_an_encoder(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "t5"}))
        with pytest.raises(ModelUnsupported, match="encoder"):
            load_model(str(tmp_path), device="cpu")

    def test_a_foreign_distribution_named_kernels(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refuse_foreign_kernels()
        folder = tmp_path / "kernels-0.18.2.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 0.18.2\n")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(ForeignKernels, match=r"0\.18\.2"):
            load_model("embedded", device="cpu")
