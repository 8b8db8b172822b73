"""SmolLM2-135M-Instruct, 30 layers and 135 million parameters: where tiny random models prove little."""

from __future__ import annotations

import math

import pytest
import torch

from kernel_worker import attention
from kernel_worker.cache import Positions, SegmentCache
from kernel_worker.engine import Engine
from kernel_worker.model import load_model
from kernel_worker.sampling import Sampling
from kernels.selection import CompressedKV, SelectionPolicy, make_policy
from tests.kernel_worker.real import needs_model

pytestmark = [needs_model, pytest.mark.model]

TEXT = (
    "The lighthouse stands on a rock two miles from the shore. Its keeper, an old man called Tobias, climbs"
    " the stairs every evening and lights the lamp. In winter the sea is so rough that no boat comes for"
    " weeks, and then he eats dried fish and reads the same three books again. "
)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(load_model("embedded", device="cpu"))


def loss(engine: Engine, state: CompressedKV, ids: list[int], positions: Positions) -> float:
    """Mean negative log-likelihood of ids[1:], given the state and what precedes each."""
    loaded = engine.loaded
    weights = state.entries.weights.log()
    cache = SegmentCache(state, weights, loaded.rotary, positions, len(ids))
    options = {attention.NAME: cache, "position_ids": torch.zeros(1, len(ids), dtype=torch.long)}
    with torch.inference_mode():
        logits = loaded.model(torch.tensor([ids]), cache=cache, use_cache=True, **options).logits[0]
    return float(torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:])))


def read(engine: Engine, policy: SelectionPolicy, ids: list[int], positions: Positions) -> CompressedKV:
    state = engine.empty_state()
    for start in range(0, len(ids), 128):
        state = policy.fold(
            state, engine.prefill(policy, state, ids[start : start + 128], positions=positions)
        )
    return state


def test_the_text_is_that_of_transformers(engine: Engine) -> None:
    loaded = engine.loaded
    policy = make_policy("exact", entries=600, seed=0)
    document = [*loaded.prompt.prefix_ids, *loaded.tokenizer.encode(TEXT)]
    prompt = loaded.prompt.instruction_ids("Who keeps the lighthouse?")
    state = read(engine, policy, document, "original")
    steps = engine.decode(
        policy, state, prompt, positions="original", sampling=Sampling(max_new_tokens=24), fold_every=10
    )
    written = [step.token for step in steps if step.token is not None]
    expected = list(document) + prompt
    loaded.model.set_attn_implementation("sdpa")
    try:
        ids = torch.tensor([expected])
        options = {"max_new_tokens": len(written), "do_sample": False}
        expected = loaded.model.generate(ids, attention_mask=torch.ones_like(ids), **options)[0].tolist()
    finally:
        loaded.model.set_attn_implementation(attention.NAME)
    assert len(written) == 24
    assert written == expected[-24:]


def test_dense_positions_keep_the_likelihood_beyond_the_window(engine: Engine) -> None:
    """The same entries, said to come from far back: with original positions they lie outside the window."""
    ids = engine.loaded.tokenizer.encode(TEXT * 4)
    policy = make_policy("exact", entries=600, seed=0)
    state = read(engine, policy, ids[:128], "dense")
    near = loss(engine, state, ids[128:256], "dense")
    far = CompressedKV(state.entries, state.seen + 60_000)
    assert loss(engine, far, ids[128:256], "dense") == near
    assert near < 1.0, "the text repeats what the state holds"
    assert loss(engine, far, ids[128:256], "original") > near + 1.0


def test_the_state_is_read_at_all(engine: Engine) -> None:
    ids = engine.loaded.tokenizer.encode(TEXT * 4)
    policy = make_policy("exact", entries=600, seed=0)
    state = read(engine, policy, ids[:128], "dense")
    with_state = loss(engine, state, ids[128:256], "dense")
    without = loss(engine, engine.empty_state(), ids[128:256], "dense")
    assert math.isfinite(without)
    assert with_state < without - 1.0
