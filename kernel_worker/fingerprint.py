"""What makes two models the same: states made by one are read by the other when the fingerprints agree."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

# Where a model came from and what wrote it down: nothing here changes a number it computes.
_INCIDENTAL = frozenset(
    {"_name_or_path", "transformers_version", "use_cache", "dtype", "torch_dtype", "architectures"}
)


def weights_digest(model: Any) -> str:
    """SHA-256, hex, of all parameters by name, shape, dtype and bytes; shared ones once.

    Independent of files, shards and device. About 1 GB a second and core.
    """
    named = sorted(model.named_parameters())
    # hashlib lets go of the interpreter lock, so threads do hash at the same time.
    with ThreadPoolExecutor(max_workers=max(1, min(8, torch.get_num_threads()))) as threads:
        digests = threads.map(_tensor_digest, (parameter for _, parameter in named))
        whole = hashlib.sha256()
        for (name, parameter), digest in zip(named, digests, strict=True):
            whole.update(f"{name} {parameter.dtype} {tuple(parameter.shape)}\n".encode() + digest)
    return whole.hexdigest()


def model_fingerprint(model: Any, weights: str, tokenizer: str) -> str:
    """SHA-256, hex, of config, weights digest, tokenizer fingerprint and dtype."""
    config = {name: value for name, value in model.config.to_dict().items() if name not in _INCIDENTAL}
    canonical = json.dumps(
        [config, weights, tokenizer, str(model.dtype)], sort_keys=True, separators=(",", ":"), default=str
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def _tensor_digest(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().data).digest()
