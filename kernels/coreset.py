"""Few weighted entries for many tokens, and attention over them: Express on its own, without a model."""

from __future__ import annotations

from torch import Tensor

from kernels.attention import attend, check
from kernels.causal import Past
from kernels.inputs import check_finite, check_weights
from kernels.weighted_kv import WeightedKV


def express_coreset(
    k: Tensor, v: Tensor, *, entries: int, seed: int = 0, scale: float | None = None
) -> WeightedKV:
    """What `express_attention` keeps of N tokens: [B, Hkv, C], C <= entries; the weights of a row sum to N.

    k  [B, Hkv, N, d]
    v  [B, Hkv, N, d_v]

    The other arguments, and ValueError, as of `express_attention`. The last tokens are exact.
    """
    check(k, k, v, names=("k", "v", ""))
    for name, tensor in (("k", k), ("v", v)):
        check_finite(name, tensor, dtype=k.dtype)
    return Past.of(k, v, entries=entries, seed=seed, scale=scale).before(k.shape[2])


def coreset_attention(q: Tensor, coreset: WeightedKV, *, scale: float | None = None) -> Tensor:
    """Attention of queries that come after all tokens of a coreset: every query sees every entry.

    q  [B, Hq, S, d], Hq a multiple of the coreset's Hkv

    Returns [B, Hq, S, d_v] in q's dtype. ValueError for shapes that do not fit, dtypes that differ, NaN or
    infinite numbers, and weights that are not greater than zero.
    """
    check(q, coreset.keys, coreset.values, coreset.weights, names=("keys", "values", "weights"))
    for name, tensor in (("q", q), ("keys", coreset.keys), ("values", coreset.values)):
        check_finite(name, tensor, dtype=q.dtype)
    check_weights(coreset.weights)
    return attend(q, coreset.keys, coreset.values, log_weights=coreset.weights.log(), scale=scale)[0]
