"""Time of mma.sync by kind and by warps in step. Run: python -m tests.cuda.emulator.tensor_cores.speed."""

from __future__ import annotations

from timeit import repeat

import numpy as np

from tests.cuda.emulator.tensor_cores.operands import NVFP4, form, nvfp4_case, windowed_case

FORMS = (
    "m16n8k16.row.col.f32.f16.f16.f32",
    "m16n8k16.row.col.f16.f16.f16.f16",
    "m16n8k16.row.col.f32.bf16.bf16.f32",
    "m16n8k8.row.col.f32.tf32.tf32.f32",
    "m16n8k32.row.col.f32.e4m3.e4m3.f32",
    NVFP4,
)


def speed(text: str, warps: int) -> float:
    """Seconds of one call, the best of several."""
    instruction, random = form(text), np.random.default_rng(1)
    operands = (
        nvfp4_case(warps, random) if instruction.scaled else windowed_case(instruction, "like activations", warps, random)
    )
    return min(repeat(lambda: instruction.multiply(*operands), number=20, repeat=5)) / 20


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        for text in FORMS:
            for warps in (1, 4, 32):
                seconds = speed(text, warps)
                a_product = seconds / warps / form(text).macs
                print(f"{text:90} {warps:2} warps {seconds * 1e6:6.0f} us {a_product * 1e9:6.2f} ns a product")
