"""What all stages work with, and what they do alike: check a plan, load a state, find a segment."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import redis

from cache_store.errors import ObjectMissing
from cache_store.layout import StateShape
from cache_store.naming import Plan, plan_name, policy_seed
from cache_store.settings import StoreSettings
from cache_store.states import load_state, read_meta
from cache_store.store import CacheStore
from kernel_worker.admission import ComputeSlots
from kernel_worker.batcher import Batcher
from kernel_worker.cache import Positions
from kernel_worker.calls import Call
from kernel_worker.engine import FOLD_EVERY, Engine
from kernel_worker.errors import InvalidRequest, StateMismatch
from kernel_worker.hot_states import HotStates
from kernel_worker.leases import Leases
from kernel_worker.model import LoadedModel
from kernel_worker.observed import probe_ids
from kernel_worker.recent import Recent
from kernel_worker.settings import WorkerSettings
from kernels.selection import CompressedKV, SelectionPolicy, make_policy


@contextmanager
def invalid_arguments() -> Iterator[None]:
    """For checks of a request alone: their ValueError becomes InvalidRequest, with the same sentence."""
    try:
        yield
    except ValueError as error:
        raise InvalidRequest(_sentence(str(error))) from error


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def positions_of(plan: Plan) -> Positions:
    """The plan's positions, as the engine types them."""
    return "original" if plan.positions == "original" else "dense"


KNOWN_PLACES = 64
"""Documents whose parts need not be sought again: 32 KiB each at most."""


@dataclass(frozen=True, slots=True)
class Places:
    """A document in equal parts: the first character of each, the document's tokens, its characters."""

    starts: array[int]
    tokens: int
    end: int


@dataclass(frozen=True)
class Desk:
    """One per process; every part of it is safe to use from several threads.

    slots    for the model
    readers  for tokenizing, which must not wait for the model, nor the model for it
    writers  for decodes, which wait for the batcher's steps and compute nothing themselves
    """

    worker_id: str
    version: str
    settings: WorkerSettings
    store_settings: StoreSettings
    client: redis.Redis
    engine: Engine
    slots: ComputeSlots
    readers: ComputeSlots
    writers: ComputeSlots
    batcher: Batcher
    leases: Leases
    hot: HotStates
    # Of a tenant's document in parts of so many tokens.
    places: Recent[tuple[str, str, int], Places] = field(default_factory=lambda: Recent(KNOWN_PLACES))

    @property
    def loaded(self) -> LoadedModel:
        return self.engine.loaded

    @property
    def load(self) -> int:
        """Calls that run or wait, of all kinds."""
        return self.slots.load + self.readers.load + self.writers.load

    def between_layers(self, call: Call) -> None:
        """For work on a compute thread: ends it where nobody waits any more, and lets decodes have a turn.

        Raises CallerGone.
        """
        call.check()
        self.batcher.give_way()

    def store(self, tenant: str) -> CacheStore:
        """The objects of one tenant. Raises InvalidRequest for a name that no tenant can have."""
        return self._store(tenant, self.store_settings.state_ttl_seconds)

    def checkpoints(self, tenant: str) -> CacheStore:
        """The same, for what is of use only until an interrupted decode goes on."""
        return self._store(tenant, self.settings.checkpoint_seconds)

    def _store(self, tenant: str, ttl_seconds: int) -> CacheStore:
        with invalid_arguments():
            return CacheStore(
                self.client,
                tenant,
                ttl_seconds=ttl_seconds,
                byte_budget=self.store_settings.tenant_byte_budget,
            )

    def state(self, store: CacheStore, plan: Plan, name: str) -> CompressedKV:
        """The state `name` of a plan, on the device.

        A state in memory is used only while the store has it too: what a user deleted is gone.
        Raises ObjectMissing, ObjectDamaged, FormatMismatch (another plan, another model), InvalidRequest.
        """
        if name == plan_name(plan):
            return self.engine.empty_state()
        try:
            with invalid_arguments():
                manifest = store.manifest("state", name)
        except ObjectMissing:
            self.hot.discard(store.tenant, name)
            raise
        hot = self.hot.get(store.tenant, name)
        if hot is not None and read_meta(store, manifest).plan == plan:
            return hot
        state = load_state(store, name, plan, device=self.loaded.device, expect=self.shape())
        self.hot.put(store.tenant, name, state)
        return state

    def shape(self, entries: int = 0) -> StateShape:
        """Sizes of a state of this model with so many entries per KV head and layer."""
        model = self.loaded
        return StateShape.model_validate(
            {
                "layers": model.layers,
                "kv_heads": model.kv_heads,
                "entries": entries,
                "head_dim": model.head_dim,
                "value_dim": model.head_dim,
                "dtype": str(model.dtype).removeprefix("torch."),
            }
        )

    def policy(self, plan: Plan) -> SelectionPolicy:
        """The policy of a plan for the model loaded here.

        Raises StateMismatch for another model's plan, InvalidRequest for a policy or budget that cannot be,
        WindowExceeded where a full state and a segment need more positions than there are.
        """
        if plan.model_fingerprint != self.loaded.fingerprint:
            raise StateMismatch(
                f"The plan was made for another model than {self.loaded.name}, which this worker serves;"
                " start the job anew, or start a worker with the other model."
            )
        with invalid_arguments():
            policy = make_policy(
                plan.policy,
                entries=plan.cache_entries,
                seed=policy_seed(plan_name(plan)),
                parameters=plan.parameters,
            )
        if plan.positions == "dense":
            new = plan.segment_tokens + self.room_after(policy, plan)
            self.engine.check_window(policy.entries, new, positions="dense")
        return policy

    def prompt_ids(self, plan: Plan, instruction: str) -> tuple[int, ...]:
        """Ids of an instruction and the template's end. Raises InvalidRequest for none, or too long a one."""
        if not instruction.strip():
            raise InvalidRequest("The instruction is empty.")
        prompt = tuple(self.loaded.prompt.instruction_ids(instruction))
        if len(prompt) > plan.segment_tokens:
            raise InvalidRequest(
                f"The instruction has {len(prompt)} tokens; at most one segment of"
                f" {plan.segment_tokens} is allowed."
            )
        return prompt

    def room_after(self, policy: SelectionPolicy, plan: Plan) -> int:
        """Positions that must be free after a segment: for tokens not folded in yet, or for a probe."""
        if policy.probe is None:
            return FOLD_EVERY
        probe, own = probe_ids(policy.probe, self.loaded.prompt, range(plan.segment_tokens))
        return max(FOLD_EVERY, len(probe) - own)
