"""byte-id and thread-id: each legal value reads scale bytes that no other reads, and an illegal one is an error."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from impls.cuda.emulator.errors import EmulationError
from impls.cuda.emulator.tensor_cores import scales
from tests.cuda.emulator.tensor_cores import model
from tests.cuda.emulator.tensor_cores.operands import NVFP4, form, nvfp4_case

# Each byte of a warp's scale operand has a value of its own.
DATA = np.arange(128, dtype=np.uint8).view(np.uint32).reshape(1, 32)
BYTES = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}


@pytest.mark.parametrize("count", BYTES)
@pytest.mark.parametrize(
    "operand, threads, by_loop", [(scales.A, (0, 1), model.scales_a), (scales.B, (0, 1, 2, 3), model.scales_b)]
)
def test_each_selector_reads_its_own_bytes(count, operand, threads, by_loop):
    seen = {}
    for byte, thread in itertools.product(BYTES[count], threads):
        codes = operand.select(DATA, byte, thread, count)[0]
        assert codes.tolist() == by_loop(DATA[0], byte, thread, count)
        seen[byte, thread] = set(codes.reshape(-1).tolist())
    for one, other in itertools.combinations(seen, 2):
        assert not seen[one] & seen[other]


@pytest.mark.parametrize(
    "selectors, why",
    [
        ((1, 0, 0, 0), "byte-id-a is 1, but its valid values here are 0."),
        ((0, 2, 0, 0), "thread-id-a is 2, but its valid values here are 0, 1."),
        ((0, 0, 2, 0), "byte-id-b is 2, but its valid values here are 0."),
        ((0, 0, 0, 4), "thread-id-b is 4, but its valid values here are 0, 1, 2, 3."),
    ],
)
def test_out_of_range(selectors, why):
    with pytest.raises(EmulationError, match=why):
        form(NVFP4).multiply(*nvfp4_case(2, np.random.default_rng(1)), selectors)


def test_half_words_of_2x():
    mxf4 = form("m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0")
    with pytest.raises(EmulationError, match="byte-id-a is 3, but its valid values here are 0, 2"):
        mxf4.multiply(*nvfp4_case(1, np.random.default_rng(1)), (3, 0, 0, 0))


def test_selectors_in_registers():
    """Warps may differ; the threads of a warp may not."""
    instruction = form(NVFP4)
    operands = nvfp4_case(3, np.random.default_rng(2))
    thread_a, thread_b = np.array([0, 1, 1]), np.array([3, 0, 2])
    wanted = np.stack(
        [instruction.multiply(*(o[w] for o in operands), (0, int(thread_a[w]), 0, int(thread_b[w]))) for w in range(3)]
    )
    np.testing.assert_array_equal(instruction.multiply(*operands, (0, thread_a, 0, thread_b)), wanted)
    lanes = [np.broadcast_to(ids[:, None], (3, 32)).astype(np.uint16) for ids in (thread_a, thread_b)]
    np.testing.assert_array_equal(instruction.multiply(*operands, (np.uint16(0), lanes[0], 0, lanes[1])), wanted)
    torn = lanes[0].copy()
    torn[1, 31] ^= 1
    with pytest.raises(EmulationError, match="thread-id-a must have the same value in all threads of a warp"):
        instruction.multiply(*operands, (0, torn, 0, lanes[1]))
    beyond = np.array([0, 2, 1])
    with pytest.raises(EmulationError, match="thread-id-a is 2"):
        instruction.multiply(*operands, (0, beyond, 0, 0))
