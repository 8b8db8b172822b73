"""The bounded cache in transformers' own `generate`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kernel_worker.express_cache import NAME, ExpressCache, ExpressLayer, register
from kernels.express import ExpressStream
from kernels.halving import kernel_halving
from kernels.reference import weighted_attention
from kernels.weighted_kv import WeightedKV, concat
from tests.kernel_worker.tiny import tiny_model

NEW = 24


def prompt(tokens: int, batch: int = 2) -> Tensor:
    return torch.randint(4, 300, (batch, tokens), generator=torch.Generator().manual_seed(1))


def express_model(family: str = "llama") -> Any:
    register()
    model = tiny_model(family)
    model.set_attn_implementation(NAME)
    return model


def text(model: Any, ids: Tensor, cache: ExpressCache | None = None, **more: Any) -> Tensor:
    """What greedy `generate` writes, [B, NEW]."""
    out: Tensor = model.generate(
        ids, cache=cache, do_sample=False, max_new_tokens=NEW, min_new_tokens=NEW, **more
    )
    return out[:, ids.shape[1] :]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_same_text_as_without_it_while_all_entries_have_room(family: str) -> None:
    model, ids = express_model(family), prompt(80)
    written = text(model, ids, ExpressCache(model.config, entries=128, segment=32))
    assert torch.equal(written, text(tiny_model(family), ids))


def test_a_prompt_that_follows_on_another() -> None:
    model, ids = express_model(), prompt(60)
    cache = ExpressCache(model.config, entries=128)
    with torch.inference_mode():
        model(ids[:, :40], cache=cache)
        logits = model(ids[:, 40:], cache=cache).logits
        expected = tiny_model()(ids).logits[:, 40:]
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("beams", [1, 3])
def test_entries_stay_few_and_stand_for_every_token(beams: int) -> None:
    model, ids = express_model(), prompt(150)
    cache = ExpressCache(model.config, entries=48, segment=32, seed=7)
    written = text(model, ids, cache, num_beams=beams)
    assert torch.equal(
        written, text(model, ids, ExpressCache(model.config, entries=48, segment=32, seed=7), num_beams=beams)
    )
    assert cache.get_seq_length() == 150 + NEW - 1
    for layer in cache.layers:
        assert len(layer.held) <= 48
        assert bool((layer.held.weights.sum(-1) == 150 + NEW - 1).all())


def test_a_layer_attends_to_the_stream_and_the_tokens_after_it() -> None:
    """Against the specification, for calls of several sizes: entries, weights and what a fold leaves."""
    random = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(2, heads, 260, 8, generator=random) for heads in (4, 2, 2))
    layer, tokens = ExpressLayer(entries=40, segment=32, seed=5), WeightedKV.exact(k, v)
    stream, start, folds = ExpressStream(layer.schedule, kernel_halving, 5), 0, set()
    for count in (130, 1, 7, 1, 30, 1, 1, 40, *[1] * 49):
        part, before = slice(start, start + count), layer.streamed
        keys, values = layer.update(k[:, :, part], v[:, :, part])
        out = layer.attend(q[:, :, part], keys, values, None)
        if start:
            held = stream.push(tokens.slice(0, 0), 0, tokens.slice(0, before))
            seen = concat([held, tokens.slice(before, start + count)])
            expected, _ = weighted_attention(
                q[:, :, part].double(),
                seen.keys.double(),
                seen.values.double(),
                seen.weights.double().log(),
                causal_from=len(seen) - count,
            )
            torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)
        start += count
        folds.add(layer.streamed)
        assert layer.held is not None
        assert len(layer.held) <= 40
    assert len(folds) >= 5
    assert layer.get_seq_length() == start


def test_beams_take_their_entries_along() -> None:
    layer = ExpressLayer(entries=40, segment=32, seed=5)
    k, v = (torch.randn(2, 2, 20, 8, generator=torch.Generator().manual_seed(n)) for n in (0, 1))
    layer.attend(torch.zeros(2, 2, 20, 8), *layer.update(k, v), None)
    layer.reorder_cache(torch.tensor([1, 1]))
    assert layer.held is not None
    assert torch.equal(layer.held.keys, k[[1, 1]])
    assert torch.equal(layer.held.values, v[[1, 1]])


def test_compression_is_seen_by_the_model() -> None:
    """Few entries change what comes out: the bounded cache is what the model reads."""
    model, ids = express_model(), prompt(200)
    few, many = (text(model, ids, ExpressCache(model.config, entries=n, segment=16)) for n in (16, 256))
    assert not torch.equal(few, many)


def test_refusals() -> None:
    model, ids = express_model(), prompt(20)
    with pytest.raises(ValueError, match="attention is 'sdpa'; allowed is 'express'"):
        ExpressCache(tiny_model().config, entries=64)
    with pytest.raises(ValueError, match="entries is 7; allowed is an even number"):
        ExpressCache(model.config, entries=7)
    with pytest.raises(ValueError, match="needs cache=ExpressCache"):
        text(model, ids)
    mask = torch.ones_like(ids)
    mask[0, 0] = 0
    with pytest.raises(ValueError, match="attention_mask has zeros"):
        text(model, ids, ExpressCache(model.config, entries=64), attention_mask=mask)
    cache = ExpressCache(model.config, entries=64)
    model.set_attn_implementation("sdpa")
    with pytest.raises(ValueError, match="does not attend by 'express'"):
        text(model, ids, cache)
