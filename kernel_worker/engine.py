"""The model side of a worker: segments in, entries out; a state in, tokens out. Knows no service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from kernel_worker import attention
from kernel_worker.batch import Batch
from kernel_worker.cache import Positions, SegmentCache
from kernel_worker.decoding import DecodeCheckpoint, DecodeStep, Decoding, folded, observation
from kernel_worker.errors import InvalidRequest, StateMismatch, WindowExceeded
from kernel_worker.estimate import QUERIES, ReadSegment
from kernel_worker.model import LoadedModel
from kernel_worker.observed import probe_ids, stacked
from kernel_worker.sampling import Sampling, choose
from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV, SelectionPolicy
from kernels.weighted_kv import WeightedKV, concat

FOLD_EVERY = 64


class Engine:
    """One model on one device. Stateless between calls, and safe to call from several threads."""

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._vocabulary: int = loaded.model.get_input_embeddings().num_embeddings

    def empty_state(self) -> CompressedKV:
        """The state before the first token: rows (layers, kv_heads), no entries, nothing seen."""
        model = self.loaded
        rows = (model.layers, model.kv_heads)
        return CompressedKV(
            WeightedKV.empty(rows, model.head_dim, dtype=model.dtype, device=model.device), seen=0
        )

    def check_window(self, entries: int, new_tokens: int, *, positions: Positions, seen: int = 0) -> None:
        """Raises WindowExceeded when a state of `entries` entries and `new_tokens` further tokens need more
        positions than the model was trained with; with original positions `seen` counts instead of `entries`.
        """
        start = entries if positions == "dense" else seen
        if start + new_tokens > self.loaded.window:
            advice = "a smaller budget or shorter segments" if positions == "dense" else "dense positions"
            raise WindowExceeded(
                f"{start} positions and {new_tokens} more exceed the {self.loaded.window} that"
                f" {self.loaded.name} was trained with; take {advice}."
            )

    def read(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        ids: Sequence[int],
        *,
        positions: Positions,
        on_layer: Callable[[int], None] | None = None,
    ) -> ReadSegment:
        """Runs the model over one segment that follows on `state`, which is not changed.

        Attention is exact and causal inside the segment and weighted (`policy.log_weights`) to the state.
        Returns the segment's last queries, and its entries [layers, kv_heads, len(ids), head_dim], not
        rotated, weight 1, in the model's dtype, tokens state.seen and following: what `policy.fold` takes.

        on_layer(n) is called after n layers are done; what it raises ends the call and passes through.

        Raises InvalidRequest for no ids or an id outside the vocabulary, WindowExceeded, StateMismatch.
        """
        self._check(state, ids, positions)
        with torch.inference_mode():
            cache = self._segment_cache(policy, state, len(ids), positions, on_layer)
            cache.queries, cache.recorded = [], QUERIES
            # The base model, without the head: nobody reads the logits of a document.
            self._forward(self.loaded.model.base_model, cache, ids)
            if on_layer is not None:
                on_layer(self.loaded.layers)
            queries = stacked(cache.queries, self.loaded.layers)
            return ReadSegment(cache.new_entries(), queries, cache.scale or self.loaded.head_dim**-0.5)

    def prefill(
        self, policy: SelectionPolicy, state: CompressedKV, ids: Sequence[int], *, positions: Positions
    ) -> WeightedKV:
        """The entries alone of what `read` returns."""
        return self.read(policy, state, ids, positions=positions).entries

    def observe(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        segment: WeightedKV,
        ids: Sequence[int],
        *,
        positions: Positions,
    ) -> Observation | None:
        """What `policy.fold` wants to observe after `state` and the segment of these ids; None for nothing.

        Runs the tokens of the policy's probe; nothing of them stays. Raises InvalidRequest, WindowExceeded.
        """
        if policy.probe is None:
            return None
        probe, own = probe_ids(policy.probe, self.loaded.prompt, ids)
        before = len(segment) - own
        past = CompressedKV(concat([state.entries, segment.slice(0, before)]), state.seen + before)
        self._check(past, probe, positions)
        with torch.inference_mode():
            cache = self._segment_cache(policy, past, len(probe), positions)
            cache.queries = []
            self._forward(self.loaded.model.base_model, cache, probe)
            return observation(self.loaded, cache, concat([state.entries, segment]), own)

    def logits(
        self, policy: SelectionPolicy, state: CompressedKV, ids: Sequence[int], *, positions: Positions
    ) -> Tensor:
        """Logits [len(ids), vocabulary] after each of the ids, which follow on `state`; nothing is kept.

        Raises InvalidRequest, WindowExceeded, StateMismatch.
        """
        self._check(state, ids, positions)
        with torch.inference_mode():
            cache = self._segment_cache(policy, state, len(ids), positions)
            logits: Tensor = self._forward(self.loaded.model, cache, ids).logits
            return logits[0]

    def decode(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        prompt_ids: Sequence[int],
        *,
        positions: Positions,
        sampling: Sampling,
        checkpoint: DecodeCheckpoint | None = None,
        fold_every: int = FOLD_EVERY,
    ) -> Iterator[DecodeStep]:
        """Writes tokens after `state` and the prompt (instruction and template end), one step each.

        The prompt is run like a segment and folded in; generated tokens wait exactly and are folded in
        whenever `fold_every` of them wait, which gives a checkpoint. With a checkpoint of the same decode
        `state` and `prompt_ids` are not read, the tokens of `checkpoint.ids` are not repeated, and the
        steps that follow are bit for bit those of the undisturbed decode.

        With original positions the answer ends ("length") where the model's window ends.
        Closing the iterator ends the work. Raises InvalidRequest, WindowExceeded, StateMismatch at the call,
        not at the first step.
        """
        self.check_decode(
            policy,
            state,
            prompt_ids,
            positions=positions,
            sampling=sampling,
            checkpoint=checkpoint,
            fold_every=fold_every,
        )
        return self._decode(policy, state, prompt_ids, positions, sampling, checkpoint, fold_every)

    def _decode(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        prompt_ids: Sequence[int],
        positions: Positions,
        sampling: Sampling,
        checkpoint: DecodeCheckpoint | None,
        fold_every: int,
    ) -> Iterator[DecodeStep]:
        if checkpoint is None:
            first = self.read_prompt(policy, state, prompt_ids, positions=positions, sampling=sampling)
            yield first
            if first.checkpoint is None:
                return
            checkpoint = first.checkpoint
        batch = Batch(self.loaded)
        batch.join(
            Decoding(
                self.loaded,
                policy,
                checkpoint,
                positions=positions,
                sampling=sampling,
                fold_every=fold_every,
            )
        )
        while len(batch):
            for _, step in batch.step():
                if isinstance(step, Exception):
                    raise step
                yield step

    def check_decode(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        prompt_ids: Sequence[int],
        *,
        positions: Positions,
        sampling: Sampling,
        checkpoint: DecodeCheckpoint | None = None,
        fold_every: int = FOLD_EVERY,
    ) -> None:
        """Raises what `decode` raises for these arguments."""
        if fold_every < 1:
            raise InvalidRequest(f"fold_every is {fold_every}, but must be at least 1.")
        if checkpoint is not None:
            state, prompt_ids = checkpoint.state, checkpoint.ids[-1:]
        self._check(state, prompt_ids, positions)
        if positions == "dense":
            # A short text never fills the budget.
            whole = state.seen + len(prompt_ids) + sampling.max_new_tokens
            self.check_window(min(policy.entries + fold_every, whole), 0, positions=positions)

    def read_prompt(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        prompt_ids: Sequence[int],
        *,
        positions: Positions,
        sampling: Sampling,
        on_layer: Callable[[int], None] | None = None,
    ) -> DecodeStep:
        """The first step of a decode: its first token with a checkpoint to go on from, or its end at once.

        on_layer as for `read`.
        """
        with torch.inference_mode():
            cache = self._segment_cache(policy, state, len(prompt_ids), positions, on_layer)
            if policy.probe is not None:
                cache.queries = []
            token = choose(self._logits(cache, prompt_ids), (), sampling)
            if token in self.loaded.prompt.stop_ids:
                return DecodeStep(0, None, finish="stop")
            after = folded(self.loaded, policy, cache, cache.new_entries())
        return DecodeStep(0, token, DecodeCheckpoint(after, (token,)))

    def _segment_cache(
        self,
        policy: SelectionPolicy,
        state: CompressedKV,
        tokens: int,
        positions: Positions,
        on_layer: Callable[[int], None] | None = None,
    ) -> SegmentCache:
        weights = policy.log_weights(state.entries)
        return SegmentCache(state, weights, self.loaded.rotary, positions, tokens, on_layer)

    def _logits(self, cache: SegmentCache, ids: Sequence[int]) -> Tensor:
        """Logits [vocabulary] after the last of the ids."""
        logits: Tensor = self._forward(self.loaded.model, cache, ids, logits_to_keep=1).logits
        return logits[0, -1]

    def _forward(self, model: Any, cache: SegmentCache, ids: Sequence[int], **options: int) -> Any:
        tokens = torch.tensor([list(ids)], device=self.loaded.device)
        # Position 0 everywhere: the model's own rotation is the identity then (see rotary.py).
        places = torch.zeros_like(tokens)
        extra = {attention.NAME: cache}
        return model(input_ids=tokens, position_ids=places, cache=cache, use_cache=True, **extra, **options)

    def _check(self, state: CompressedKV, ids: Sequence[int], positions: Positions) -> None:
        model, entries = self.loaded, state.entries
        shape = (model.layers, model.kv_heads, model.head_dim)
        found = (*entries.rows, entries.keys.shape[-1])
        if found != shape or entries.keys.dtype != model.dtype:
            raise StateMismatch(
                f"The state holds {entries.keys.dtype} entries of layers, KV heads and head size {found};"
                f" {model.name} needs {model.dtype} and {shape}."
            )
        if not ids:
            raise InvalidRequest("There are no tokens to read.")
        if min(ids) < 0 or max(ids) >= self._vocabulary:
            raise InvalidRequest(f"A token id is outside the model's vocabulary of {self._vocabulary}.")
        self.check_window(len(entries), len(ids), positions=positions, seen=state.seen)
