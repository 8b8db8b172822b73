"""Tiny random models of every family and a byte-level tokenizer with a chat template: no download."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from kernel_worker.model import LoadedModel, assemble

WINDOW = 256
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] }}"
    "{{ '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEXT = (
    "The quick brown fox jumps over the lazy dog, and the dog does not mind. "
    "A document is read in segments; what it says is kept in entries. 0123456789\n\n"
)
_SHAPE: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": WINDOW,
    # Large weights, so that attention decides what comes out.
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_ROPE = {"rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
_FAMILIES: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "llama": (transformers.LlamaConfig, {}),
    "llama-multi-head": (transformers.LlamaConfig, {"num_key_value_heads": 6}),
    "llama-tied": (transformers.LlamaConfig, {"tie_word_embeddings": True}),
    "llama-rope-llama3": (
        transformers.LlamaConfig,
        {"rope_parameters": _ROPE | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    ),
    "llama-rope-linear": (transformers.LlamaConfig, {"rope_parameters": _ROPE | {"rope_type": "linear"}}),
    "llama-rope-yarn": (transformers.LlamaConfig, {"rope_parameters": _ROPE | {"rope_type": "yarn"}}),
    "qwen2": (transformers.Qwen2Config, {}),
    "qwen3": (transformers.Qwen3Config, {}),
    "mistral": (transformers.MistralConfig, {"sliding_window": None}),
}
FAMILIES = tuple(_FAMILIES)


@lru_cache(maxsize=1)
def _backend_rules() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        show_progress=False,
        special_tokens=[AddedToken(text, special=True) for text in CONTROL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([_TEXT] * 4, trainer)
    # Not special for transformers, and yet a control token of a template.
    tokenizer.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return tokenizer.to_str()


def tiny_tokenizer() -> Any:
    """A tokenizer of transformers: bytes, some merges, and the control tokens of ChatML."""
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_backend_rules()),
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def tiny_model(family: str = "llama", *, seed: int = 0, **changes: Any) -> Any:
    """A random float32 model of the family, as transformers makes it; `changes` go into its configuration."""
    config_class, own = _FAMILIES[family]
    config = config_class(**(_SHAPE | {"vocab_size": len(tiny_tokenizer())} | own | changes))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def tiny_loaded(family: str = "llama", *, seed: int = 0, **changes: Any) -> LoadedModel:
    """The same model, ready to serve."""
    return assemble(tiny_model(family, seed=seed, **changes), tiny_tokenizer(), name=f"tiny-{family}")


def save_tiny(folder: Path, family: str = "llama", *, seed: int = 0, **changes: Any) -> Path:
    """Writes model and tokenizer where `load_model(str(folder))` finds them."""
    tiny_model(family, seed=seed, **changes).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
