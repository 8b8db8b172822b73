"""Which models a compressed state can serve: what their configuration says, and one small trial."""

from __future__ import annotations

from importlib.metadata import distributions
from typing import Any

import torch

from kernel_worker import attention
from kernel_worker.cache import SegmentCache
from kernel_worker.errors import ForeignKernels, ModelUnsupported
from kernel_worker.rotary import Rotary
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import concat

_TRIAL_TOKENS = 24
# Error of the trial relative to the standard deviation of the logits: rounding stays far below, while a
# rotation left out or a mask ignored gives errors of the size of the logits themselves.
_TOLERANCE = {torch.float64: 1e-3, torch.float32: 1e-3, torch.bfloat16: 0.15, torch.float16: 0.05}


def refuse_foreign_kernels() -> None:
    """Raises ForeignKernels where another distribution named `kernels` is installed.

    transformers probes for it by the module name that is ours here, and takes our package for it.
    """
    for found in distributions(name="kernels"):
        raise ForeignKernels(
            f"The distribution `kernels` {found.version} is installed, and transformers would take our own"
            " package of that name for it; uninstall it (pip uninstall kernels)."
        )


def refuse_config(config: Any) -> None:
    """Raises ModelUnsupported where the configuration names something that a state cannot hold."""
    kind = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise ModelUnsupported(f"Models of type {kind} have an encoder; only decoders suit.")
    layer_types = getattr(config, "layer_types", None)
    other = sorted(set(layer_types or ()) - {"full_attention"})
    if other:
        raise ModelUnsupported(f"The model has layers of {', '.join(other)}; only full attention suits.")
    if layer_types is None and getattr(config, "sliding_window", None) is not None:
        raise ModelUnsupported(
            f"The model attends to a sliding window of {config.sliding_window} tokens, which does not suit."
        )
    if not getattr(config, "max_position_embeddings", None):
        raise ModelUnsupported(f"The configuration of {kind} does not say how many positions were trained.")


def trial(model: Any, rotary: Rotary, empty: CompressedKV) -> None:
    """Runs some tokens through the model's own attention and through ours, in two segments, and compares.

    Leaves the model with our attention. Raises ModelUnsupported where the results differ, or where the model
    does not let its attention be replaced.
    """
    vocabulary: int = model.get_input_embeddings().num_embeddings
    count = min(_TRIAL_TOKENS, model.config.max_position_embeddings)
    ids = (torch.arange(count, device=model.device) * 7919 % vocabulary).unsqueeze(0)
    with torch.inference_mode():
        expected = model(input_ids=ids, use_cache=False).logits.double()
        model.set_attn_implementation(attention.NAME)
        try:
            found = _in_two_segments(model, rotary, empty, ids).double()
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ModelUnsupported(
                f"{type(model).__name__} does not let its attention be replaced ({error})."
            ) from error
    error_ratio = float((found - expected).abs().max() / expected.std())
    # Written so that NaN is refused as well.
    if not error_ratio <= _TOLERANCE.get(model.dtype, 1e-3):
        raise ModelUnsupported(
            f"{type(model).__name__} computes attention in a way that a compressed state cannot repeat"
            f" (its logits differ by {error_ratio:.2g} standard deviations)."
        )


def _in_two_segments(model: Any, rotary: Rotary, state: CompressedKV, ids: torch.Tensor) -> torch.Tensor:
    outputs = []
    for part in torch.split(ids, 2 * ids.shape[1] // 3 or 1, dim=1):
        log_weights = state.entries.weights.log()
        cache = SegmentCache(state, log_weights, rotary, "dense", part.shape[1])
        options = {attention.NAME: cache}
        places = torch.zeros_like(part)
        outputs.append(
            model(input_ids=part, position_ids=places, cache=cache, use_cache=True, **options).logits
        )
        state = CompressedKV(concat([state.entries, cache.new_entries()]), state.seen + part.shape[1])
    return torch.cat(outputs, dim=1)
