"""The model that the settings name, on the device that they name."""

from __future__ import annotations

from pathlib import Path

import torch

from kernel_worker.errors import DeviceUnknown
from kernel_worker.model import LoadedModel, load_model
from kernel_worker.settings import WorkerSettings


def load(settings: WorkerSettings) -> LoadedModel:
    """Raises ModelError, DeviceUnknown."""
    cache_dir = None if settings.cache_dir is None else Path(settings.cache_dir)
    dtype = None if settings.dtype is None else getattr(torch, settings.dtype)
    return load_model(
        settings.model,
        device=device_of(settings.device),
        dtype=dtype,
        cache_dir=cache_dir,
        most_rows=settings.decode_rows,
    )


def device_of(name: str) -> torch.device:
    """The device of that name; "auto" is the first GPU, or the CPU. Raises DeviceUnknown."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DeviceUnknown(f"There is no device {name!r}; allowed are auto, cpu, cuda and cuda:N.") from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise DeviceUnknown(f"The device {name!r} is not supported; allowed are auto, cpu, cuda and cuda:N.")
    index = device.index or 0
    if index >= torch.cuda.device_count():
        raise DeviceUnknown(
            f"There is no device cuda:{index}: this machine has {torch.cuda.device_count()} GPUs."
        )
    return torch.device("cuda", index)
