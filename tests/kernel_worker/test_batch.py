"""Texts that are written together: each says, to the bit, what it says alone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
import torch

from kernel_worker.batch import Batch
from kernel_worker.cache import Positions
from kernel_worker.decoding import DecodeCheckpoint, DecodeStep, Decoding
from kernel_worker.engine import Engine
from kernel_worker.model import LoadedModel, assemble, load_model
from kernel_worker.packed import pack
from kernel_worker.rows import settle_rows
from kernel_worker.sampling import Sampling
from kernels.selection import CompressedKV, SelectionPolicy, make_policy
from kernels.selection.observation import Observation
from kernels.weighted_kv import WeightedKV
from tests.kernel_worker.real import needs_model
from tests.kernel_worker.server.harness import endless
from tests.kernel_worker.tiny import tiny_model, tiny_tokenizer

FOLD_EVERY = 6
PROMPT = (40, 41, 300, 1, 77)


@dataclass(frozen=True)
class Text:
    """One text to write: a document of so many tokens under a policy, and how it is sampled."""

    tokens: int
    policy: SelectionPolicy
    positions: Positions = "dense"
    sampling: Sampling = field(default_factory=lambda: Sampling(max_new_tokens=20))

    def decoding(self, loaded: LoadedModel) -> Decoding:
        """After its prompt, from which its first token comes."""
        engine, state = Engine(loaded), Engine(loaded).empty_state()
        ids = [(17 * i * i + 5 * i + self.tokens) % 250 + 3 for i in range(self.tokens)]
        for start in range(0, len(ids), 32):
            part = ids[start : start + 32]
            new = engine.prefill(self.policy, state, part, positions=self.positions)
            seen = engine.observe(self.policy, state, new, part, positions=self.positions)
            state = self.policy.fold(state, new, seen)
        first = engine.read_prompt(
            self.policy, state, PROMPT, positions=self.positions, sampling=self.sampling
        )
        assert first.checkpoint is not None
        return self.resumed(loaded, first.checkpoint)

    def resumed(self, loaded: LoadedModel, checkpoint: DecodeCheckpoint) -> Decoding:
        return Decoding(
            loaded,
            self.policy,
            checkpoint,
            positions=self.positions,
            sampling=self.sampling,
            fold_every=FOLD_EVERY,
        )


def express(entries: int, seed: int = 0) -> SelectionPolicy:
    return make_policy("express", entries=entries, seed=seed, parameters={"sinks": "4"})


TEXTS = (
    Text(90, express(64)),
    Text(90, express(64, seed=1), sampling=Sampling(max_new_tokens=20, temperature=1.0, seed=5)),
    Text(40, make_policy("exact", entries=200, seed=0), "original"),
    Text(70, make_policy("streaming", entries=48, seed=0, parameters={"sinks": "2"})),
    Text(90, make_policy("snapkv", entries=48, seed=0), sampling=Sampling(max_new_tokens=9)),
    Text(5, express(64), sampling=Sampling(max_new_tokens=31, repetition_penalty=1.3)),
)


def run(
    loaded: LoadedModel, arrivals: Sequence[tuple[int, Decoding]], rows: int
) -> dict[Decoding, list[DecodeStep]]:
    """The steps of decodings, each of which joins before the step of its number."""
    batch, waiting = Batch(loaded, rows), list(arrivals)
    said: dict[Decoding, list[DecodeStep]] = {decoding: [] for _, decoding in arrivals}
    number = 0
    while waiting or len(batch):
        for arrival in [each for each in waiting if each[0] <= number]:
            batch.join(arrival[1])
            waiting.remove(arrival)
        for decoding, step in batch.step():
            assert isinstance(step, DecodeStep), step
            said[decoding].append(step)
        number += 1
    return said


def assert_equal(one: Sequence[DecodeStep], other: Sequence[DecodeStep]) -> None:
    """The same ids, and the same states after every fold, bit for bit."""
    assert [(s.index, s.token, s.finish) for s in one] == [(s.index, s.token, s.finish) for s in other]
    for mine, theirs in zip(one, other, strict=True):
        assert (mine.checkpoint is None) == (theirs.checkpoint is None)
        if mine.checkpoint is not None and theirs.checkpoint is not None:
            assert mine.checkpoint.ids == theirs.checkpoint.ids
            assert_same_state(mine.checkpoint.state, theirs.checkpoint.state)


def assert_same_state(one: CompressedKV, other: CompressedKV) -> None:
    assert one.seen == other.seen
    for part in ("keys", "values", "weights"):
        assert torch.equal(getattr(one.entries, part), getattr(other.entries, part)), part


@pytest.fixture(scope="module", params=["llama", "qwen3", "llama, packed", "llama, all rows"])
def loaded(request: pytest.FixtureRequest) -> LoadedModel:
    """As this machine takes them, packed, and as where rows always depend on their number."""
    family, _, how = request.param.partition(", ")
    model = tiny_model(family)
    if how == "packed":
        pack(model, [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)])
    loaded = endless(assemble(model, tiny_tokenizer(), name="tiny"))
    return replace(loaded, fewest_rows=None) if how == "all rows" else loaded


@pytest.mark.parametrize(
    ("agreeing", "most", "fewest"),
    [(4, 9, 4), (4, 5, 4), (4, 4, None), (4, 1, 1), (32, 40, 32), (33, 70, 64)],
)
def test_a_lone_row_is_not_what_decides_how_many_there_must_be(
    agreeing: int, most: int, fewest: int | None
) -> None:
    """The trial's answer for a layer whose rows depend on their number below `agreeing` of them."""

    model = torch.nn.Sequential(torch.nn.Linear(3, 5))
    model.device, model.dtype = torch.device("cpu"), torch.float64  # type: ignore[assignment]

    def moody(_: object, args: tuple[torch.Tensor], out: torch.Tensor) -> torch.Tensor:
        return torch.ones_like(out) * (len(args[0]) if len(args[0]) < agreeing else 0)

    model[0].to(model.dtype).register_forward_hook(moody)
    assert settle_rows(model, most) == fewest


def test_a_text_is_the_same_in_any_company(loaded: LoadedModel) -> None:
    decodings = [text.decoding(loaded) for text in TEXTS]
    # They come and go while others write: two at once, some late, one when the first has gone.
    together = run(loaded, list(zip((0, 0, 3, 4, 4, 12), decodings, strict=True)), rows=6)
    for text, decoding in zip(TEXTS, decodings, strict=True):
        other = text.decoding(loaded)
        alone = run(loaded, [(0, other)], rows=6)[other]
        assert sum(step.token is not None for step in alone) == text.sampling.max_new_tokens - 1
        assert_equal(together[decoding], alone)


def test_a_text_goes_on_from_its_checkpoint_in_other_company(loaded: LoadedModel) -> None:
    whole = TEXTS[0].decoding(loaded)
    steps = run(loaded, [(0, whole), (2, TEXTS[3].decoding(loaded))], rows=3)[whole]
    place, checkpoint = next((i, s.checkpoint) for i, s in enumerate(steps) if s.checkpoint is not None)
    rest = TEXTS[0].resumed(loaded, checkpoint)
    others = [(0, TEXTS[1].decoding(loaded)), (3, TEXTS[2].decoding(loaded))]
    assert_equal(run(loaded, [(0, rest), *others], rows=3)[rest], steps[place + 1 :])


def test_rows_of_one_length_share_a_table_and_its_memory_goes_with_the_last(loaded: LoadedModel) -> None:
    batch, decodings = Batch(loaded, 3), [TEXTS[i].decoding(loaded) for i in (0, 1, 3)]
    for decoding in decodings:
        batch.join(decoding)
    batch.step()
    assert len({id(each.row.table) for each in decodings if each.row is not None}) == len(batch._tables) == 1
    for decoding in decodings:
        batch.leave(decoding)
    assert not batch._tables
    assert not len(batch)


def test_what_is_abandoned_is_free_at_once(loaded: LoadedModel) -> None:
    batch, decodings = Batch(loaded, 2), [TEXTS[i].decoding(loaded) for i in (0, 1)]
    for decoding in decodings:
        batch.join(decoding)
    batch.step()
    tables = [weakref.ref(table) for table in batch._tables.values()]
    gc.disable()
    batch.abandon()
    freed = [table() is None for table in tables]
    gc.enable()
    assert freed == [True]
    assert not len(batch)
    assert [decoding.row for decoding in decodings] == [None, None]


def test_there_is_no_row_too_many(loaded: LoadedModel) -> None:
    batch = Batch(loaded, 1)
    batch.join(TEXTS[0].decoding(loaded))
    with pytest.raises(RuntimeError, match="all 1 rows are taken"):
        batch.join(TEXTS[1].decoding(loaded))


@dataclass(frozen=True)
class Refusing(SelectionPolicy):
    """A policy that folds the prompt, and refuses what is folded later."""

    policy: SelectionPolicy
    seen: int

    @property
    def entries(self) -> int:
        return self.policy.entries

    @property
    def parameters(self) -> dict[str, str | int | float]:
        return self.policy.parameters

    def fold(
        self, state: CompressedKV, segment: WeightedKV, observed: Observation | None = None
    ) -> CompressedKV:
        if state.seen >= self.seen:
            raise ValueError("there is no room for more")
        return self.policy.fold(state, segment, observed)


def test_what_goes_wrong_with_one_text_ends_that_text_alone(loaded: LoadedModel) -> None:
    good, bad = TEXTS[0], replace(TEXTS[0], policy=Refusing(express(64), 90 + len(PROMPT)))
    one, other = good.decoding(loaded), bad.decoding(loaded)
    batch = Batch(loaded, 2)
    batch.join(other)
    batch.join(one)
    said: dict[Decoding, list[DecodeStep | Exception]] = {one: [], other: []}
    while len(batch):
        for decoding, step in batch.step():
            said[decoding].append(step)
    assert isinstance(said[other][-1], ValueError)
    assert len(said[other]) == FOLD_EVERY
    undisturbed = good.decoding(loaded)
    steps = [step for step in said[one] if isinstance(step, DecodeStep)]
    assert_equal(steps, run(loaded, [(0, undisturbed)], rows=2)[undisturbed])


def test_a_text_that_finds_no_memory_for_its_row_ends_alone(loaded: LoadedModel) -> None:
    whole, good = TEXTS[0].decoding(loaded), TEXTS[0].decoding(loaded)
    bad = TEXTS[0].decoding(loaded)
    bad._fold_every = 1 << 45
    batch = Batch(loaded, 2)
    batch.join(good)
    steps = batch.step()
    batch.join(bad)
    (ended, error), *rest = batch.step()
    assert ended is bad
    assert isinstance(error, RuntimeError)
    assert batch.decodings == (good,)
    assert len(batch._tables) == 1
    steps += rest
    while len(batch):
        steps += batch.step()
    said = [step for _, step in steps if isinstance(step, DecodeStep)]
    assert_equal(said, run(loaded, [(0, whole)], rows=2)[whole])


@pytest.mark.parametrize("spoilt", [torch.inf, torch.nan])
def test_nothing_of_a_text_that_overflowed_stays_for_the_next_one(loaded: LoadedModel, spoilt: float) -> None:
    whole = TEXTS[0].decoding(loaded)
    alone = run(loaded, [(0, whole)], rows=2)[whole]
    batch, stays, leaves, comes = Batch(loaded, 2), *(TEXTS[i].decoding(loaded) for i in (1, 1, 0))
    batch.join(stays)
    batch.join(leaves)
    batch.step()  # the first place of all is written anew before anybody reads it
    hook = loaded.model.model.layers[0].self_attn.v_proj.register_forward_hook(
        lambda _, args, out: torch.cat([out[:1], torch.full_like(out[1:], spoilt)])
    )
    batch.step()
    hook.remove()
    batch.leave(leaves)
    batch.join(comes)
    said: list[DecodeStep] = []
    while len(batch):
        said += [step for who, step in batch.step() if who is comes and isinstance(step, DecodeStep)]
    assert_equal(said, alone)


@needs_model
@pytest.mark.model
def test_the_real_model_says_the_same_in_any_company() -> None:
    loaded = endless(load_model("embedded", device="cpu"))
    texts = [Text(70 + 40 * i, express(96, seed=i), sampling=Sampling(max_new_tokens=8)) for i in range(3)]
    decodings = [text.decoding(loaded) for text in texts]
    together = run(loaded, list(zip((0, 1, 3), decodings, strict=True)), rows=3)
    for text, decoding in zip(texts, decodings, strict=True):
        other = text.decoding(loaded)
        assert_equal(together[decoding], run(loaded, [(0, other)], rows=3)[other])
