"""The PTX that decodes packed weights, executed bit by bit."""

from __future__ import annotations

import pytest
import torch

from impls.nvfp4 import NVFP4Tensor, unpack_codes
from impls.weights.pack import pack
from tests.triton.ptx import MASK, float_of, multiplied

SCALE = {"bf16": (7, 2.0**119, 2.0**-7), "f16": (10, 2.0**7, 2.0**-7)}
"""{format: (bits of the mantissa, the scale, what an element of E2M1 is multiplied by in all)}"""


def weights(codes: torch.Tensor) -> NVFP4Tensor:
    """Codes [N, K / 2] with scales of 1."""
    scales = torch.full((codes.shape[0], codes.shape[1] // 8), 0x38, dtype=torch.uint8).view(torch.float8_e4m3fn)
    return NVFP4Tensor(codes, scales, torch.tensor(1.0))


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_every_code_is_decoded_in_every_place(kind):
    from impls.weights import decode

    g = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 256, (64, 64), generator=g, dtype=torch.uint8)
    for code in range(16):
        codes[code] = code * 0x11  # each code in each place
    values = unpack_codes(codes)
    packed = pack(weights(codes))["codes"][0]
    words = packed.view(torch.int32).tolist()
    mantissa, scale, whole = SCALE[kind]
    for line, row in enumerate(words):
        for number, word in enumerate(row):
            for half, name in enumerate(("LOW", "HIGH")):
                ptx = getattr(decode, f"_{name}_{kind.upper()}").value
                first, second = multiplied(ptx, {"$2": word & MASK}).values()
                bits = (first & 0xFFFF, first >> 16, second & 0xFFFF, second >> 16)
                start = 64 * half + 4 * number
                found = [float_of(one, mantissa) * scale for one in bits]
                assert found == (values[line, start : start + 4] * whole).tolist()


def test_packing_pads_with_zeros_and_keeps_what_is_there():
    codes = torch.full((3, 72), 0xFF, dtype=torch.uint8)  # 144 elements: a tile and a block
    packed = pack(weights(codes))
    assert packed["codes"].shape == (2, 3, 64)
    assert packed["scales"].shape == (2, 3, 8)
    assert packed["scales"][0].unique().tolist() == [0x38]
    assert packed["scales"][1, :, 0].unique().tolist() == [0x38]
    assert packed["scales"][1, :, 1:].count_nonzero() == 0
    assert packed["codes"][0].unique().tolist() == [0xFF]


def test_packed_model_weights_take_no_more_bytes():
    w4 = weights(torch.zeros(32, 2048, dtype=torch.uint8))
    packed = pack(w4)
    assert packed["codes"].numel() + packed["scales"].numel() == w4.nbytes
