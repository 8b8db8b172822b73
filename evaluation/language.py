"""What compression does to the model's next-token distribution, on plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from evaluation.bench import Bench, Reading
from kernel_worker.cache import Positions
from kernels.selection.policy import CompressedKV, SelectionPolicy


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Means over the tokens after the compressed part, in nats: KL to the whole model, own likelihood."""

    divergence: float
    likelihood: float


def fidelity(
    bench: Bench, policy: SelectionPolicy, ids: Sequence[int], ending: int, truth: Tensor
) -> tuple[Fidelity, Reading]:
    """Reads all ids but the last `ending`, then compares distributions of those with `truth` [ending, V]."""
    reading = bench.read(policy, ids[:-ending], positions="original")
    ours = log_probabilities(bench, policy, reading.state, ids[-ending:], "original")
    divergence = (truth.exp() * (truth - ours)).sum(-1)[:-1].mean()
    return Fidelity(float(divergence), float(-_of_next(ours, ids[-ending:]).mean())), reading


def log_probabilities(
    bench: Bench, policy: SelectionPolicy, state: CompressedKV, ids: Sequence[int], positions: Positions
) -> Tensor:
    """Log-probabilities [len(ids), V] float32 after each of the ids, which follow on the state."""
    return bench.engine.logits(policy, state, ids, positions=positions).float().log_softmax(-1)


def stream_likelihood(
    bench: Bench, policy: SelectionPolicy, ids: Sequence[int], segment: int
) -> Iterator[tuple[int, float]]:
    """Segment by segment with dense positions: tokens read before it, mean negative log-likelihood in it."""
    state = bench.engine.empty_state()
    for start in range(0, len(ids), segment):
        part = list(ids[start : start + segment])
        ours = log_probabilities(bench, policy, state, part, "dense")
        yield start, float(-_of_next(ours, part).mean())
        new = bench.engine.prefill(policy, state, part, positions="dense")
        observed = bench.engine.observe(policy, state, new, part, positions="dense")
        with torch.inference_mode():
            state = policy.fold(state, new, observed)


def _of_next(logs: Tensor, ids: Sequence[int]) -> Tensor:
    """What [S, V] log-probabilities give the token that follows each of the ids but the last: [S - 1]."""
    following = torch.tensor(ids[1:], device=logs.device).unsqueeze(-1)
    return logs[:-1].gather(-1, following).squeeze(-1)
