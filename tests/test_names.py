"""The top-level name `kernels` is also that of a Hugging Face package, for which transformers probes."""

from __future__ import annotations

import subprocess
import sys

PROBE = """
import kernels
from transformers.utils import is_kernels_available
assert is_kernels_available() is False
from transformers import LlamaForCausalLM
assert kernels.__doc__ and not hasattr(kernels, 'get_kernel')
assert LlamaForCausalLM
"""


def test_transformers_does_not_take_our_kernels_for_its_own() -> None:
    """In a fresh process, since what transformers finds out at its first import stays."""
    result = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
