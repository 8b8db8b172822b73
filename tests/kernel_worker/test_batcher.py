"""Who steps texts, and when: here without a server, on one compute thread."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_worker.batcher import Batcher
from kernel_worker.calls import Call
from kernel_worker.decoding import DecodeStep, Decoding
from kernel_worker.model import LoadedModel
from kernel_worker.sampling import Sampling
from tests.kernel_worker.server.harness import endless
from tests.kernel_worker.server.waiting import PATIENCE, until
from tests.kernel_worker.test_batch import FOLD_EVERY, Text, assert_equal, express, run
from tests.kernel_worker.tiny import tiny_loaded

LONG = Text(40, express(64), sampling=Sampling(max_new_tokens=10 * FOLD_EVERY))


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return endless(tiny_loaded())


@pytest.fixture
def batcher(loaded: LoadedModel) -> Iterator[Batcher]:
    with ThreadPoolExecutor(1) as thread:
        batcher = Batcher(loaded, 2, thread.submit)
        yield batcher
        batcher.close()


def steps(batcher: Batcher, decoding: Decoding) -> Iterator[DecodeStep]:
    return batcher.steps(Call(), lambda: (None, decoding))


def test_a_text_waits_for_who_stores_its_checkpoints(loaded: LoadedModel, batcher: Batcher) -> None:
    text, other = LONG.decoding(loaded), LONG.decoding(loaded)
    alone = run(loaded, [(0, decoding := LONG.decoding(loaded))], rows=2)[decoding]
    slow = steps(batcher, text)
    said = [next(slow)]
    until(lambda: not batcher._submitted)
    assert len(text._ids) == 1 + 2 * FOLD_EVERY, "two checkpoints are waiting, and no more"
    with ThreadPoolExecutor(1) as thread:
        assert_equal(thread.submit(lambda: list(steps(batcher, other))).result(PATIENCE), alone)
    assert len(text._ids) == 1 + 2 * FOLD_EVERY
    assert_equal(said + list(slow), alone)


def test_a_text_that_waits_is_let_go_with_its_caller(loaded: LoadedModel, batcher: Batcher) -> None:
    slow = steps(batcher, LONG.decoding(loaded))
    next(slow)
    until(lambda: not batcher._submitted)
    assert len(batcher) == 1
    slow.close()  # type: ignore[attr-defined]  # a generator
    until(lambda: len(batcher) == 0)
