"""Is the device alive? A small kernel says so, again and again, and its answer is checked."""

from __future__ import annotations

import logging
import threading
import time

import torch

from kernel_worker.engine import Engine
from kernel_worker.sampling import Sampling
from kernels.attention import segment_attention
from kernels.selection import make_policy

log = logging.getLogger(__name__)

PROBE_SECONDS = 2.0
STALE_SECONDS = (
    60.0  # a probe may have to wait for a long kernel before it; longer means that the device hangs
)


def warm_up(engine: Engine) -> None:
    """Two small segments, folded, and two tokens: compiles and loads what the first call would wait for.

    Raises whatever the model or the device raises.
    """
    loaded = engine.loaded
    tokens = min(1024, loaded.window // 4) if loaded.device.type == "cuda" else 8
    policy = make_policy("express", entries=max(128, tokens), seed=0)
    ids = [index % 8 for index in range(tokens)]
    state = engine.empty_state()
    for _ in range(2):
        segment = engine.prefill(policy, state, ids, positions="original")
        state = policy.fold(state, segment)
    sampling = Sampling(max_new_tokens=2)
    for _ in engine.decode(policy, state, ids[:4], positions="original", sampling=sampling):
        pass


def probe(device: torch.device) -> None:
    """Runs attention on the device with a known answer. Raises RuntimeError for a wrong one."""
    zeros = torch.zeros(1, 1, 1, 16, device=device)
    past, own = torch.full_like(zeros, 2.0), torch.full_like(zeros, -2.0)
    weights = torch.full((1, 1, 1), 3.0, device=device).log()
    with torch.inference_mode():
        out, _ = segment_attention(zeros, zeros, past, weights, zeros, own)
    if not torch.allclose(out.float(), torch.ones_like(zeros), atol=1e-2):  # (3 * 2 + 1 * -2) / 4
        raise RuntimeError(f"attention on {device} gave a wrong result")


class Readiness:
    """Probes the device on a thread of its own; `ready` is false after a failed or overdue probe."""

    def __init__(
        self, device: torch.device, *, every: float = PROBE_SECONDS, stale: float = STALE_SECONDS
    ) -> None:
        self._device, self._every, self._stale = device, every, stale
        self._passed_at = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="readiness", daemon=True)

    @property
    def ready(self) -> bool:
        return time.monotonic() - self._passed_at < self._stale

    def start(self) -> None:
        """Probes once, raising what that raises, then goes on in the background."""
        self._probe()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._probe()
            except Exception as error:  # whatever it is, this device does not compute
                if self.ready:
                    log.error("The device failed its probe and takes no more work: %s", error)
                self._passed_at = float("-inf")

    def _probe(self) -> None:
        probe(self._device)
        self._passed_at = time.monotonic()
