"""Kernel halving: of every two neighbouring points one is kept, so that kernel sums change little.

    kappa(x, x') = exp(c <k, k'>) (<v, v'> + b^2),    b the largest absolute coordinate of the bucket's values

Source: "Low-Rank Thinning" (Carrell et al., arXiv 2502.12063, 2025). `halving_reference` spells it out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import torch
from torch import Tensor

from kernels.dispatch import backend, taken
from kernels.halving_reference import check_halving, kernel_halving_reference
from kernels.triton.support import unsupported

Rule = Literal["greedy", "threshold"]
HALVINGS = ("greedy", "threshold", "uniform")
"""Names that `named_halving` knows."""

# A signed sum below this share of the sum of its absolute terms is a tie: rounding would decide it, and
# differently for other batch sizes. Equal tokens make exact ties common where keys do not know their context.
_TIE = 1e-11
_WORK_BYTES = 1 << 27  # of the points of the rows that are walked together
_BLOCK_BYTES = 1 << 21  # of the kernel values of a few rows: small enough to stay in a CPU's cache


class Halving(Protocol):
    """Which half of every bucket stays."""

    def __call__(self, keys: Tensor, values: Tensor, randoms: Tensor) -> Tensor:
        """Indices of the P kept points of each bucket, ascending, one of each pair (2i, 2i + 1).

        keys     [*rows, 2P, d]    rows are independent buckets
        values   [*rows, 2P, d_v]
        randoms  [*rows, P + 1]    float64 in [0, 1): one number for the bucket, then one for each pair

        Returns [*rows, P] int64. A pure function; the same whatever other rows are in the call.
        """
        ...


def uniform_halving(keys: Tensor, values: Tensor, randoms: Tensor) -> Tensor:
    """One point of each pair by a fair coin, whatever the points are: `Halving` without a kernel."""
    check_halving(keys, values, randoms)
    pairs = torch.arange(0, keys.shape[-2], 2, device=keys.device)
    return pairs + (randoms[..., 1:] < 0.5).to(torch.int64)


def named_halving(name: str, *, centred: bool = True) -> Halving:
    """The halving function of one of the names HALVINGS; ValueError for any other."""
    if name not in HALVINGS:
        raise ValueError(f"halving is {name!r}; allowed are {', '.join(HALVINGS)}")
    if name == "uniform":
        return uniform_halving
    rule: Rule = "greedy" if name == "greedy" else "threshold"
    return partial(kernel_halving, rule=rule, centred=centred)


def kernel_halving(
    keys: Tensor,
    values: Tensor,
    randoms: Tensor,
    *,
    scale: float | None = None,
    rule: Rule = "greedy",
    delta: float = 0.5,
    multiplier: float = 1.0,
    centred: bool = True,
    tile: int = 64,
) -> Tensor:
    """`Halving` by the signed kernel sum psi of the pairs already decided; arguments as there, and

    scale       c in the kernel, 1/sqrt(d) by default
    rule        "greedy" takes the sign against alpha = <psi, f>; "threshold" is the paper's: that sign with
                probability clip((1 + |alpha| / a) / 2), a = multiplier (1/2 + log(2S / delta)) |f| max |f_j|
    centred     subtract the bucket's mean key first, which changes no attention output
    tile        pairs decided between two passes over the prefix

    In each bucket the complement is kept instead where randoms[..., 0] < 1/2, which makes every point equally
    likely to stay. Computes in float64 on torch, so that decisions do not depend on the batch; memory is
    O(rows S d) and a work area of some MiB. ValueError for arguments outside what is allowed.
    """
    check_halving(keys, values, randoms, rule=rule, delta=delta, multiplier=multiplier)
    if tile < 1:
        raise ValueError(f"tile is {tile}; allowed is 1 or more")
    chosen = backend(keys.device)
    if chosen == "triton" and taken(unsupported(keys, values, scale=scale)):
        from kernels.triton.halving import kernel_halving as triton_halving

        return triton_halving(
            keys, values, randoms, scale=scale, rule=rule, delta=delta, multiplier=multiplier, centred=centred
        )
    if chosen == "reference":
        return kernel_halving_reference(
            keys, values, randoms, scale=scale, rule=rule, delta=delta, multiplier=multiplier, centred=centred
        )
    points, d = keys.shape[-2:]
    factor = d**-0.5 if scale is None else scale
    bound = multiplier * (0.5 + math.log(2 * points / delta)) if rule == "threshold" else 0.0
    flat_keys, flat_values = keys.reshape(-1, points, d), values.reshape(-1, points, values.shape[-1])
    flat_randoms = randoms.reshape(-1, points // 2 + 1)
    rows = max(1, _WORK_BYTES // (8 * points * (d + 2 * values.shape[-1])))
    signs = []
    for start in range(0, flat_keys.shape[0], rows):
        block = (flat[start : start + rows] for flat in (flat_keys, flat_values, flat_randoms))
        signs.append(_signs(*block, scale=factor, bound=bound, centred=centred, tile=tile))
    second = (torch.cat(signs) < 0) ^ (flat_randoms[:, :1] < 0.5)
    kept = torch.arange(0, points, 2, device=keys.device) + second.to(torch.int64)
    return kept.view(*keys.shape[:-2], points // 2)


def _signs(
    keys: Tensor, values: Tensor, randoms: Tensor, *, scale: float, bound: float, centred: bool, tile: int
) -> Tensor:
    """e_i of every pair, +1 or -1: [N, P] from keys [N, S, d], values [N, S, d_v], randoms [N, P + 1]."""
    buckets = _Buckets.of(keys, values, scale=scale, centred=centred)
    rows, points = keys.shape[:2]
    signs = buckets.keys.new_empty(rows, points // 2)
    norm_max = buckets.keys.new_zeros(rows, 1)
    for start in range(0, points, 2 * tile):
        stop = min(start + 2 * tile, points)
        pairs = slice(start // 2, stop // 2)
        # Products a few rows at a time, which a CPU's cache holds; the walk, all small steps, for all rows.
        few = max(1, _BLOCK_BYTES // (8 * (stop - start) * stop))
        alpha, differences, limit, norms = (
            torch.cat(parts)
            for parts in zip(
                *(buckets.tile(slice(row, row + few), start, stop, scale) for row in range(0, rows, few)),
                strict=True,
            )
        )
        if bound:
            norms_max = torch.cat([norm_max, norms], dim=1).cummax(dim=1).values[:, 1:]
            norm_max = norms_max[:, -1:]
            # e_i = -1 with probability clip((1 + alpha / a) / 2), that is where alpha > a (2u - 1).
            limit = limit + bound * norms * norms_max * (2 * randoms[:, 1:][:, pairs] - 1)
        signs[:, pairs] = _walk(alpha, differences, limit)
        if stop < points:
            both = torch.stack([signs[:, pairs], -signs[:, pairs]], -1).view(rows, -1, 1)
            buckets.signed[:, start:stop, :-1] *= both
    return signs


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Rows of points in float64, [N, S, ...]."""

    keys: Tensor
    weighed: Tensor  # (v, b, |(v, b)|) of every point
    signed: Tensor  # the same, times s_p where decided; the norm unsigned
    shift: Tensor  # [N, 1, 1]

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, *, scale: float, centred: bool) -> _Buckets:
        d_v = values.shape[-1]
        keys = keys.to(torch.float64, copy=True)
        if centred:
            keys -= keys.mean(dim=1, keepdim=True)
        # By Cauchy and Schwarz no <k, k'> exceeds the largest <k, k>: minus that, no exponential overflows.
        shift = torch.linalg.vector_norm(keys, dim=-1).amax(-1).square().mul(-scale).view(-1, 1, 1)
        weighed = keys.new_empty(*keys.shape[:2], d_v + 2)
        weighed[..., :d_v] = values
        weighed[..., d_v] = torch.maximum(values.amax((1, 2)), -values.amin((1, 2))).unsqueeze(-1)
        torch.linalg.vector_norm(weighed[..., : d_v + 1], dim=-1, out=weighed[..., d_v + 1])
        return cls(keys, weighed, weighed.clone(), shift)

    def tile(self, rows: slice, start: int, stop: int, scale: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What the pairs of points start..stop are decided by, those before `start` being decided.

        Returns alpha over the decided ones [n, T], <f_i, f_j> for j < i [n, T, T], the size below which alpha
        is a tie [n, T], and |f_i| [n, T].
        """
        keys, own, shift = self.keys[rows, start:stop], self.weighed[rows, start:stop, :-1], self.shift[rows]
        sizes = self.weighed[rows, start:stop, -1]
        gram = _exponentials(keys, keys, scale, shift)
        g, size = own.new_zeros(2, *sizes.shape)
        if start:
            sums = _exponentials(keys, self.keys[rows, :start], scale, shift) @ self.signed[rows, :start]
            g, size = (sums[..., :-1] * own).sum(-1), sums[..., -1]  # [n, 2T]
        norms = _norms(gram, own)
        gram.tril_(-1).diagonal(-1, 1, 2)[:, ::2] = 0.0  # of each point the earlier pairs alone
        size = _of_pairs((size + (gram @ sizes.unsqueeze(-1)).squeeze(-1)) * sizes, 1.0)
        return _of_pairs(g, -1.0), _difference_gram(gram.mul_(own @ own.mT)), _TIE * size, norms


def _exponentials(a: Tensor, b: Tensor, scale: float, shift: Tensor) -> Tensor:
    """exp(scale <a_i, b_j> + shift): [N, A, B]."""
    return torch.baddbmm(shift.expand(-1, a.shape[1], b.shape[1]), a, b.mT, alpha=scale).exp_()


def _norms(gram: Tensor, own: Tensor) -> Tensor:
    """|f_i| of a tile's pairs, [N, T], from its exponentials [N, 2T, 2T] and (v, b) [N, 2T, d_v + 1]."""
    squares = _of_pairs(gram.diagonal(dim1=1, dim2=2) * own.square().sum(-1), 1.0)
    across = gram.diagonal(-1, 1, 2)[:, ::2] * (own[:, 0::2] * own[:, 1::2]).sum(-1)
    return (squares - 2 * across).clamp_min(0.0).sqrt()


def _of_pairs(numbers: Tensor, sign: float) -> Tensor:
    """First of each pair plus `sign` times the second: [N, 2T] to [N, T]."""
    return torch.add(numbers[:, 0::2], numbers[:, 1::2], alpha=sign)


def _difference_gram(kernel: Tensor) -> Tensor:
    """<f_i, f_j> of pairs j < i: [N, 2T, 2T] to [N, T, T]."""
    rows = kernel[:, 0::2] - kernel[:, 1::2]
    return rows[..., 0::2] - rows[..., 1::2]


def _walk(alpha: Tensor, differences: Tensor, limit: Tensor) -> Tensor:
    """The signs of a tile in order, each pair seeing those before it: [N, T]."""
    alpha, limit = alpha.T.contiguous(), limit.T.contiguous()  # rows of pairs: every step is contiguous
    gram = differences.permute(1, 2, 0).contiguous()  # [T, T, N]
    signs = torch.ones_like(alpha)
    for i in range(alpha.shape[0]):
        signs[i].masked_fill_(alpha[i] > limit[i], -1.0)
        alpha[i + 1 :].addcmul_(gram[i + 1 :, i], signs[i])
    return signs.T
