"""Sectors and wavefronts of patterns whose cost NVIDIA's guides state, and of any pattern by counting one lane at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from impls.cuda.emulator.counting.traffic import Wavefronts, matrix_wavefronts, sectors, wavefronts

LANE = np.arange(32)
ALL = np.ones((1, 32), np.bool_)


def places(offsets: object) -> NDArray[np.uint64]:
    return np.broadcast_to(np.asarray(offsets, np.uint64), (1, 32))


def taken(offsets: object, size: int, active: NDArray[np.bool_] = ALL) -> int:
    return int(wavefronts(places(offsets), size, active).taken[0])


@pytest.mark.parametrize(
    ("what", "addresses", "size", "expected"),
    [
        ("floats side by side", 4 * LANE, 4, 4),
        ("the same, permuted", 4 * LANE[::-1], 4, 4),
        ("half a sector late", 4 * LANE + 16, 4, 5),
        ("bytes side by side", LANE, 1, 1),
        ("16-bit side by side", 2 * LANE, 2, 2),
        ("every second float", 8 * LANE, 4, 8),
        ("a sector each", 32 * LANE, 4, 32),
        ("all the same", 0 * LANE + 64, 4, 1),
        ("pairs of floats", 8 * LANE, 8, 8),
        ("four floats each", 16 * LANE, 16, 16),
        ("rows of 16 bytes, 128 apart", 128 * LANE, 16, 32),
        ("eight floats each", 32 * LANE, 32, 32),
        ("a sector that two quarters of the warp share counts twice", 16 * (LANE // 8 % 2), 16, 4),
    ],
)
def test_sectors_of_known_patterns(what: str, addresses: object, size: int, expected: int) -> None:
    base = 1 << 40
    assert sectors(places(addresses) + np.uint64(base), size, ALL).tolist() == [expected], what


def test_lanes_that_are_idle_touch_nothing() -> None:
    active = (LANE < 8)[None]
    assert sectors(places(4 * LANE), 4, active).tolist() == [1]
    assert taken(128 * LANE, 4, active) == 8
    nobody = np.zeros((1, 32), np.bool_)
    assert sectors(places(4 * LANE), 4, nobody).tolist() == [0]
    assert [part.tolist() for part in wavefronts(places(16 * LANE), 16, nobody)] == [[0], [0], [0]]


@pytest.mark.parametrize(
    ("what", "offsets", "size", "expected"),
    [
        # CUDA C++ Programming Guide, "Shared Memory", figures of strided and irregular accesses
        ("stride of one word", 4 * LANE, 4, 1),
        ("stride of two words: two-way conflict", 8 * LANE, 4, 2),
        ("stride of three words: none", 12 * LANE, 4, 1),
        ("a column of 32 floats a row", 128 * LANE, 4, 32),
        ("the same with rows padded to 33", 132 * LANE, 4, 1),
        ("a random permutation", 4 * ((7 * LANE + 3) % 32), 4, 1),
        ("one word for all", 0 * LANE + 20, 4, 1),
        ("one word for some, others apart", 4 * np.where(LANE < 5, 5, LANE), 4, 1),
        ("two words of one bank", 128 * (LANE % 2), 4, 2),
        ("bytes of the same words", LANE, 1, 1),
        ("16-bit, a word apart", 4 * LANE + 2, 2, 1),
        # of 8 and 16 bytes: a half and a quarter of the warp at a time
        ("doubles side by side", 8 * LANE, 8, 2),
        ("doubles, every second", 16 * LANE, 8, 4),
        ("float4 side by side", 16 * LANE, 16, 4),
        ("float4 that start late", 16 * LANE + 48, 16, 4),
        ("float4, every second", 32 * LANE, 16, 8),
        ("rows of 128 bytes, a column of 16", 128 * LANE, 16, 32),
        ("the same with rows padded to 144", 144 * LANE, 16, 4),
        ("the same, swizzled by the row", 128 * LANE + 16 * (LANE % 8), 16, 4),
        # pairs of lanes alike (lane ^ 1, lane ^ 2): NVIDIA's answer says 4 requests become 2
        ("float4 that neighbours share", 16 * (LANE // 2), 16, 2),
        ("float4 that every second lane shares", 16 * (LANE // 4 * 2 + LANE % 2), 16, 2),
        ("float4 for all", 0 * LANE, 16, 2),
        ("float4 that lane ^ 4 shares", 16 * (LANE // 8 * 4 + LANE % 4), 16, 4),
        ("doubles that neighbours share", 8 * (LANE // 2), 8, 1),
        ("one double for all", 0 * LANE, 8, 1),
    ],
)
def test_wavefronts_of_known_patterns(what: str, offsets: object, size: int, expected: int) -> None:
    assert taken(offsets, size) == expected, what


@pytest.mark.parametrize(("size", "ideal"), [(1, 1), (2, 1), (4, 1), (8, 2), (16, 4)])
def test_without_conflicts_a_warp_is_served_in_as_many_parts_as_its_width_asks(size: int, ideal: int) -> None:
    side_by_side = wavefronts(places(size * LANE), size, ALL)
    conflicting = wavefronts(places(128 * LANE), size, ALL)
    assert side_by_side.ideal.tolist() == side_by_side.taken.tolist() == [ideal]
    assert conflicting.ideal.tolist() == [ideal]
    assert conflicting.taken.tolist() == [32]


@pytest.mark.parametrize(("row_bytes", "per_matrix"), [(16, 1), (32, 2), (64, 4), (128, 8), (144, 1), (272, 1), (256, 8)])
def test_matrix_rows_conflict_by_their_distance(row_bytes: int, per_matrix: int) -> None:
    served = matrix_wavefronts(places(row_bytes * LANE), 4)
    assert served.taken.tolist() == [4 * per_matrix]
    assert served.ideal.tolist() == [4]
    assert matrix_wavefronts(places(row_bytes * LANE), 1).taken.tolist() == [per_matrix]


def test_matrix_rows_of_unused_lanes_do_not_count() -> None:
    rows = np.where(LANE < 16, 16 * LANE, 128 * LANE)
    assert matrix_wavefronts(places(rows), 2).taken.tolist() == [2]


def test_four_joined_words_cost_what_one_wide_access_does() -> None:
    """The assembler may make one access of 16 bytes of four to neighbouring words: the least of all four is that one's."""
    narrow = [wavefronts(places(16 * LANE + 4 * word), 4, ALL) for word in range(4)]
    assert sum(int(part.taken[0]) for part in narrow) == 16
    assert sum(int(part.least_bytes[0]) for part in narrow) == 128 * taken(16 * LANE, 16)


@pytest.mark.parametrize("size", [4, 8, 16])
def test_thousands_of_warps_are_each_served_as_alone(size: int) -> None:
    few = np.random.default_rng(0).integers(0, 2000, (7, 32), dtype=np.uint32) * np.uint32(size)
    alone = wavefronts(few, size, np.ones((7, 32), np.bool_))
    together = wavefronts(np.tile(few, (700, 1)), size, np.ones((4900, 32), np.bool_))
    for one, many in zip(alone, together, strict=True):
        assert many.tolist() == 700 * one.tolist()


# --- by one lane at a time ---


@st.composite
def accesses(draw: st.DrawFn, sizes: tuple[int, ...]) -> tuple[NDArray[np.uint64], int, NDArray[np.bool_]]:
    size = draw(st.sampled_from(sizes))
    count = draw(st.integers(1, 3))
    span = draw(st.sampled_from((4, 40, 400)))
    lanes = st.lists(st.integers(0, span), min_size=32 * count, max_size=32 * count)
    regular = st.tuples(st.integers(0, 20), st.integers(0, 40)).map(
        lambda line: [line[0] + line[1] * i for i in range(32 * count)]
    )
    chunks = np.array(draw(st.one_of(lanes, regular)), np.uint64).reshape(count, 32)
    everyone = st.just([True] * (32 * count))
    some = st.lists(st.booleans(), min_size=32 * count, max_size=32 * count)
    active = np.array(draw(st.one_of(everyone, some)), np.bool_).reshape(count, 32)
    return chunks * np.uint64(size), size, active


def groups(size: int) -> list[range]:
    width = {8: 16, 16: 8, 32: 8}.get(size, 32)
    return [range(start, start + width) for start in range(0, 32, width)]


@settings(max_examples=300, deadline=None)
@given(accesses((1, 2, 4, 8, 16, 32)))
def test_sectors_equal_a_count_lane_by_lane(access: tuple[NDArray[np.uint64], int, NDArray[np.bool_]]) -> None:
    addresses, size, active = access
    expected = [
        sum(
            len({(int(row[lane]) + byte) // 32 for lane in group if on[lane] for byte in range(size)}) for group in groups(size)
        )
        for row, on in zip(addresses, active, strict=True)
    ]
    assert sectors(addresses, size, active).tolist() == expected


def by_bank(offsets: list[int], size: int) -> int:
    wanted: dict[int, set[int]] = {}
    for offset in offsets:
        for byte in range(size):
            wanted.setdefault((offset + byte) // 4 % 32, set()).add((offset + byte) // 4)
    return max(map(len, wanted.values()), default=0)


def alike(row: NDArray[np.uint64], on: NDArray[np.bool_], lanes: range, distance: int) -> bool:
    return all(row[lane] == row[lane ^ distance] for lane in lanes if on[lane] and on[lane ^ distance])


def serve(row: NDArray[np.uint64], on: NDArray[np.bool_], size: int) -> int:
    parts = groups(size)
    if len(parts) > 1:
        joined = [range(first.start, second.stop) for first, second in zip(parts[::2], parts[1::2], strict=True)]
        parts = [
            part
            for whole, pair in zip(joined, zip(parts[::2], parts[1::2], strict=True), strict=True)
            for part in ([whole] if alike(row, on, whole, 1) or alike(row, on, whole, 2) else pair)
        ]
    return sum(by_bank([int(row[lane]) for lane in part if on[lane]], size) for part in parts)


@settings(max_examples=300, deadline=None)
@given(accesses((1, 2, 4, 8, 16)))
def test_wavefronts_equal_a_count_bank_by_bank(access: tuple[NDArray[np.uint64], int, NDArray[np.bool_]]) -> None:
    offsets, size, active = access
    found: Wavefronts = wavefronts(offsets, size, active)
    assert found.taken.tolist() == [serve(row, on, size) for row, on in zip(offsets, active, strict=True)]
    assert (found.ideal <= found.taken).all()
    assert (found.least_bytes <= 128 * found.taken).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 100), min_size=32, max_size=32), st.sampled_from((1, 2, 4)))
def test_matrix_wavefronts_equal_a_count_bank_by_bank(chunks: list[int], matrices: int) -> None:
    rows = [16 * chunk for chunk in chunks]
    expected = sum(by_bank(rows[8 * matrix : 8 * matrix + 8], 16) for matrix in range(matrices))
    assert matrix_wavefronts(places(rows), matrices).taken.tolist() == [expected]
