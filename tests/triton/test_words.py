"""The PTX that decodes two words at a time, executed bit by bit."""

from __future__ import annotations

import pytest
import torch

from impls.nvfp4 import unpack_codes
from tests.triton.ptx import MASK, float_of, multiplied


@pytest.mark.parametrize(("kind", "width", "mantissa", "unit"), [("_BF16", 16, 7, 2.0**-126), ("_F16", 8, 3, 2.0**-6)])
def test_every_code_is_decoded_in_every_place_of_both_words(kind, width, mantissa, unit):
    from impls.triton import words

    ptx = getattr(words, kind).value
    codes = torch.randint(0, 256, (64, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    for code in range(16):
        codes[code] = code * 0x11  # each code in each place
    values = unpack_codes(codes)
    for line, (first, second) in enumerate(codes.view(torch.int32).tolist()):
        found = multiplied(ptx, {"$8": first & MASK, "$9": second & MASK})
        assert sorted(found) == [f"${element}" for element in range(8)]
        for element in range(8):
            pair = found[f"${element}"]
            of_both = [float_of(pair >> place & (1 << width) - 1, mantissa, width) for place in (0, width)]
            assert of_both == (values[line, [element, 8 + element]] * unit).tolist()
