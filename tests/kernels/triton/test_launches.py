"""What the launching code hands to Triton is a launch of the table, however its tensors are laid out.

Triton compiles a program anew for whatever it specializes on: types, and which arguments are multiples of 16.
Here the arguments of real calls go through Triton's own reading of them, up to where it would compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import make_backend  # noqa: E402
from triton.runtime.jit import create_function_from_signature  # noqa: E402

from kernels.triton import attention, decode, gather, halving  # noqa: E402
from kernels.triton.launches import Launch, launches  # noqa: E402
from kernels.weighted_kv import WeightedKV  # noqa: E402

BACKEND = make_backend(GPUTarget("cuda", 90, 32))
KNOWN = [launch for launch in launches() if launch.family == 90]


def _tensor(layout: str, *shape: int) -> Tensor:
    """Contiguous, rows and heads swapped, at an odd address, or as a slice of longer rows."""
    if layout == "swapped":
        return torch.zeros(*shape[:-3], shape[-2], shape[-3], shape[-1]).transpose(-3, -2)
    if layout == "odd":
        return torch.zeros(shape[0] * shape[1] * shape[2] * shape[3] + 1)[1:].view(shape)
    if layout == "sliced":
        return torch.zeros(*shape[:-2], shape[-2] + 3, shape[-1] + 5)[
            ..., 1 : shape[-2] + 1, 3 : shape[-1] + 3
        ]
    return torch.zeros(shape)


def _attention(layout: str, queries: int, entries: int) -> None:
    q, k, v = (_tensor(layout, 1, heads, queries, 80) for heads in (6, 2, 2))
    pk, pv = (_tensor(layout, 1, 2, entries, 80) for _ in range(2))
    attention.segment_attention(q, pk, pv, torch.zeros(1, 2, entries), k, v)


def _decode(layout: str, queries: int, entries: int) -> None:
    q = _tensor(layout, 1, 6, min(queries, 8), 80)
    k, v = (_tensor(layout, 1, 2, entries + 8, 80) for _ in range(2))
    decode.decode_attention(q, k, v, torch.zeros(1, 2, entries + 8))


def _packed(layout: str, queries: int, entries: int) -> None:
    q = _tensor(layout, 2, 6, min(queries, 8), 80)
    k, v = (_tensor(layout, 1, 2, entries + 8, 80)[0] for _ in range(2))
    offsets = torch.tensor([0, 3, entries + 8], dtype=torch.int32)
    decode.decode_attention_packed(q, k, v, torch.zeros(2, entries + 8), offsets)


def _halving(layout: str, queries: int, entries: int) -> None:
    keys, values = (_tensor(layout, 1, 3, 2 * queries, 80) for _ in range(2))
    halving.kernel_halving(keys, values, torch.zeros(1, 3, queries + 1, dtype=torch.float64))


def _gather(layout: str, queries: int, entries: int) -> None:
    exact = WeightedKV.exact(*(_tensor(layout, 1, 3, entries + 1, 80) for _ in range(2)))
    gather.gather(exact, torch.zeros(1, 3, queries, dtype=torch.int64))


@pytest.mark.parametrize(
    "call", [_attention, _decode, _packed, _halving, _gather], ids=lambda f: f.__name__[1:]
)
@pytest.mark.parametrize("layout", ["contiguous", "swapped", "odd", "sliced"])
@pytest.mark.parametrize(("queries", "entries"), [(1, 0), (7, 1), (16, 16), (33, 48)])
def test_every_call_is_a_launch_of_the_table(
    call: Callable[[str, int, int], None],
    layout: str,
    queries: int,
    entries: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Launch] = []

    def read(
        program: Any, grid: object, device: object, arguments: tuple[Any, ...], *plan: dict[str, Any]
    ) -> None:
        launch = next(
            known
            for known in KNOWN
            if known.program is program
            and (known.constants, known.options) == plan
            and known.dtype in ("fp32", "i32")
        )
        bind = create_function_from_signature(program.signature, program.params, BACKEND)
        _, specialized, _ = bind(*arguments, **launch.constants)
        names = program.arg_names
        types = {name: kind for name, (kind, _) in zip(names, specialized, strict=True)}
        aligned = [name for name, (kind, note) in zip(names, specialized, strict=True) if note == "D"]
        assert types == launch.signature
        assert aligned == launch.aligned
        made.append(launch)

    for module in (attention, decode, halving, gather):
        monkeypatch.setattr(module, "launch", read)
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # has `support` take tensors on the CPU
    call(layout, queries, entries)
    assert made
