"""Likelihoods of a question over sketches are the model's own, whatever shares a batch."""

from __future__ import annotations

import pytest
import torch

from kernel_worker.engine import Engine
from kernel_worker.errors import InvalidRequest, WindowExceeded
from kernel_worker.ranking import BATCH, question_likelihoods
from kernels.selection import make_policy
from kernels.weighted_kv import WeightedKV
from tests.kernel_worker.tiny import WINDOW, tiny_loaded, tiny_model

QUESTION = "Who does not mind?"
OPENING = [5, 9, 13, 40]


def segment(number: int, length: int) -> list[int]:
    return [(31 * i * i + 7 * number * i + number) % 250 + 3 for i in range(length)]


def entries(engine: Engine, ids: list[int]) -> WeightedKV:
    """The segment's own entries when it is read right after the opening."""
    policy = make_policy("exact", entries=WINDOW, seed=0)
    read = engine.prefill(policy, engine.empty_state(), OPENING + ids, positions="dense")
    return read.slice(len(OPENING), len(read))


def opening(engine: Engine) -> WeightedKV:
    policy = make_policy("exact", entries=WINDOW, seed=0)
    return engine.prefill(policy, engine.empty_state(), OPENING, positions="dense")


def test_over_whole_segments_the_likelihood_is_that_of_transformers() -> None:
    engine = Engine(tiny_loaded())
    texts = [segment(number, 40 if number % 3 else 25) for number in range(BATCH + 4)]
    found = question_likelihoods(
        engine.loaded, opening(engine), [entries(engine, ids) for ids in texts], QUESTION
    )
    tokenizer, model = engine.loaded.tokenizer, tiny_model()
    asked = tokenizer.encode(QUESTION)
    for ids, likelihood in zip(texts, found, strict=True):
        whole = OPENING + ids + tokenizer.encode("\n\nQuestion: ") + asked
        with torch.inference_mode():
            logs = model(torch.tensor([whole])).logits[0].log_softmax(-1)
        own = logs[-len(asked) - 1 : -1].gather(-1, torch.tensor(asked).unsqueeze(-1)).mean()
        assert likelihood == pytest.approx(float(own), abs=1e-4)


def test_weights_count() -> None:
    engine = Engine(tiny_loaded())
    plain = entries(engine, segment(1, 30))
    one, heavy = question_likelihoods(engine.loaded, opening(engine), [plain, plain.scaled(4.0)], QUESTION)
    assert abs(one - heavy) > 1e-3


def test_what_cannot_be_asked_is_refused() -> None:
    engine = Engine(tiny_loaded())
    known = [entries(engine, segment(1, 30))]
    with pytest.raises(InvalidRequest, match="The question is empty"):
        question_likelihoods(engine.loaded, opening(engine), known, "  \n")
    with pytest.raises(WindowExceeded):
        question_likelihoods(engine.loaded, opening(engine), known, "word " * WINDOW)
    assert question_likelihoods(engine.loaded, opening(engine), [], QUESTION) == []
