"""The estimate of a state, as the service stores it."""

from __future__ import annotations

import pytest
import torch

from cache_store.layout import StateMeta, state_meta
from cache_store.naming import plan_name, policy_seed
from cache_store.states import load_state, save_state
from evaluation.bench import Bench
from kernel_worker.engine import Engine
from kernel_worker.estimate import accumulated, fold_errors
from kernel_worker.model import LoadedModel
from kernels.selection import make_policy
from tests.kernel_worker.server.harness import Client, Lab, plan_of, text_of
from tests.kernel_worker.server.test_stages import stored_ids


def meta_of(caller: Client, state: str) -> StateMeta:
    return state_meta(caller.store.manifest("state", state))


def directly(loaded: LoadedModel, caller: Client, ids: list[int]) -> tuple[float, ...] | None:
    """The figure of the document's last state, computed in this process."""
    plan, engine = plan_of(caller.plan), Engine(loaded)
    seed = policy_seed(plan_name(plan))
    policy = make_policy(plan.policy, entries=plan.cache_entries, seed=seed, parameters=plan.parameters)
    state = engine.empty_state()
    figure: tuple[float, ...] | None = (0.0,) * loaded.layers
    for start in range(0, len(ids), plan.segment_tokens):
        segment = engine.read(policy, state, ids[start : start + plan.segment_tokens], positions="dense")
        with torch.inference_mode():
            after = policy.fold(state, segment.entries)
            errors = fold_errors(policy, state, segment, after, loaded.rotary, "dense")
        state, figure = after, accumulated(figure, errors)
    return figure


def test_the_figure_is_that_of_a_direct_call(caller: Client, loaded: LoadedModel) -> None:
    state = caller.read(caller.document(text_of(40)))
    meta = meta_of(caller, state)
    assert caller.plan.positions == "dense"
    assert meta.error_by_layer == directly(loaded, caller, stored_ids(caller, meta.seen))
    assert meta.error_estimate == pytest.approx(sum(meta.error_by_layer or ()) / 3, abs=1e-6)
    assert 0.01 < (meta.error_estimate or 0) < 2


def test_the_evaluation_tells_the_same_figure(caller: Client, loaded: LoadedModel) -> None:
    meta = meta_of(caller, caller.read(caller.document(text_of(40))))
    plan = plan_of(caller.plan)
    seed = policy_seed(plan_name(plan))
    policy = make_policy(plan.policy, entries=plan.cache_entries, seed=seed, parameters=plan.parameters)
    bench = Bench(Engine(loaded), plan.segment_tokens)
    reading = bench.read(policy, stored_ids(caller, meta.seen), positions="dense")
    assert (reading.errors, reading.estimate) == (meta.error_by_layer, pytest.approx(meta.error_estimate))


def test_a_document_that_fits_costs_nothing(caller: Client) -> None:
    meta = meta_of(caller, caller.read(caller.document(text_of(3))))
    assert meta.seen <= caller.plan.cache_entries
    assert (meta.error_by_layer, meta.error_estimate) == ((0.0,) * 3, 0.0)


def test_another_worker_goes_on_with_it(lab: Lab, caller: Client) -> None:
    document = caller.document(text_of(30))
    undisturbed = meta_of(caller, caller.read(document)).error_by_layer
    caller.store.delete_all()
    found = caller.ingest(caller.document(text_of(30)))
    state = found.state
    for segment in range(found.segments - 3):
        state = caller.step(segment, state).state
    other = lab.caller(lab.worker())
    assert meta_of(other, other.read(document)).error_by_layer == undisturbed


def test_after_a_state_without_a_figure_there_is_none(lab: Lab, caller: Client) -> None:
    start = caller.ingest(caller.document(text_of(20)))
    plan, first = plan_of(caller.plan), caller.step(0, start.state).state
    kv = load_state(caller.store, first, plan)
    save_state(caller.store, first, kv, plan, start.state, replace=True)  # as older versions did
    assert meta_of(caller, caller.step(1, first).state).error_by_layer is None
