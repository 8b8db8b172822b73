"""A cache for transformers' own `generate` that stays bounded: Express in any model, without our services.

    register()
    model.set_attn_implementation(NAME)
    model.generate(ids, cache=ExpressCache(model.config, entries=1024))

Keys come as the model has rotated them, at their true positions: within the window that a model was trained
for. Beyond it the engine of this package gives entries dense positions; `generate` does not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, Cache, PretrainedConfig
from transformers.cache_utils import CacheLayerMixin

from kernels.attention import segment_attention
from kernels.causal import Past, schedule_for
from kernels.decode import MOST_QUERIES, decode_attention
from kernels.express import ExpressStream
from kernels.halving import kernel_halving
from kernels.inputs import check_seed
from kernels.seeds import derive
from kernels.weighted_kv import WeightedKV, concat

NAME = "express"
"""The key in transformers' table of attention functions."""

_ROOM = 64  # places that a fold makes at once, so that not every token of a text needs one


class ExpressCache(Cache):  # type: ignore[misc]
    """At most `entries` weighted entries for each layer and KV head, whatever is read and written.

    The first prompt is read in segments as `kernels.express_attention` does. A later one, in a chat, attends
    to the entries and exactly to itself. All sequences of a batch must be equally long: padding is refused.
    """

    def __init__(self, config: PretrainedConfig, *, entries: int, segment: int = 1024, seed: int = 0) -> None:
        """Arguments as of `kernels.express_attention`; ValueError where they, or the model, do not suit."""
        text = config.get_text_config()
        if text._attn_implementation != NAME:
            raise ValueError(
                f"the model's attention is {text._attn_implementation!r}; allowed is {NAME!r}:"
                f" call register() and model.set_attn_implementation({NAME!r})"
            )
        if segment < 1:
            raise ValueError(f"segment is {segment}; allowed is 1 or more")
        check_seed(seed)
        schedule_for(entries)
        layers = range(text.num_hidden_layers)
        super().__init__(layers=[ExpressLayer(entries, segment, derive(seed, n) >> 1) for n in layers])


class ExpressLayer(CacheLayerMixin):  # type: ignore[misc]
    """One layer's entries: [B, kv_heads, C], points of the stream first, then the last tokens exactly."""

    is_sliding = False

    def __init__(self, entries: int, segment: int, seed: int) -> None:
        super().__init__()
        self.entries, self.segment, self.seed = entries, segment, seed
        self.schedule = schedule_for(entries)
        self.held: WeightedKV | None = None
        self.streamed = 0  # tokens that the stream has taken
        self.tokens = 0
        self._attended = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to reserve."""

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Hands keys and values [B, kv_heads, S, d] on; `attention` finds this layer at the keys."""
        if self._attended != self.tokens:
            raise ValueError(f"the model does not attend by {NAME!r}; call model.set_attn_implementation")
        self.tokens += key_states.shape[2]
        key_states.express_layer = self  # type: ignore[attr-defined]
        return key_states, value_states

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        """q [B, Hq, S, d] -> [B, Hq, S, d_v], causally and after all tokens before; keeps k and v."""
        new = WeightedKV.exact(k, v, self._attended)
        self._attended += len(new)
        if self.held is None:
            past = Past.of(k, v, entries=self.entries, seed=self.seed, scale=scale)
            self.streamed = self.schedule.streamed(len(new), self.entries)
            self.held = past.before(len(new))
            return past.attend(q, segment=self.segment, scale=scale)
        known = concat([self.held, new])
        self.held = self._fold(known, scale)
        if len(new) <= MOST_QUERIES:
            return decode_attention(q, known.keys, known.values, known.weights.log(), scale=scale)[0]
        old = known.slice(0, len(known) - len(new))
        return segment_attention(q, old.keys, old.values, old.weights.log(), k, v, scale=scale)[0]

    def _fold(self, known: WeightedKV, scale: float | None) -> WeightedKV:
        """`known`, or where that is too many, few enough for some tokens more."""
        if len(known) <= self.entries:
            return known
        points = self.schedule.size(self.streamed)
        least = self.schedule.streamed(self._attended, self.entries)
        ahead = self.schedule.streamed(self._attended + min(_ROOM, self.entries // 4), self.entries)
        moving = max(least, min(ahead, self._attended)) - self.streamed
        stream = ExpressStream(self.schedule, partial(kernel_halving, scale=scale), self.seed)
        held = stream.push(known.slice(0, points), self.streamed, known.slice(points, points + moving))
        self.streamed += moving
        return concat([held, known.slice(points + moving, len(known))])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.tokens + query_length, 0

    def get_seq_length(self) -> int:
        """Tokens read and written."""
        return self.tokens

    def get_max_length(self) -> int:
        return -1

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.held is not None:
            rows = [x.index_select(0, beam_idx.to(x.device)) for x in self.held.tensors()]
            self.held = WeightedKV(*rows)


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **_ignored: Any,
) -> tuple[Tensor, None]:
    """query [B, Hq, S, d], key and value [B, Hkv, S, d] -> [B, S, Hq, d_v]."""
    layer: ExpressLayer | None = getattr(key, "express_layer", None)
    if layer is None:
        raise ValueError(f"attention {NAME!r} needs cache=ExpressCache(model.config, entries=...)")
    out = layer.attend(query, key, value, scaling)
    return out.transpose(1, 2).contiguous(), None


def refuse_padding(*_: Any, attention_mask: Tensor | None = None, **__: Any) -> None:
    """In place of a mask, which causal attention in segments does not need."""
    if attention_mask is not None and not attention_mask.all():
        raise ValueError("attention_mask has zeros; allowed are batches of equally long texts, unpadded")


def register() -> None:
    """Makes "express" known to transformers. A model that does not ask for it by name sees no change."""
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, refuse_padding)
