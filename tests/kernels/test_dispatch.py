"""The dispatch point: what runs where, and how it is overridden."""

from __future__ import annotations

import pytest
import torch

from kernels.dispatch import backend


def test_torch_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCEXPRESS_KERNELS", raising=False)
    assert backend(torch.device("cpu")) == "torch"


def test_the_environment_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCEXPRESS_KERNELS", "reference")
    assert backend(torch.device("cpu")) == "reference"
    monkeypatch.setenv("DOCEXPRESS_KERNELS", "cutlass")
    with pytest.raises(ValueError, match="'cutlass'; allowed are reference, torch, triton"):
        backend(torch.device("cpu"))
