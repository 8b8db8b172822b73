"""What `docexpress plan` foretells from a config is what a worker really stores and holds."""

from __future__ import annotations

from pathlib import Path

from kernel_worker.engine import FOLD_EVERY
from kernel_worker.estimate import QUERIES
from kernel_worker.rows import MOST_ROWS
from kernel_worker.settings import WorkerSettings
from kernel_worker.token_cache import BLOCK
from kernel_worker.worker import Worker
from orchestrator import sizing
from orchestrator.jobs import JobOptions
from tests.kernel_worker.server.harness import DEADLINE, Client, text_of
from tests.kernel_worker.server.waiting import until


def test_the_plan_is_what_a_worker_stores_and_holds(worker: Worker, caller: Client, tmp_path: Path) -> None:
    loaded = worker.desk.loaded
    loaded.model.config.save_pretrained(tmp_path)
    answer = caller.ingest(caller.document(text_of(12)))
    options = JobOptions(cache_entries=128, segment_tokens=32)
    plan = sizing.plan(str(tmp_path), documents=3, tokens=answer.token_count, options=options)

    lease = caller.prefill(0, answer.state).lease
    assert worker.desk.leases.nbytes == plan.segment_bytes
    state = caller.compress(0, answer.state, lease).state
    for segment in range(1, answer.segments):
        state = caller.step(segment, state).state
    manifest = caller.store.manifest("state", state)
    assert answer.token_count > 128
    assert manifest.size == plan.state_bytes
    assert _row_bytes(worker, caller, state) == plan.row_bytes
    assert plan.full_cache_bytes == loaded.bytes_per_token * answer.token_count
    assert plan.redis_bytes == 3 * plan.document_bytes
    tokens = caller.store.manifest("tokens", answer.tokens)
    assert tokens.size == sizing.TOKEN_BYTES * answer.token_count
    assert plan.window == loaded.window
    assert not plan.fits_window or loaded.window >= 160


def _row_bytes(worker: Worker, caller: Client, state: str) -> int:
    """Of a text that is being written: what its row refers to, counted once the first token is there."""
    events = caller.stub.Decode(caller.decode_request(state, max_new_tokens=1000), timeout=DEADLINE)
    until(lambda: bool(worker.desk.batcher._batch.decodings))
    [decoding] = worker.desk.batcher._batch.decodings
    until(lambda: decoding.row is not None and decoding.row.table is not None)
    row = decoding.row
    assert row is not None
    table = row.table
    assert table is not None
    parts = [*row.state.entries.tensors(), table.keys, table.values, table.weights, table.new_keys]
    events.cancel()
    return sum(part.nbytes for part in parts)


def test_figures_are_those_of_the_worker() -> None:
    fields = WorkerSettings.model_fields
    assert fields["lease_count"].default == sizing.LEASES
    assert fields["lease_bytes"].default == sizing.LEASE_BYTES
    assert fields["decode_rows"].default == sizing.DECODE_ROWS == MOST_ROWS
    assert (sizing.QUERIES, sizing.FOLD_EVERY, sizing.BLOCK) == (QUERIES, FOLD_EVERY, BLOCK)
