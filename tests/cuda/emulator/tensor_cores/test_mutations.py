"""A fault put into one table or one rounding step changes results: the tests of the arithmetic would notice it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from impls.cuda.emulator.tensor_cores import fragments, matrices, multiply, rounding, scales, windows
from tests.cuda.emulator.tensor_cores.operands import NVFP4, form, nvfp4_case, windowed_case

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
F16 = "m16n8k16.row.col.f32.f16.f16.f32"
WARPS = 8


def _nvfp4(c: float = 100.0) -> np.ndarray:
    return form(NVFP4).multiply(*nvfp4_case(WARPS, np.random.default_rng(1), c=c), (0, 1, 0, 2))


def _f16() -> np.ndarray:
    instruction = form(F16)
    return instruction.multiply(*windowed_case(instruction, "like activations", WARPS, np.random.default_rng(1)))


def _to_nearest(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float32).view(np.uint32)


def _rows_swapped(table: np.ndarray) -> np.ndarray:
    swapped = table.copy()
    swapped[[2, 3]] = table[[3, 2]]
    return swapped


def _bytes_swapped(select):
    return lambda *arguments: select(*arguments)[..., [1, 0, 2, 3]]


MUTATIONS = {
    "f32 to nearest": lambda patch: patch.setattr(rounding, "single_toward_zero", _to_nearest),
    "rows of A": lambda patch: patch.setitem(fragments.A_WORDS, 4, _rows_swapped(fragments.A_WORDS[4])),
    "columns of B": lambda patch: patch.setitem(fragments.B_WORDS, 2, _rows_swapped(fragments.B_WORDS[2])),
    "rows of C": lambda patch: patch.setattr(fragments, "C_VALUES", _rows_swapped(fragments.C_VALUES)),
    "rows of D": lambda patch: patch.setattr(fragments, "D_ELEMENTS", _rows_swapped(fragments.D_ELEMENTS)),
}
SCALE_MUTATIONS = {
    "scale bytes of A": lambda patch: patch.setattr(scales.Scales, "select", _bytes_swapped(scales.Scales.select)),
    "scale lanes of A": lambda patch: patch.setattr(
        scales, "A", replace(scales.A, lanes=4 * (np.arange(16) & 7))
    ),  # both rows of a quad from one lane
    "scale lanes of B": lambda patch: patch.setattr(scales, "B", replace(scales.B, lanes=4 * (np.arange(8) ^ 1))),
    "thread-id of A": lambda patch: patch.setattr(scales, "A", replace(scales.A, thread_step=1)),
    "thread-id of B": lambda patch: patch.setattr(scales, "B", replace(scales.B, thread_step=0)),
}


@pytest.mark.parametrize("fault", MUTATIONS)
@pytest.mark.parametrize("instruction", [_f16, _nvfp4])
def test_fault_shows(fault, instruction, monkeypatch):
    right = instruction()
    MUTATIONS[fault](monkeypatch)
    assert (instruction() != right).mean() > 0.01


@pytest.mark.parametrize("fault", SCALE_MUTATIONS)
def test_scale_fault_shows(fault, monkeypatch):
    right = _nvfp4()
    SCALE_MUTATIONS[fault](monkeypatch)
    assert (_nvfp4() != right).mean() > 0.3


@pytest.mark.parametrize("instruction", [_f16, lambda: _nvfp4(c=1e12)], ids=["f16", "nvfp4 under a large C"])
def test_one_bit_less_shows(instruction, monkeypatch):
    right = instruction()
    fused_sum = windows.fused_sum
    monkeypatch.setattr(multiply, "fused_sum", lambda *arguments: fused_sum(*arguments[:-1], arguments[-1] - 1))
    assert (instruction() != right).any()


def test_transposed_table_shows(monkeypatch):
    """What stmatrix stores changes with its table."""
    store = matrices.stmatrix(("sync", "aligned", "m8n8", "x1", "trans", "b16"))
    registers = np.random.default_rng(2).integers(0, 1 << 32, (1, 32, 1), dtype=np.uint32)
    assert (replace(store, source=store.source[::-1]).to_rows(registers) != store.to_rows(registers)).any()
