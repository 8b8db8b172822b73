"""These tests run the GPU programs in Triton's interpreter.

A process decides for the interpreter when it first imports Triton, so they are collected only where
TRITON_INTERPRET=1 is set; `tests/kernels/triton/test_interpreted.py` starts such processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    """Fresh memory is NaN, so that an element no program writes fails its test."""
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = before
