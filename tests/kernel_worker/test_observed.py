"""What a policy observes is what the model attends to, according to transformers' own code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from kernel_worker.cache import Positions
from kernel_worker.engine import Engine
from kernel_worker.errors import WindowExceeded
from kernel_worker.sampling import Sampling
from kernels.selection import CompressedKV, SelectionPolicy, make_policy
from kernels.selection.kvzip import REQUEST
from kernels.selection.observation import Observation
from tests.kernel_worker.tiny import WINDOW, tiny_loaded, tiny_model

DOCUMENT = [(17 * i * i + 5 * i) % 250 + 3 for i in range(50)]
FIRST = 30
QUESTION = "What is it?"


def policy_of(kind: str) -> SelectionPolicy:
    parameters = {"question": {"question": QUESTION}, "tail": {"tail": "6"}, "repeat": {}}[kind]
    name = "kvzip" if kind == "repeat" else "snapkv"
    return make_policy(name, entries=100, seed=0, parameters=parameters)


def observed(engine: Engine, policy: SelectionPolicy, positions: Positions) -> Observation:
    """After the second segment; everything is still kept."""
    state = engine.empty_state()
    first = engine.prefill(policy, state, DOCUMENT[:FIRST], positions=positions)
    seen = engine.observe(policy, state, first, DOCUMENT[:FIRST], positions=positions)
    state = policy.fold(state, first, seen)
    second = engine.prefill(policy, state, DOCUMENT[FIRST:], positions=positions)
    result = engine.observe(policy, state, second, DOCUMENT[FIRST:], positions=positions)
    assert result is not None
    return result


def attentions(ids: list[int], **changes: Any) -> tuple[Tensor, ...]:
    """[1, heads, tokens, tokens] of each layer, by transformers."""
    model = tiny_model(**changes)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        return tuple(model(torch.tensor([ids]), output_attentions=True).attentions)


@pytest.mark.parametrize("positions", ["original", "dense"])
@pytest.mark.parametrize("kind", ["question", "tail", "repeat"])
def test_the_observed_logits_are_the_model_s_own(kind: str, positions: Positions) -> None:
    engine = Engine(tiny_loaded())
    seen = observed(engine, policy_of(kind), positions)
    prompt = engine.loaded.prompt.instruction_ids(QUESTION)
    ids, queries = DOCUMENT + prompt, len(prompt)
    if kind == "tail":
        ids, queries = DOCUMENT, 6
    elif kind == "repeat":
        prompt = engine.loaded.prompt.instruction_ids(REQUEST)
        ids, queries = DOCUMENT + prompt + DOCUMENT[FIRST:], len(prompt) + len(DOCUMENT) - FIRST
    for layer, theirs in enumerate(attentions(ids)):
        logits = seen.logits(layer)
        assert logits.shape[-2:] == (queries, len(DOCUMENT))
        wanted = theirs[0, :, -queries:, : len(DOCUMENT)]
        ours = logits.softmax(-1).flatten(0, 1)
        wanted = wanted / wanted.sum(-1, keepdim=True)
        assert torch.allclose(ours, wanted, atol=2e-5)


def test_a_policy_that_looks_at_entries_alone_observes_nothing() -> None:
    engine, policy = Engine(tiny_loaded()), make_policy("knorm", entries=100, seed=0)
    segment = engine.prefill(policy, engine.empty_state(), DOCUMENT, positions="dense")
    assert engine.observe(policy, engine.empty_state(), segment, DOCUMENT, positions="dense") is None


def test_a_probe_beyond_the_window_is_refused() -> None:
    engine = Engine(tiny_loaded())
    policy = make_policy("snapkv", entries=100, seed=0, parameters={"question": "word " * WINDOW})
    segment = engine.prefill(policy, engine.empty_state(), DOCUMENT, positions="dense")
    with pytest.raises(WindowExceeded):
        engine.observe(policy, engine.empty_state(), segment, DOCUMENT, positions="dense")


@pytest.mark.parametrize("positions", ["original", "dense"])
@pytest.mark.parametrize("name", ["snapkv", "importance"])
def test_a_resumed_decode_of_an_observing_policy_goes_on_as_it_would_have(
    name: str, positions: Positions
) -> None:
    engine, policy = Engine(tiny_loaded()), make_policy(name, entries=60, seed=4)
    policy = replace(policy, sinks=4)
    state: CompressedKV = engine.empty_state()
    for start in (0, 25):
        ids = DOCUMENT[start : start + 25]
        segment = engine.prefill(policy, state, ids, positions=positions)
        state = policy.fold(state, segment, engine.observe(policy, state, segment, ids, positions=positions))
    prompt = engine.loaded.prompt.instruction_ids(QUESTION)

    def write(**more: Any) -> Any:
        return engine.decode(
            policy,
            state,
            prompt,
            positions=positions,
            sampling=Sampling(max_new_tokens=30),
            fold_every=8,
            **more,
        )

    whole = list(write())
    checkpoint = [step.checkpoint for step in whole if step.checkpoint][1]
    assert len(checkpoint.state.entries) == 60
    rest = list(write(checkpoint=checkpoint))
    assert [step.token for step in rest] == [step.token for step in whole[len(checkpoint.ids) :]]
