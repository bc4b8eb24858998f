"""The PTX of the conversion executed in numpy, so that Triton's interpreter can run what a GPU runs.

    with executed():
        ...kernels of `impls.hybrid.convert_kernels`, interpreted, decode and turn by PTX

Only what that PTX is made of is known; anything else raises. PTX ISA 9.0, sections "Integer Arithmetic", "Logic and Shift",
"Half Precision Floating Point" and "Data Movement and Conversion Instructions".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import torch
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from impls.hybrid import convert_kernels

Words = npt.NDArray[np.uint32]
"""The value of a register in each thread."""
E4M3_MAX = 448.0


@contextmanager
def executed(has_e4m3: bool) -> Iterator[None]:
    """Kernels decode by PTX in here. has_e4m3: E4M3 is rounded by its instruction too, as by GPUs that have it."""
    table = convert_kernels._table
    with (
        mock.patch.object(convert_kernels, "_INTERPRETED", tl.constexpr(False)),
        mock.patch.object(convert_kernels, "_table", lambda scale, HAS_E4M3: table(scale, has_e4m3)),  # noqa: N803
        mock.patch.object(tl, "inline_asm_elementwise", _elementwise),
    ):
        yield


def run(ptx: str, inputs: list[Words], outputs: int) -> list[Words]:
    """What the registers $0 ... $(outputs - 1) hold after `ptx`; the ones behind them held `inputs` before."""
    registers = {f"${outputs + i}": value for i, value in enumerate(inputs)}
    shape = np.broadcast_shapes(*(value.shape for value in inputs))
    for statement in ptx.replace("\n", " ").strip().removeprefix("{").removesuffix("}").split(";"):
        if not statement.strip() or statement.strip().startswith(".reg"):
            continue
        name, rest = statement.split(None, 1)
        target, *sources = (word for word in re.findall(r"[$\w]+", rest))
        values = [registers[word] if word in registers else np.full(shape, int(word, 0), np.uint32) for word in sources]
        with np.errstate(all="ignore"):
            registers[target] = _INSTRUCTIONS[name](*values)
    return [registers[f"${i}"] for i in range(outputs)]


def _elementwise(asm: Any, constraints: Any, args: Any, dtype: Any, is_pure: Any, pack: Any) -> tuple[Any, ...]:
    """As `tl.inline_asm_elementwise`, of int32 and float32 tensors of one shape, to int32."""
    assert pack == 1 and getattr(constraints, "value", constraints).count("=&r") == len(dtype)
    found = run(getattr(asm, "value", asm), [each.handle.data.view(np.uint32) for each in args], len(dtype))
    kind = tl.block_type(tl.int32, args[0].shape)
    return tuple(tl.tensor(TensorHandle(word.view(np.int32), tl.int32), kind) for word in found)


def _permute(a: Words, b: Words, selector: Words) -> Words:
    both = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    result = np.zeros_like(a)
    for i in range(4):
        nibble = selector >> np.uint32(4 * i) & np.uint32(15)
        byte = (both >> (nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8)).astype(np.uint32) & np.uint32(0xFF)
        byte = np.where(nibble & np.uint32(8), (byte >> np.uint32(7)) * np.uint32(0xFF), byte)
        result |= byte << np.uint32(8 * i)
    return result


def _by_table(a: Words, b: Words, c: Words, table: Words) -> Words:
    """lop3: bit 4a + 2b + c of the table, for each bit."""
    result = np.zeros_like(a)
    for row in range(8):
        if int(table.flat[0]) >> row & 1:
            result |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return result


def _halves(dtype: torch.dtype, *values: Words) -> list[torch.Tensor]:
    """Each value as float64 [..., 2], the lower half first."""
    return [torch.from_numpy(np.ascontiguousarray(value)[..., None].view(np.int16)).view(dtype).double() for value in values]


def _joined(values: torch.Tensor, dtype: torch.dtype) -> Words:
    return values.to(dtype).view(torch.int16).numpy().view(np.uint32)[..., 0]


def _multiply_halves(a: Words, b: Words) -> Words:
    x, y = _halves(torch.float16, a, b)
    return _joined(x * y, torch.float16)


def _fused_bfloat16(a: Words, b: Words, c: Words) -> Words:
    x, y, z = _halves(torch.bfloat16, a, b, c)
    return _joined(x * y + z, torch.bfloat16)


def _to_bfloat16(high: Words, low: Words) -> Words:
    return _joined(torch.from_numpy(np.stack([low, high], -1).view(np.float32)), torch.bfloat16)


def _to_e4m3(a: Words) -> Words:
    (x,) = _halves(torch.float16, a)
    found = x.clamp(-E4M3_MAX, E4M3_MAX).float().to(torch.float8_e4m3fn).view(torch.uint8).numpy().astype(np.uint32)
    return found[..., 0] | found[..., 1] << np.uint32(8)


def _move(low: Words, high: Words | None = None) -> Words:
    return low.copy() if high is None else low & np.uint32(0xFFFF) | high << np.uint32(16)


_INSTRUCTIONS: dict[str, Callable[..., Words]] = {
    "mov.b32": _move,
    "shl.b32": lambda a, count: a << count,
    "shr.u32": lambda a, count: a >> count,
    "and.b32": lambda a, b: a & b,
    "lop3.b32": _by_table,
    "prmt.b32": _permute,
    "mul.rn.f16x2": _multiply_halves,
    "fma.rn.bf16x2": _fused_bfloat16,
    "mul.rn.f32": lambda a, b: (a.view(np.float32) * b.view(np.float32)).view(np.uint32),
    "cvt.rn.bf16x2.f32": _to_bfloat16,
    "cvt.rn.satfinite.e4m3x2.f16x2": _to_e4m3,
}
