"""A model as transformers alone would run it: the baseline of what docexpress does to it."""

from __future__ import annotations

from kernel_worker.model import LoadedModel, load_model


def load_plain(name: str, device: str) -> LoadedModel:
    """Its linear layers are as transformers made them: a text alone asks for none to be packed."""
    return load_model(name, device=device, most_rows=1)
