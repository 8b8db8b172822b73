"""Where the check runs: the device, the time that is left, how long something takes, and what is the peak."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import triton

from kernels.triton.launches import launches
from kernels.triton.resource_table import compile_all
from kernels.triton.tiles import family


@dataclass(frozen=True)
class Machine:
    """The device, whether it is a GPU, and when (time.monotonic) the check should be over."""

    device: torch.device
    deadline: float
    started: float = field(default_factory=time.monotonic)

    @property
    def gpu(self) -> bool:
        return self.device.type == "cuda"

    @property
    def left(self) -> float:
        """Seconds."""
        return self.deadline - time.monotonic()

    def describe(self) -> dict[str, object]:
        """Names and versions."""
        about: dict[str, object] = {
            "torch": torch.__version__,
            "triton": triton.__version__,
            "python": platform.python_version(),
            "interpreter": not self.gpu,
        }
        if self.gpu:
            properties = torch.cuda.get_device_properties(self.device)
            about |= {
                "device": properties.name,
                "capability": f"{properties.major}.{properties.minor}",
                "multiprocessors": properties.multi_processor_count,
                "memory_bytes": properties.total_memory,
                "cuda": torch.version.cuda,
            }
        return about

    def seconds(self, work: Callable[[], object], rounds: int = 5) -> float:
        """Median time of a call by events, after one that does not count; without a GPU, time of one call."""
        if not self.gpu:
            return self._once(work)
        work()
        return statistics.median(self._once(work) for _ in range(rounds))

    def _once(self, work: Callable[[], object]) -> float:
        if not self.gpu:
            start = time.perf_counter()
            work()
            return time.perf_counter() - start
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end)) / 1000.0


def fill_cache(machine: Machine) -> dict[str, object]:
    """Compiles every launch into Triton's cache on all processors, so that no measurement waits for it."""
    start = time.monotonic()
    names = [launch.name for launch in launches() if launch.family == family(machine.device)]
    major, minor = torch.cuda.get_device_capability(machine.device)
    compile_all(names, 10 * major + minor)
    return {"launches": len(names), "seconds": time.monotonic() - start}


def peaks(machine: Machine) -> dict[str, float]:
    """What the device reaches, measured: bf16 products in FLOP/s, copies in bytes/s (read and written)."""
    n, size = (8192, 1 << 30) if machine.gpu else (256, 1 << 20)
    a, b = (torch.randn(n, n, device=machine.device, dtype=torch.bfloat16) for _ in range(2))
    source = torch.empty(size, dtype=torch.int8, device=machine.device)
    target = torch.empty_like(source)
    return {
        "bf16_flops": 2 * n**3 / machine.seconds(lambda: a @ b, 10),
        "copy_bytes": 2 * size / machine.seconds(lambda: target.copy_(source), 10),
    }
