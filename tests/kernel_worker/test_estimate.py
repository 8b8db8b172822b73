"""What a fold costs: against attention spelled out, and as it has to be by what it means."""

from __future__ import annotations

from statistics import mean

import pytest
import torch
from torch import Tensor

from kernel_worker.cache import Positions
from kernel_worker.engine import Engine
from kernel_worker.estimate import QUERIES, accumulated, fold_errors
from kernel_worker.rotary import dense_positions
from kernels.reference import weighted_attention
from kernels.selection import POLICIES, CompressedKV, SelectionPolicy, make_policy
from kernels.weighted_kv import concat
from tests.kernel_worker.tiny import tiny_loaded

DOCUMENT = [(17 * i * i + 5 * i) % 250 + 3 for i in range(120)]
SEGMENT = 40


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(tiny_loaded())


def read(engine: Engine, policy: SelectionPolicy, positions: Positions) -> list[Tensor]:
    """The errors [layers] of each fold of the document."""
    state, errors = engine.empty_state(), []
    for start in range(0, len(DOCUMENT), SEGMENT):
        ids = DOCUMENT[start : start + SEGMENT]
        segment = engine.read(policy, state, ids, positions=positions)
        observed = engine.observe(policy, state, segment.entries, ids, positions=positions)
        with torch.inference_mode():
            after = policy.fold(state, segment.entries, observed)
            errors.append(fold_errors(policy, state, segment, after, engine.loaded.rotary, positions))
        state = after
    return errors


def attended(
    engine: Engine, state: CompressedKV, queries: Tensor, positions: Positions, layer: int
) -> Tensor:
    """What queries [Hq, Q, d] get from one layer of a state, log-weights halved: [Hq, Q, d_v]."""
    rotary, entries = engine.loaded.rotary, state.entries
    first = len(entries) if positions == "dense" else state.seen
    places = dense_positions(queries.shape[1], first, queries.device)
    rotated = rotary.rotate(queries[None], rotary.angles(places, queries))
    rows = []
    for head, keys in enumerate(entries.keys[layer]):
        at = entries.tokens[layer, head] if positions == "original" else torch.arange(len(entries))
        rows.append(rotary.rotate(keys[None, None], rotary.angles(at[None].long(), keys))[0, 0])
    weights = 0.5 * entries.weights[layer].log()
    return weighted_attention(rotated, torch.stack(rows)[None], entries.values[layer][None], weights[None])[
        0
    ][0]


@pytest.mark.parametrize("positions", ["original", "dense"])
def test_it_is_the_change_of_what_the_last_queries_attend_to(engine: Engine, positions: Positions) -> None:
    policy = make_policy("uniform", entries=30, seed=0, parameters={"sinks": "4", "temper": "0.5"})
    state = engine.empty_state()
    with torch.inference_mode():
        first = engine.read(policy, state, DOCUMENT[:SEGMENT], positions=positions)
        state = policy.fold(state, first.entries)
        segment = engine.read(policy, state, DOCUMENT[SEGMENT:], positions=positions)
        after = policy.fold(state, segment.entries)
        found = fold_errors(policy, state, segment, after, engine.loaded.rotary, positions)
        unfolded = CompressedKV(concat([state.entries, segment.entries]), after.seen)
        assert segment.queries.shape == (3, 6, QUERIES, 8)
        for layer, error in enumerate(found):
            heads = slice(3 * (layer % 2), 3 * (layer % 2) + 3)  # those of one KV head, in turn
            old, new = (
                attended(engine, kv, segment.queries[layer], positions, layer)[heads]
                for kv in (unfolded, after)
            )
            assert error > 0.01
            assert torch.isclose(error, (new - old).norm() / old.norm(), rtol=1e-4)


def test_the_queries_are_those_of_the_last_tokens(engine: Engine) -> None:
    policy, empty = make_policy("exact", entries=200, seed=0), engine.empty_state()
    whole = engine.read(policy, empty, DOCUMENT[:SEGMENT], positions="dense")
    few = engine.read(policy, empty, DOCUMENT[:QUERIES], positions="dense")
    one = engine.read(policy, empty, DOCUMENT[:1], positions="dense")
    begun = engine.read(policy, empty, DOCUMENT[: SEGMENT - 3], positions="dense")
    assert torch.allclose(whole.queries[:, :, :-3], begun.queries[:, :, 3:], atol=1e-4)
    assert torch.allclose(few.queries[:, :, :1], one.queries, atol=1e-4)
    assert one.queries.shape == (3, 6, 1, 8)


@pytest.mark.parametrize("positions", ["original", "dense"])
@pytest.mark.parametrize("name", POLICIES)
def test_what_is_kept_whole_costs_nothing(engine: Engine, name: str, positions: Positions) -> None:
    policy = make_policy(name, entries=2 * len(DOCUMENT), seed=0)
    assert all(not errors.any() for errors in read(engine, policy, positions))


@pytest.mark.parametrize("positions", ["original", "dense"])
def test_a_smaller_budget_costs_more(engine: Engine, positions: Positions) -> None:
    def cost(entries: int) -> float:
        policies = [
            make_policy("uniform", entries=entries, seed=n, parameters={"sinks": "4"}) for n in range(6)
        ]
        return mean(float(torch.stack(read(engine, policy, positions)).mean()) for policy in policies)

    costs = [cost(entries) for entries in (16, 32, 64, 120)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > 1.2 * costs[2] > costs[3] == 0


def test_squares_add_up_and_the_older_ones_count_half() -> None:
    figure: tuple[float, ...] | None = (0.0, 0.0)
    for errors in ([0.0, 0.3], [0.2, 0.3], [0.4, 0.0]):
        figure = accumulated(figure, torch.tensor(errors))
    assert figure == pytest.approx(((0.02 + 0.16) ** 0.5, (0.0225 + 0.045) ** 0.5), abs=1e-6)


def test_a_long_document_has_no_larger_figure_for_its_length() -> None:
    figure: tuple[float, ...] | None = (0.0,)
    for _ in range(1000):
        figure = accumulated(figure, torch.tensor([0.1]))
    assert figure == pytest.approx((0.1 * 2**0.5,), abs=1e-5)


def test_what_is_not_known_stays_unknown() -> None:
    assert accumulated(None, torch.zeros(2)) is None
    assert accumulated((0.1, 0.1), torch.tensor([0.1, torch.nan])) is None
