"""A model as transformers alone would run it: the baseline of what docexpress does to it."""

from __future__ import annotations

from unittest.mock import patch

from kernel_worker.model import LoadedModel, load_model


def load_plain(name: str, device: str) -> LoadedModel:
    """Its linear layers are as transformers made them, whatever texts that are written together ask for."""
    with patch("kernel_worker.rows.packable", return_value=False):
        return load_model(name, device=device)
