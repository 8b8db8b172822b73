"""Which implementation of attention and halving runs on a device."""

from __future__ import annotations

import importlib.util
import logging
import os
from functools import lru_cache
from typing import Literal, get_args

import torch

Backend = Literal["reference", "torch", "triton"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)
ENVIRONMENT = "DOCEXPRESS_KERNELS"

_log = logging.getLogger(__name__)


def backend(device: torch.device) -> Backend:
    """The implementation to use for tensors on `device`.

    Triton on a CUDA device where it is installed, torch elsewhere; the environment variable
    DOCEXPRESS_KERNELS (reference, torch or triton) overrides that. ValueError for any other name.
    """
    chosen = os.environ.get(ENVIRONMENT)
    if chosen is None or chosen == "":
        return "triton" if device.type == "cuda" and has_triton() else "torch"
    if chosen not in BACKENDS:
        raise ValueError(f"{ENVIRONMENT} is {chosen!r}; allowed are {', '.join(BACKENDS)}")
    return chosen


@lru_cache(maxsize=1)
def has_triton() -> bool:
    """Whether both the Triton compiler and our kernels for it can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in ("triton", "kernels.triton"))


def taken(reason: str | None) -> bool:
    """Whether Triton runs a case; a `reason` (`triton.support`) why it cannot is logged, once."""
    if reason is not None:
        _log_once(reason)
    return reason is None


@lru_cache
def _log_once(reason: str) -> None:
    _log.warning("torch runs what Triton does not take: %s", reason)
