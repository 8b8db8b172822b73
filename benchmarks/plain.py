"""A model as transformers alone would run it: the baseline of what docexpress does to it."""

from __future__ import annotations

from unittest.mock import patch

from kernel_worker.model import LoadedModel, load_model


def load_plain(name: str, device: str) -> LoadedModel:
    """Its linear layers are as transformers made them, not laid out for decodes."""
    with patch("kernel_worker.model.pack", return_value=None):
        return load_model(name, device=device)
