"""The bounded cache in transformers' own `generate`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from kernel_worker.express_cache import NAME, ExpressCache, register
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
