"""The entries that queries like the observed ones can be expected to attend to.

Source: Expected Attention (Devoto, Jeblick, Jegou, arXiv 2510.00636, 2025): for queries q ~ N(mu, Sigma)
the mean of exp(c <q, k>) is exp(c <mu, k> + c^2 <k, Sigma k> / 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kernels.selection.observation import Observation
from kernels.selection.observing import ObservingPolicy
from kernels.weighted_kv import WeightedKV


@dataclass(frozen=True, slots=True)
class ExpectedAttentionPolicy(ObservingPolicy):
    """Expected share of attention times the size of the value.

    Mean and covariance are those of the observed queries. The paper turns them to the positions to come; here
    the queries at the segment's end, the nearest to those, are taken where they stand.
    """

    name: ClassVar[str] = "expected_attention"
    recent: float = 0.25
    tail: int = 128
    width: int = 1

    def attended(self, known: WeightedKV, observed: Observation) -> Tensor:
        return expected_scores(known, observed)


def expected_scores(known: WeightedKV, observed: Observation) -> Tensor:
    """Expected attention to one token of each entry times the size of its value: [*rows, C + S] float32."""
    layers = [expected_shares(observed, layer) for layer in range(known.rows[0])]
    sizes: Tensor = torch.linalg.vector_norm(known.values.float(), dim=-1)
    return torch.stack(layers) * sizes


def expected_shares(observed: Observation, layer: int) -> Tensor:
    """Expected attention of a layer's queries to one token of each entry: [kv_heads, C + S] float32, sum 1.

    The mean over the query heads that share a KV head.
    """
    keys, queries = observed.keys(layer).float().unsqueeze(1), observed.queries(layer).float()
    mean = queries.mean(-2, keepdim=True)  # [kv_heads, G, 1, d]
    spread = (queries - mean) * (queries.shape[-2] ** -0.5)
    linear = (mean @ keys.mT).squeeze(-2)  # [kv_heads, G, C + S]
    square = (spread @ keys.mT).square().sum(-2)  # <k, Sigma k> without writing Sigma
    scale = observed.scale
    shares: Tensor = (scale * linear + scale**2 / 2 * square).softmax(-1)
    return shares.mean(1)
