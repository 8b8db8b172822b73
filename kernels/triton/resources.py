"""What each program takes of a GPU: compiled ahead of time, without one, and assembled by Triton's ptxas."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels.triton.launches import Launch

# Bytes of shared memory that one program, and one multiprocessor, may have. Programs for sm_80 stay within
# what sm_86 and sm_89 give; the multiprocessor's figure is that of sm_80. Source: CUDA C++ Programming Guide,
# compute capabilities.
SHARED_PER_PROGRAM = {80: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}
_SHARED_PER_MULTIPROCESSOR = {80: 164 * 1024, 90: 228 * 1024, 100: 228 * 1024}
_SHARED_RESERVED = 1024  # by the system, of each program
_REGISTERS = 65536
_REGISTERS_OF_A_WARP = 256  # are handed out at a time
_WARPS = 64
_PROGRAMS = 32


@dataclass(frozen=True)
class Resources:
    """registers of a thread, bytes spilled and of shared memory of a program, its warps, wgmma in its PTX."""

    registers: int
    spilled: int
    shared: int
    warps: int
    wgmma: int

    def occupancy(self, family: int) -> float:
        """Share of a multiprocessor's warps that can be resident, in theory."""
        of_a_warp = -(-self.registers * 32 // _REGISTERS_OF_A_WARP) * _REGISTERS_OF_A_WARP
        by_registers = _REGISTERS // (of_a_warp * self.warps)
        by_shared = _SHARED_PER_MULTIPROCESSOR[family] // (self.shared + _SHARED_RESERVED)
        programs = min(by_registers, by_shared, _WARPS // self.warps, _PROGRAMS)
        return programs * self.warps / _WARPS


def measure(launch: Launch) -> Resources:
    """Compiles a launch for its family. RuntimeError in a process that interprets Triton instead."""
    log = io.StringIO()
    with _fresh(), contextlib.redirect_stdout(log):
        compiled = compile_launch(launch, launch.family)
    said = log.getvalue()
    return Resources(
        registers=_number(r"Used (\d+) registers", said),
        spilled=_number(r"(\d+) bytes spill stores", said) + _number(r"(\d+) bytes spill loads", said),
        shared=compiled.metadata.shared,
        warps=compiled.metadata.num_warps,
        wgmma=compiled.asm["ptx"].count("wgmma.mma_async"),
    )


def compile_launch(launch: Launch, architecture: int) -> Any:
    """What Triton compiles for it, such as for architecture 90; from Triton's cache where it is there."""
    if triton.knobs.runtime.interpret:
        raise RuntimeError("TRITON_INTERPRET is set: this process interprets programs and compiles none")
    names = launch.program.arg_names
    source = ASTSource(
        launch.program,
        launch.signature,
        constexprs={(names.index(name),): value for name, value in launch.constants.items()},
        attrs=launch.attributes,
    )
    return triton.compile(source, GPUTarget("cuda", architecture, 32), options=launch.options)


@contextlib.contextmanager
def _fresh() -> Iterator[None]:
    """Has Triton compile anew, in a cache of its own, and print what ptxas -v says."""
    knobs: Any = triton.knobs
    with tempfile.TemporaryDirectory() as cache, knobs.cache.scope(), knobs.nvidia.scope():
        knobs.cache.dir = cache
        knobs.nvidia.dump_ptxas_log = True
        yield


def _number(pattern: str, said: str) -> int:
    found = re.search(pattern, said)
    if found is None:
        raise RuntimeError(f"ptxas says nothing that matches {pattern!r}: {said!r}")
    return int(found.group(1))
