"""Causal attention of a long input in time that grows with its length, not with the square of it.

The input is cut into segments. A segment's queries attend exactly and causally to their own segment, and to
at most `entries` weighted entries for everything before it: the last tokens exactly, an Express coreset of
the others. Source: "Express Language Modeling" (Gong, Carrell, Dwivedi, Mackey, arXiv 2606.10944, 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from kernels.attention import check, segment_attention
from kernels.express import ExpressStream, History
from kernels.halving import kernel_halving
from kernels.inputs import check_entries, check_finite, check_seed
from kernels.schedule import Schedule
from kernels.weighted_kv import WeightedKV, concat


def express_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    entries: int,
    segment: int = 1024,
    seed: int = 0,
    scale: float | None = None,
) -> Tensor:
    """Causal attention with a bounded memory of the past, in place of `scaled_dot_product_attention`.

    q        [B, Hq, N, d]     Hq a multiple of Hkv: grouped-query attention where they differ
    k        [B, Hkv, N, d]
    v        [B, Hkv, N, d_v]
    entries  most entries that stand for the tokens before a segment, even; the error falls as they grow
    segment  tokens that attend to each other exactly
    seed     decides every coin, 0 to 2^63 - 1: the same arguments give the same output
    scale    1/sqrt(d) by default

    Returns [B, Hq, N, d_v] in q's dtype. Exact as long as N is at most `segment` + `entries`. Time
    O(N (entries + segment)) and memory O(N) beside the arguments. Not made for gradients. ValueError for
    arguments outside what is allowed, NaN and infinities included.
    """
    _check(q, k, v, segment)
    past = Past.of(k.detach(), v.detach(), entries=entries, seed=seed, scale=scale)
    return past.attend(q, segment=segment, scale=scale)


@dataclass(frozen=True, slots=True)
class Past:
    """At most `entries` entries for any number of the first tokens of an input, all of which are known."""

    tokens: WeightedKV
    entries: int
    history: History

    @classmethod
    def of(
        cls, keys: Tensor, values: Tensor, *, entries: int, seed: int = 0, scale: float | None = None
    ) -> Past:
        """Compresses keys [*rows, N, d] and values [*rows, N, d_v], all lengths in one pass.

        scale is that of the attention: the kernel of halving uses it too. ValueError as `express_attention`.
        """
        schedule = schedule_for(entries)
        check_seed(seed)
        tokens = WeightedKV.exact(keys, values)
        stream = ExpressStream(schedule, partial(kernel_halving, scale=scale), seed)
        most = schedule.streamed(len(tokens), entries)
        return cls(tokens, entries, stream.history(tokens.slice(0, most)))

    def before(self, tokens: int) -> WeightedKV:
        """What stands for the first `tokens`: [*rows, C], C <= entries, in their order."""
        streamed = self.history.stream.schedule.streamed(tokens, self.entries)
        recent = self.tokens.slice(streamed, tokens)
        return concat([self.history.held(streamed), recent]) if streamed else recent

    def attend(self, q: Tensor, *, segment: int, scale: float | None = None) -> Tensor:
        """`express_attention` of q [B, Hq, N, d]; the tokens' rows are (B, Hkv)."""
        keys, values = self.tokens.keys, self.tokens.values
        out = q.new_empty((*q.shape[:3], values.shape[-1]))
        for start in range(0, q.shape[2], segment):
            part, prefix = slice(start, start + segment), self.before(start)
            out[:, :, part] = segment_attention(
                q[:, :, part],
                prefix.keys,
                prefix.values,
                prefix.weights.log(),
                keys[:, :, part],
                values[:, :, part],
                scale=scale,
            )[0]
        return out


def schedule_for(entries: int) -> Schedule:
    """The stream that `entries` have room for; ValueError where they have none, or are odd."""
    schedule = Schedule.fitting(0)
    check_entries(entries, schedule.bound)
    return Schedule.fitting(entries)


def _check(q: Tensor, k: Tensor, v: Tensor, segment: int) -> None:
    check(q, k, v, names=("k", "v", ""))
    if k.shape[2] != q.shape[2]:
        raise ValueError(f"k has {k.shape[2]} tokens; q has {q.shape[2]}, and causal attention needs as many")
    if segment < 1:
        raise ValueError(f"segment is {segment}; allowed is 1 or more")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_finite(name, tensor, dtype=q.dtype)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v)):
        raise ValueError("q, k or v requires a gradient; allowed is a call under torch.no_grad()")
