"""The engine against transformers' own generate, and against itself when interrupted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernel_worker.cache import Positions
from kernel_worker.decoding import DecodeCheckpoint, DecodeStep
from kernel_worker.engine import Engine
from kernel_worker.errors import InvalidRequest, StateMismatch, WindowExceeded
from kernel_worker.model import LoadedModel
from kernel_worker.sampling import Sampling
from kernels.selection import CompressedKV, SelectionPolicy, make_policy
from kernels.weighted_kv import WeightedKV
from tests.kernel_worker.tiny import FAMILIES, WINDOW, tiny_loaded, tiny_model

SEGMENT = 7
DOCUMENT = [(17 * i * i + 5 * i) % 250 + 3 for i in range(39)]
PROMPT = [40, 41, 300, 1, 77]


def everything() -> SelectionPolicy:
    return make_policy("exact", entries=WINDOW - 5, seed=0)


def read(engine: Engine, policy: SelectionPolicy, ids: list[int], positions: Positions) -> CompressedKV:
    state = engine.empty_state()
    for start in range(0, len(ids), SEGMENT):
        state = policy.fold(
            state, engine.prefill(policy, state, ids[start : start + SEGMENT], positions=positions)
        )
    return state


def written(steps: list[DecodeStep]) -> list[int]:
    return [step.token for step in steps if step.token is not None]


def decode(
    engine: Engine, policy: SelectionPolicy, state: CompressedKV, positions: Positions, **options: Any
) -> list[DecodeStep]:
    sampling = options.pop("sampling", Sampling(max_new_tokens=23))
    return list(
        engine.decode(policy, state, PROMPT, positions=positions, sampling=sampling, fold_every=5, **options)
    )


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return tiny_loaded()


@pytest.mark.parametrize("positions", ["original", "dense"])
@pytest.mark.parametrize("family", FAMILIES)
def test_with_room_for_everything_the_text_is_that_of_transformers(family: str, positions: Positions) -> None:
    engine = Engine(tiny_loaded(family))
    state = read(engine, everything(), DOCUMENT, positions)
    steps = decode(engine, everything(), state, positions)
    expected = tiny_model(family).generate(
        torch.tensor([DOCUMENT + PROMPT]),
        attention_mask=torch.ones(1, len(DOCUMENT + PROMPT), dtype=torch.long),
        max_new_tokens=23,
        do_sample=False,
    )[0, len(DOCUMENT + PROMPT) :]
    finish = "stop" if int(expected[-1]) == 2 else "length"
    assert written(steps) == [token for token in expected.tolist() if token != 2]
    assert steps[-1] == DecodeStep(len(written(steps)), None, finish=finish)
    assert [step.index for step in steps] == list(range(len(steps)))


def test_a_tight_budget_changes_the_text(loaded: LoadedModel) -> None:
    """Else the comparison with transformers would show nothing about attention to the state."""
    engine = Engine(loaded)
    policy = make_policy("streaming", entries=12, seed=0, parameters={"sinks": "2"})
    tight = decode(engine, policy, read(engine, policy, DOCUMENT, "dense"), "dense")
    exact = decode(engine, everything(), read(engine, everything(), DOCUMENT, "dense"), "dense")
    assert written(tight) != written(exact)


@pytest.mark.parametrize("temperature", [0.0, 0.9], ids=["greedy", "sampled"])
@pytest.mark.parametrize("positions", ["original", "dense"])
def test_every_checkpoint_resumes_bit_for_bit(
    loaded: LoadedModel, positions: Positions, temperature: float
) -> None:
    engine = Engine(loaded)
    policy = make_policy("streaming", entries=24, seed=0, parameters={"sinks": "2"})
    sampling = Sampling(
        max_new_tokens=23, temperature=temperature, top_p=0.95, repetition_penalty=1.1, seed=5
    )
    state = read(engine, policy, DOCUMENT, positions)
    whole = decode(engine, policy, state, positions, sampling=sampling)
    checkpoints = [step.checkpoint for step in whole if step.checkpoint is not None]
    assert [len(checkpoint.ids) for checkpoint in checkpoints] == [1, 6, 11, 16, 21]
    for checkpoint in checkpoints:
        rest = decode(
            engine, policy, engine.empty_state(), positions, sampling=sampling, checkpoint=checkpoint
        )
        assert rest[0].index == len(checkpoint.ids)
        assert [*checkpoint.ids, *written(rest)] == written(whole)
        later = [step.checkpoint for step in rest if step.checkpoint is not None]
        for found, expected in zip(later, checkpoints[-len(later) :] if later else [], strict=True):
            same_state(found.state, expected.state)


def same_state(found: CompressedKV, expected: CompressedKV) -> None:
    assert found.seen == expected.seen
    for left, right in zip(found.entries.tensors(), expected.entries.tensors(), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("name", ["express", "streaming", "uniform"])
def test_checkpoints_hold_what_the_kernels_give_when_called_directly(loaded: LoadedModel, name: str) -> None:
    """The prompt as a segment, then tokens in one run: prefill and fold by hand give the same bytes."""
    engine = Engine(loaded)
    policy = make_policy(name, entries=32, seed=7, parameters={"sinks": "2"})
    state = read(engine, policy, DOCUMENT, "dense")
    steps = decode(engine, policy, state, "dense", sampling=Sampling(max_new_tokens=7))
    first, second = (step.checkpoint for step in steps if step.checkpoint is not None)
    assert len(state.entries) == 32 < state.seen
    expected = policy.fold(state, engine.prefill(policy, state, PROMPT, positions="dense"))
    same_state(first.state, expected)
    assert second.state.seen == expected.seen + 5
    again = engine.prefill(policy, expected, list(second.ids[:5]), positions="dense")
    found = second.state.entries.keys[:, :, -5:]
    torch.testing.assert_close(found, again.keys, rtol=1e-4, atol=1e-5)


def test_a_resumed_decode_that_has_all_its_tokens_only_ends(loaded: LoadedModel) -> None:
    engine = Engine(loaded)
    state = read(engine, everything(), DOCUMENT, "dense")
    first = decode(engine, everything(), state, "dense")[0].checkpoint
    steps = decode(
        engine, everything(), state, "dense", checkpoint=first, sampling=Sampling(max_new_tokens=1)
    )
    assert steps == [DecodeStep(1, None, finish="length")]


def test_reading_in_segments_gives_the_entries_of_reading_at_once(loaded: LoadedModel) -> None:
    engine = Engine(loaded)
    whole = engine.prefill(everything(), engine.empty_state(), DOCUMENT, positions="original")
    state = read(engine, everything(), DOCUMENT, "original")
    assert state.seen == len(DOCUMENT)
    assert torch.equal(state.entries.tokens, whole.tokens)
    torch.testing.assert_close(state.entries.keys, whole.keys, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(state.entries.values, whole.values, rtol=1e-4, atol=1e-5)


def test_tokens_seen_decide_original_positions_and_not_the_entries_left(loaded: LoadedModel) -> None:
    """A state that has lost entries goes on at the true count of tokens."""
    engine = Engine(loaded)
    full = read(engine, everything(), DOCUMENT, "original")
    cut = CompressedKV(full.entries.slice(len(DOCUMENT) - 4, len(DOCUMENT)), full.seen)
    shifted = CompressedKV(cut.entries, seen=full.seen + 1)
    found = engine.prefill(everything(), cut, PROMPT, positions="original")
    assert found.tokens[0, 0].tolist() == list(range(len(DOCUMENT), len(DOCUMENT) + len(PROMPT)))
    other = engine.prefill(everything(), shifted, PROMPT, positions="original")
    assert not torch.allclose(found.keys[1:], other.keys[1:])
    # Rotation is relative: moving entries and new tokens together changes nothing but rounding.
    moved = WeightedKV(*cut.entries.tensors()[:3], cut.entries.tokens + 1)
    together = engine.prefill(everything(), CompressedKV(moved, full.seen + 1), PROMPT, positions="original")
    torch.testing.assert_close(together.keys, found.keys, rtol=1e-3, atol=1e-4)


def test_dense_positions_do_not_depend_on_token_indices(loaded: LoadedModel) -> None:
    engine = Engine(loaded)
    state = read(engine, everything(), DOCUMENT, "dense")
    far = WeightedKV(*state.entries.tensors()[:3], state.entries.tokens + 100_000)
    found = engine.prefill(everything(), CompressedKV(far, state.seen + 100_000), PROMPT, positions="dense")
    expected = engine.prefill(everything(), state, PROMPT, positions="dense")
    assert torch.equal(found.keys, expected.keys)
    assert torch.equal(found.values, expected.values)


def test_weights_count_as_so_many_equal_entries(loaded: LoadedModel) -> None:
    engine = Engine(loaded)
    state = read(engine, everything(), DOCUMENT, "original")
    twice = CompressedKV(
        WeightedKV(*(torch.cat([part, part], dim=2) for part in state.entries.tensors())), state.seen
    )
    heavy = CompressedKV(state.entries.scaled(2.0), state.seen)
    found = engine.prefill(everything(), heavy, PROMPT, positions="original")
    expected = engine.prefill(everything(), twice, PROMPT, positions="original")
    torch.testing.assert_close(found.keys, expected.keys, rtol=1e-4, atol=1e-5)
    plain = engine.prefill(everything(), state, PROMPT, positions="original")
    assert not torch.allclose(found.keys[1:], plain.keys[1:], rtol=1e-3)


def test_prefill_changes_no_state_and_reports_every_layer(loaded: LoadedModel) -> None:
    engine = Engine(loaded)
    state = read(engine, everything(), DOCUMENT[:SEGMENT], "dense")
    before = [part.clone() for part in state.entries.tensors()]
    layers: list[int] = []
    engine.read(everything(), state, PROMPT, positions="dense", on_layer=layers.append)
    assert layers == [1, 2, 3]
    for part, copy in zip(state.entries.tensors(), before, strict=True):
        assert torch.equal(part, copy)


def test_what_on_layer_raises_ends_the_call(loaded: LoadedModel) -> None:
    class Cancelled(Exception):
        pass

    def cancel(layers_done: int) -> None:
        if layers_done == 2:
            raise Cancelled

    engine = Engine(loaded)
    with pytest.raises(Cancelled):
        engine.read(everything(), engine.empty_state(), DOCUMENT, positions="dense", on_layer=cancel)


def test_inference_mode_does_not_leak_to_the_caller_of_decode(loaded: LoadedModel) -> None:
    engine = Engine(loaded)
    steps = engine.decode(
        everything(), engine.empty_state(), PROMPT, positions="dense", sampling=Sampling(max_new_tokens=3)
    )
    for _ in steps:
        assert not torch.is_inference_mode_enabled()


def test_every_end_token_ends_the_answer(loaded: LoadedModel) -> None:
    engine = Engine(loaded)
    undisturbed = written(decode(engine, everything(), engine.empty_state(), "dense"))
    place = next(i for i, token in enumerate(undisturbed) if i and token not in undisturbed[:i])
    prompt = replace(loaded.prompt, stop_ids=frozenset({9999, undisturbed[place]}))
    ending = Engine(replace(loaded, prompt=prompt))
    steps = decode(ending, everything(), ending.empty_state(), "dense")
    assert written(steps) == undisturbed[:place]
    assert steps[-1] == DecodeStep(place, None, finish="stop")


class TestRefusals:
    def test_no_tokens(self, loaded: LoadedModel) -> None:
        engine = Engine(loaded)
        with pytest.raises(InvalidRequest, match="no tokens"):
            engine.prefill(everything(), engine.empty_state(), [], positions="dense")

    @pytest.mark.parametrize("token", [-1, 10**6])
    def test_a_token_outside_the_vocabulary(self, loaded: LoadedModel, token: int) -> None:
        engine = Engine(loaded)
        with pytest.raises(InvalidRequest, match="vocabulary"):
            engine.prefill(everything(), engine.empty_state(), [5, token], positions="dense")

    def test_a_state_of_another_model(self, loaded: LoadedModel) -> None:
        engine = Engine(loaded)
        other = Engine(tiny_loaded("llama-multi-head"))
        with pytest.raises(StateMismatch, match="KV heads"):
            engine.prefill(everything(), other.empty_state(), PROMPT, positions="dense")

    def test_dense_positions_beyond_the_window(self, loaded: LoadedModel) -> None:
        engine = Engine(loaded)
        with pytest.raises(WindowExceeded, match="256"):
            engine.prefill(everything(), engine.empty_state(), [5] * (WINDOW + 1), positions="dense")

    def test_original_positions_beyond_the_window(self, loaded: LoadedModel) -> None:
        engine = Engine(loaded)
        state = CompressedKV(engine.empty_state().entries, seen=WINDOW - 2)
        with pytest.raises(WindowExceeded, match="dense positions"):
            engine.prefill(everything(), state, PROMPT, positions="original")

    def test_a_decode_whose_state_cannot_grow_within_the_window(self, loaded: LoadedModel) -> None:
        engine = Engine(loaded)
        policy = make_policy("exact", entries=WINDOW - 4, seed=0)
        with pytest.raises(WindowExceeded):
            engine.decode(
                policy,
                engine.empty_state(),
                PROMPT,
                positions="dense",
                sampling=Sampling(),
                fold_every=5,
            )

    def test_an_answer_with_original_positions_ends_where_the_window_ends(self, loaded: LoadedModel) -> None:
        engine = Engine(loaded)
        policy = make_policy("streaming", entries=24, seed=0, parameters={"sinks": "2"})
        state = CompressedKV(engine.empty_state().entries, seen=WINDOW - 9)
        steps = decode(engine, policy, state, "original", sampling=Sampling(max_new_tokens=100))
        # 5 of the prompt and 4 tokens fed fill the window; the last one is chosen from its last position.
        assert steps[-1] == DecodeStep(5, None, finish="length")

    def test_a_checkpoint_of_another_model(self, loaded: LoadedModel) -> None:
        engine = Engine(loaded)
        other = Engine(tiny_loaded("llama-multi-head"))
        checkpoint = DecodeCheckpoint(other.empty_state(), (5,))
        with pytest.raises(StateMismatch):
            decode(engine, everything(), engine.empty_state(), "dense", checkpoint=checkpoint)
