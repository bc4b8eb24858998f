"""Small kernels, written by hand, and their launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from impls.cuda.emulator.emulate import Kernel, Report, emulate
from impls.cuda.emulator.errors import EmulationError

HEAD = ".version 9.0\n.target sm_100a\n.address_size 64\n"
TYPES = {1: ".u8", 2: ".u16", 4: ".u32", 8: ".u64"}
REGISTERS = (
    ".reg .pred %p<16>; .reg .b16 %h<16>; .reg .b32 %r<40>; .reg .b64 %d<40>; .reg .f32 %f<16>;\n"
    ".reg .b32 %t, %lane, %warp, %block, %n, %flat; .reg .b64 %global;"
)
"""Beside those for whatever use: the thread in its block, its lane, warp and block, and threads of a block."""
PRELUDE = """
mov.u32 %t, %tid.x; mov.u32 %lane, %laneid; shr.u32 %warp, %t, 5; mov.u32 %block, %ctaid.x; mov.u32 %n, %ntid.x;
mad.lo.u32 %flat, %block, %n, %t; cvt.u64.u32 %global, %flat;
"""


def module(body: str, arguments: Sequence[Any], globals_: str = "", prelude: bool = True) -> str:
    """PTX of a kernel `k`. `%a0`, `%a1`... are the pointers of the arguments, `%at0`, `%at1`... 4 bytes further for each thread
    of the grid, `%wide0`, ... 8 bytes; scalars are `%s0`, `%s1`..., in 32 bits, or `%a0`... if they have 64."""
    parameters, loads = [], []
    for number, argument in enumerate(arguments):
        size = argument.dtype.itemsize if isinstance(argument, np.generic) else 8
        parameters.append(f".param {TYPES[size]} q{number}")
        if size == 8:
            loads.append(f".reg .b64 %a{number}; ld.param.u64 %a{number}, [q{number}];")
        else:
            loads.append(f".reg .b32 %s{number}; ld.param{TYPES[size]} %s{number}, [q{number}];")
        if prelude and not isinstance(argument, np.generic):
            for name, bytes_ in (("at", 4), ("wide", 8)):
                loads.append(f".reg .b64 %{name}{number}; mad.lo.u64 %{name}{number}, %global, {bytes_}, %a{number};")
    start = PRELUDE if prelude else ""
    inner = "\n".join((REGISTERS, start, *loads, body.strip(), "ret;"))
    return f"{HEAD}{globals_}\n.visible .entry k({', '.join(parameters)})\n{{\n{inner}\n}}\n"


def kernel(
    body: str,
    *arguments: Any,
    grid: int = 1,
    block: int | tuple[int, int, int] = 32,
    globals_: str = "",
    prelude: bool = True,
    shared: int = 0,
    overlaps: bool = False,
) -> Kernel:
    """A launch of `module`."""
    blocks = block if isinstance(block, tuple) else (block, 1, 1)
    text = module(body, arguments, globals_, prelude)
    return Kernel(text, "k", (grid, 1, 1), blocks, arguments, shared, overlaps)


def run(body: str, *arguments: Any, options: dict[str, Any] | None = None, **launch: Any) -> Report:
    """Run the kernel with this body under every schedule."""
    return emulate([kernel(body, *arguments, **launch)], **(options or {}))


def fails(
    sentence: str, body: str, *arguments: Any, kind: type[EmulationError] = EmulationError, **launch: Any
) -> EmulationError:
    """The error, whose sentence matches `sentence`, that the kernel ends with; it leaves the arguments as they were."""
    before = [np.array(argument, copy=True) for argument in arguments]
    with pytest.raises(kind, match=sentence) as found:
        run(body, *arguments, **launch)
    for array, kept in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(array, kept)
    return found.value


def words(count: int = 32) -> np.ndarray[Any, Any]:
    """Room for results: uint32, of a value that no kernel here leaves."""
    return np.full(count, 0xDEAD, np.uint32)
