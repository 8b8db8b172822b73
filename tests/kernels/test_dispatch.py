"""The dispatch point: what runs where, and how it is overridden."""

from __future__ import annotations

import logging

import pytest
import torch

from kernels.attention import segment_attention
from kernels.decode import decode_attention
from kernels.dispatch import backend
from kernels.halving import kernel_halving


def test_torch_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DOCEXPRESS_KERNELS", raising=False)
    assert backend(torch.device("cpu")) == "torch"


def test_the_environment_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCEXPRESS_KERNELS", "reference")
    assert backend(torch.device("cpu")) == "reference"
    monkeypatch.setenv("DOCEXPRESS_KERNELS", "cutlass")
    with pytest.raises(ValueError, match="'cutlass'; allowed are reference, torch, triton"):
        backend(torch.device("cpu"))


def test_what_triton_does_not_take_falls_back_with_one_logged_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DOCEXPRESS_KERNELS", "triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    q, keys, values = (torch.randn(1, 2, 5, 52) for _ in range(3))
    weights = torch.zeros(1, 2, 5)
    with caplog.at_level(logging.WARNING, logger="kernels.dispatch"):
        out, _ = segment_attention(q, keys[:, :, :0], values[:, :, :0], weights[:, :, :0], keys, values)
        segment_attention(q, keys[:, :, :0], values[:, :, :0], weights[:, :, :0], keys, values)
        decode_attention(q[:, :, :1], keys, values, weights)
        kernel_halving(keys[:, :, :4], values[:, :, :4], torch.rand(1, 2, 3, dtype=torch.float64))
    assert [record.getMessage() for record in caplog.records] == [
        "torch runs what Triton does not take: keys has head size 52; allowed are 64, 80, 96, 128, 256"
    ]
    monkeypatch.setenv("DOCEXPRESS_KERNELS", "torch")
    expected, _ = segment_attention(q, keys[:, :, :0], values[:, :, :0], weights[:, :, :0], keys, values)
    assert torch.equal(out, expected)
