"""Streams of known statistics, and how far attention over a coreset is from attention over all of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.attention import attend
from kernels.halving import Halving
from kernels.seeds import derive, uniforms
from kernels.weighted_kv import WeightedKV

LOGIT_DEVIATION = 0.75
QUERIES = 64


@dataclass(frozen=True, slots=True)
class Problem:
    """Tokens of weight 1 in rows [R], fresh queries [R, Q, d], and the exact attention of these."""

    tokens: WeightedKV
    queries: Tensor
    exact: Tensor

    def error(self, coreset: WeightedKV) -> float:
        """Median over rows of the mean |out - exact| over queries, in units of the values' rms norm."""
        out = _attention(self.queries, coreset)
        size = self.tokens.values.square().sum(-1).mean(-1).sqrt()
        return float(((out - self.exact).norm(dim=-1).mean(-1) / size).median())


def low_rank(rows: int, tokens: int, seed: int, d: int = 64, rank: int = 4) -> Problem:
    """Keys and values in random subspaces of `rank` dimensions, another in each row."""
    random = torch.Generator().manual_seed(seed)
    of_keys, of_values = (torch.linalg.qr(torch.randn(rows, d, rank, generator=random)).Q for _ in range(2))
    keys, values, queries = (
        torch.randn(rows, count, rank, generator=random) @ basis.mT
        for count, basis in ((tokens, of_keys), (tokens, of_values), (QUERIES, of_keys))
    )
    return _problem(keys, values, queries)


def isotropic(rows: int, tokens: int, seed: int, d: int = 64) -> Problem:
    """Keys, values and queries independent and normal in all dimensions: no thinning can do much."""
    random = torch.Generator().manual_seed(seed)
    keys, values, queries = (torch.randn(rows, n, d, generator=random) for n in (tokens, tokens, QUERIES))
    return _problem(keys, values, queries)


def _problem(keys: Tensor, values: Tensor, queries: Tensor) -> Problem:
    """Scales keys and queries alike, so that the logits have LOGIT_DEVIATION."""
    logits = queries @ keys[:, :512].mT / keys.shape[-1] ** 0.5
    factor = (LOGIT_DEVIATION / logits.std(dim=(1, 2), keepdim=True)).sqrt()
    keys, queries = keys * factor, queries * factor
    tokens = WeightedKV.exact(keys, values)
    return Problem(tokens, queries, _attention(queries, tokens))


def _attention(queries: Tensor, entries: WeightedKV) -> Tensor:
    """[R, Q, d] in float64: every row is one batch item with one head."""
    one = (x.unsqueeze(1).double() for x in (queries, entries.keys, entries.values))
    return attend(*one, log_weights=entries.weights.log().unsqueeze(1))[0].squeeze(1)


def halved(tokens: WeightedKV, size: int, halving: Halving, seed: int, bucket: int = 4) -> WeightedKV:
    """`size` points left of rows [R], by halving buckets of `bucket` times the size as long as it takes."""
    level = 0
    while len(tokens) > size:
        points = min(bucket * size, len(tokens))
        rows, count = tokens.rows[0], len(tokens) // points
        randoms = uniforms(
            derive(seed, level),
            torch.arange(rows).view(rows, 1, 1),
            torch.arange(count).view(count, 1),
            torch.arange(points // 2 + 1),
        )
        keys, values = (x.reshape(rows, count, points, -1) for x in (tokens.keys, tokens.values))
        offsets = torch.arange(0, len(tokens), points).view(count, 1)
        tokens = tokens.gather((halving(keys, values, randoms) + offsets).flatten(1)).scaled(2.0)
        level += 1
    return tokens
