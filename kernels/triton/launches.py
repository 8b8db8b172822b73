"""Every configuration in which a program can be launched, spelled out for the compiler.

What the launching code lets Triton specialize on is settled (`launch.aligned`, and the programs' own lists of
what not to specialize on), so that these are all there are.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from kernels.triton import attention, decode, gather, halving
from kernels.triton.programs.attention import attention_kernel
from kernels.triton.programs.decode import decode_merge_kernel, decode_part_kernel
from kernels.triton.programs.gather import gather_kernel
from kernels.triton.programs.halving import halving_kernel
from kernels.triton.support import DTYPES, HEAD_SIZES
from kernels.triton.tiles import FAMILIES, Family

_NAMES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}
_FLOAT_POINTERS = {"log_weights", "lse", "part_out", "part_lse", "work", "weights", "out_weights"}
_INT_POINTERS = {"prefix_lengths", "lengths", "starts", "tokens", "out_tokens"}
_OTHER_POINTERS = {"randoms": "*fp64", "kept": "*i64", "index": "*i64"}
# Pointers to keys, values and whatever else has their dtype.
_ENTRIES = {"q", "keys", "values", "prefix_keys", "prefix_values", "out", "kept_keys", "kept_values"}
_ENTRIES |= {"out_keys", "out_values"}


@dataclass(frozen=True)
class Launch:
    """A program, the family of GPUs to compile it for, the dtype of its entries, constants and options."""

    program: Any
    family: Family
    dtype: str
    constants: dict[str, Any]
    options: dict[str, int]

    @property
    def name(self) -> str:
        """Such as attention-sm90-bf16-d128; unique."""
        program = self.program.fn.__name__.removesuffix("_kernel").replace("_", "-")
        tf32 = "-tf32" if self.constants.get("PRECISION") == "tf32" else ""
        return f"{program}-sm{self.family}-{self.dtype}{tf32}-d{self.constants['HEAD_DIM']}"

    @property
    def signature(self) -> dict[str, str]:
        """Triton's type of each argument."""
        return {name: self._type(name) for name in self.program.arg_names}

    @property
    def aligned(self) -> list[str]:
        """Arguments that are always multiples of 16: addresses in bytes, strides in elements."""
        return [p.name for p in self.program.params if self._is_aligned(p)]

    @property
    def attributes(self) -> dict[tuple[int], list[list[object]]]:
        """What is noted about arguments, by number, as Triton does at a launch: its cache goes by it."""
        noted: dict[tuple[int], list[list[object]]] = {}
        for number, parameter in enumerate(self.program.params):
            kind = self._type(parameter.name)
            if self._is_aligned(parameter):
                noted[number,] = [["tt.divisibility", 16]]
            elif kind.startswith("*") or kind == "constexpr":
                noted[number,] = []
        return noted

    def digest(self) -> str:
        """Of all that decides what the compiler makes of it: sources, arguments, Triton's version."""
        text = "".join(source.read_text(encoding="utf-8") for source in self._sources())
        parts = (
            text,
            triton.__version__,
            self.name,
            self.signature,
            self.aligned,
            self.constants,
            self.options,
        )
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def _sources(self) -> list[Path]:
        """The program's file and those of this package that it imports, and they in their turn."""
        found = [Path(self.program.fn.__code__.co_filename)]
        for source in found:
            names = re.findall(
                r"^from kernels\.triton\.programs\.(\w+) import", source.read_text("utf-8"), re.M
            )
            found += [new for name in names if (new := source.with_name(f"{name}.py")) not in found]
        return found

    def _type(self, name: str) -> str:
        if name in self.constants:
            return "constexpr"
        if name in _ENTRIES:
            return f"*{self.dtype}"
        if name in _FLOAT_POINTERS:
            return "*fp32"
        if name in _INT_POINTERS:
            return "*i32"
        annotations: dict[str, str] = self.program.fn.__annotations__
        plain = {"tl.int64": "i64", "tl.float32": "fp32"}
        return _OTHER_POINTERS.get(name) or plain.get(annotations.get(name, ""), "i32")

    def _is_aligned(self, parameter: Any) -> bool:
        kind = self._type(parameter.name)
        if kind.startswith("*"):
            return not parameter.do_not_specialize_on_alignment
        return kind in ("i32", "i64") and not parameter.do_not_specialize


def launches() -> Iterator[Launch]:
    """All of them."""
    for family in FAMILIES:
        for head_size in HEAD_SIZES:
            for dtype in DTYPES:
                name = _NAMES[dtype]
                for tf32 in (False, True) if dtype == torch.float32 else (False,):
                    plan = attention.plan(dtype, head_size, family, tf32=tf32)
                    yield Launch(attention_kernel, family, name, *plan)
                yield Launch(decode_part_kernel, family, name, *decode.plan_part(dtype, head_size, family))
                yield Launch(decode_merge_kernel, family, name, *decode.plan_merge(head_size))
                yield Launch(halving_kernel, family, name, *halving.plan(dtype, head_size, family))
            for bits in ("i16", "i32"):
                yield Launch(gather_kernel, family, bits, *gather.plan(head_size))
