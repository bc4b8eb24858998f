"""Loads, stores and addresses. PTX ISA 9.1, 9.7.9.8 (ld), 9.7.9.12 (st), 6.4.1.1 (operand size exceeding), 9.7.9.20 (cvta)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from impls.cuda.emulator.emulate import emulate
from impls.cuda.emulator.errors import EmulationError, InternalError
from impls.cuda.emulator.machine.memory import GlobalMemory
from impls.cuda.emulator.machine.steps import access as accesses
from tests.cuda.emulator.machine.kernels import fails, kernel, run, words

LANES = np.arange(32, dtype=np.uint32)
BYTES = np.random.default_rng(1).integers(0, 256, 32 * 32, dtype=np.uint8)


def moved(kind: str, count: int, register: str, space: str = "global") -> None:
    """Each lane moves its own element or vector, by way of `space`."""
    size = count * int(kind[1:]) // 8
    names = [f"%{register}{number}" for number in range(1, count + 1)]
    value = names[0] if count == 1 else f"{{{', '.join(names)}}}"
    vector = "" if count == 1 else f".v{count}"
    out = np.zeros(32 * size, np.uint8)
    way = f"st.{space}{vector}.{kind} [%r39], {value}; ld.{space}{vector}.{kind} {value}, [%r39];" if space != "global" else ""
    run(
        f"""mad.wide.u32 %d38, %t, {size}, %a0; mad.wide.u32 %d39, %t, {size}, %a1;
        mad.lo.u32 %r39, %t, {size if space == "shared" else 0}, 0;
        ld.global{vector}.{kind} {value}, [%d38]; {way} st.global{vector}.{kind} [%d39], {value};""",
        BYTES,
        out,
        globals_=".shared .align 32 .b8 room[1024];" if space == "shared" else "",
        shared=1024 if space == "shared" else 0,
    )
    np.testing.assert_array_equal(out, BYTES[: 32 * size])


@pytest.mark.parametrize(
    ("kind", "count", "register"),
    [
        *[("b8", count, "h") for count in (1, 2, 4)],
        *[("b16", count, "h") for count in (1, 2, 4)],
        *[("b32", count, "r") for count in (1, 2, 4, 8)],
        *[("b64", count, "d") for count in (1, 2, 4)],
    ],
)
def test_every_width_and_vector_moves_its_bytes_in_order(kind: str, count: int, register: str) -> None:
    moved(kind, count, register)
    moved(kind, count, register, "shared")


@pytest.mark.parametrize("kind", ["s8", "u8", "b8", "s16", "u16", "s32", "u32", "s64"])
@pytest.mark.parametrize("wide", [False, True])
def test_narrow_load_fills_the_register_with_sign_or_zeros(kind: str, wide: bool) -> None:
    size = int(kind[1:]) // 8
    if size == 8 and not wide:
        return
    out = np.zeros(32, np.uint64 if wide else np.uint32)
    register, at = ("%d1", "%wide1") if wide else ("%r1", "%at1")
    run(
        f"""mad.wide.u32 %d38, %t, {size}, %a0; ld.global.{kind} {register}, [%d38];
            st.global.u{64 if wide else 32} [{at}], {register};""",
        BYTES,
        out,
    )
    expected = BYTES.view(f"{'i' if kind[0] == 's' else 'u'}{size}")[:32]
    np.testing.assert_array_equal(out, expected.astype(np.int64).astype(out.dtype))


def test_narrow_store_takes_the_low_bits() -> None:
    out = np.zeros(32, np.uint8)
    run("add.u64 %d1, %a0, %global; add.u32 %r1, %lane, 0x4711F0; st.global.u8 [%d1], %r1;", out)
    np.testing.assert_array_equal(out, (LANES + 0xF0).astype(np.uint8))


def test_constant_of_a_store_and_a_result_that_nobody_wants() -> None:
    out = np.zeros(64, np.uint32)
    run("st.global.v2.s32 [%wide0], {-2, 7}; ld.global.v2.u32 {_, %r1}, [%wide0]; st.global.u32 [%wide0], %r1;", out)
    np.testing.assert_array_equal(out, 7)


def test_generic_addresses_of_shared_and_global_memory() -> None:
    """What is stored by a generic address is at the space's own, and the other way round."""
    out = words()
    run(
        """mov.u32 %r1, room; cvt.u64.u32 %d1, %r1; cvta.shared.u64 %d2, %d1; mad.wide.u32 %d3, %lane, 4, %d2;
        st.u32 [%d3], %lane; cvta.to.shared.u64 %d4, %d3; ld.shared.u32 %r3, [%d4]; cvta.global.u64 %d5, %at0;
        bar.warp.sync -1; ld.shared.u32 %r2, [room+4]; mad.lo.u32 %r3, %r2, 100, %r3; st.u32 [%d5], %r3;""",
        out,
        globals_=".shared .align 4 .b8 room[128];",
    )
    np.testing.assert_array_equal(out, LANES + 100)


def test_one_instruction_can_lead_to_several_spaces() -> None:
    """By generic addresses even lanes read shared memory, odd ones global memory, and every fourth its local memory."""
    given, out = LANES + 1000, words()
    run(
        """mov.u64 %d1, room; cvta.shared.u64 %d1, %d1; mad.wide.u32 %d1, %lane, 4, %d1; st.u32 [%d1], %lane;
        mov.u64 %d2, own; cvta.local.u64 %d2, %d2; add.u32 %r1, %lane, 2000; st.u32 [%d2+4], %r1; add.u64 %d2, %d2, 4;
        and.b32 %r2, %lane, 1; setp.eq.u32 %p1, %r2, 1; selp.b64 %d3, %at0, %d1, %p1;
        and.b32 %r3, %lane, 3; setp.eq.u32 %p2, %r3, 3; selp.b64 %d3, %d2, %d3, %p2;
        isspacep.shared %p3, %d3; isspacep.global %p4, %d3; isspacep.local %p5, %d3;
        ld.u32 %r4, [%d3]; @%p3 add.u32 %r4, %r4, 10000; @%p4 add.u32 %r4, %r4, 20000; @%p5 add.u32 %r4, %r4, 30000;
        st.global.u32 [%at1], %r4;""",
        given,
        out,
        globals_=".shared .align 4 .b8 room[128]; .local .align 4 .b8 own[8];",
    )
    expected = np.where(LANES % 2 == 1, 21000 + LANES, 10000 + LANES)
    np.testing.assert_array_equal(out, np.where(LANES % 4 == 3, 32000 + LANES, expected))


def test_local_memory_is_each_threads_own() -> None:
    out = words(64)
    run(
        """mov.u32 %r1, own; st.local.u32 [%r1+4], %t; st.local.u32 [own], 5; ld.local.v2.u32 {%r2, %r3}, [own];
            mad.lo.u32 %r2, %r2, 100, %r3; st.global.u32 [%at0], %r2;""",
        out,
        block=64,
        globals_=".local .align 8 .b8 own[8];",
    )
    np.testing.assert_array_equal(out, 500 + np.arange(64))


def test_variables_have_their_initial_values_and_are_one_for_all_launches() -> None:
    """A constant table, and a counter that two launches of one module count on."""
    out = words()
    first = kernel(
        """and.b32 %r1, %lane, 3; mul.wide.u32 %d1, %r1, 4; mov.u64 %d2, table; add.u64 %d1, %d1, %d2; ld.const.u32 %r2, [%d1];
        setp.eq.u32 %p1, %lane, 0; mov.u64 %d3, count; @%p1 atom.global.add.u32 %r3, [%d3], 1;
        ld.const.u32 %r4, [table+8]; mad.lo.u32 %r2, %r4, 1000, %r2; st.global.u32 [%at0], %r2;
        @%p1 ld.relaxed.gpu.global.u32 %r5, [count]; @%p1 st.global.u32 [%a0], %r5;""",
        out,
        globals_=".const .align 4 .b32 table[4] = {11, 22, 33}; .global .align 4 .u32 count = 7;",
    )
    emulate([first, first])
    np.testing.assert_array_equal(out[1:], 33000 + np.array([11, 22, 33, 0], np.uint32)[LANES % 4][1:])
    assert out[0] == 9


def test_parameters_of_every_type() -> None:
    out = np.zeros(6, np.uint64)
    run(
        """cvt.s64.s8 %d1, %s1; cvt.u64.u16 %d2, %s2; cvt.s64.s32 %d3, %s3; cvt.u64.u32 %d5, %s5; setp.eq.u32 %p1, %t, 0;
        ld.param.v2.u32 {%r1, %r2}, [q4]; mov.b64 %d6, {%r2, %r1};
        @%p1 st.global.v2.u64 [%a0], {%d1, %d2}; @%p1 st.global.v2.u64 [%a0+16], {%d3, %a4};
        @%p1 st.global.v2.u64 [%a0+32], {%d5, %d6};""",
        out,
        np.int8(-3),
        np.uint16(65535),
        np.int32(-70000),
        np.uint64(0x123456789ABCDEF0),
        np.float32(1.5),
    )
    expected = [-3, 65535, -70000, 0x123456789ABCDEF0, 0x3FC00000, -(2**64 - 0x9ABCDEF012345678) % 2**64]
    assert out.tolist() == [value % 2**64 for value in expected]


def test_arguments_that_do_not_fit_the_parameters() -> None:
    one = kernel("", np.float32(1))
    for wrong in ((), (np.float32(1), np.float32(1)), (np.float64(1),)):
        with pytest.raises(EmulationError, match="parameter"):
            emulate([type(one)(one.ptx, "k", (1, 1, 1), (32, 1, 1), wrong)])
    with pytest.raises(EmulationError, match="no entry called other; its entries: k"):
        emulate([type(one)(one.ptx, "other", (1, 1, 1), (32, 1, 1), one.arguments)])


def test_shared_memory_of_the_modules_other_kernels_counts_for_nothing() -> None:
    body = "st.shared.u32 [mine], 1;"
    fine = kernel(
        "setp.eq.u32 %p1, %t, 0; @%p1 st.shared.u32 [mine], %t;", globals_=".shared .b32 mine; .shared .b8 others[200000];"
    )
    emulate([fine], shared_limit=4)
    with pytest.raises(EmulationError, match="k wants 8 B of shared memory; a block has 4 B"):
        emulate([kernel(body, globals_=".shared .b32 mine;", shared=4)], shared_limit=4)


def test_dynamic_shared_memory_comes_after_the_static() -> None:
    out = words()
    run(
        """mov.u32 %r1, fixed; mov.u32 %r2, dynamic; setp.lt.u32 %p1, %r1, %r2; mad.lo.u32 %r3, %lane, 4, %r2;
        setp.eq.u32 %p2, %lane, 0; @%p2 st.shared.u32 [fixed], 3; st.shared.u32 [%r3], %lane; bar.warp.sync -1;
        ld.shared.u32 %r4, [%r3]; ld.shared.u32 %r5, [fixed];
        mad.lo.u32 %r4, %r5, 100, %r4; @!%p1 mov.u32 %r4, 0; st.global.u32 [%at0], %r4;""",
        out,
        globals_=".extern .shared .align 16 .b8 dynamic[]; .shared .b32 fixed;",
        shared=128,
    )
    np.testing.assert_array_equal(out, 300 + LANES)


@pytest.mark.parametrize(
    ("offset", "lane"), [(4, 31), (-4, 0), (64, 16), (1 << 40, 0), (-(1 << 40), 0), (-(1 << 39), 0), (384, 0)]
)
def test_first_byte_outside_an_array_is_told(offset: int, lane: int) -> None:
    given, other = words(), words()
    for access in (
        "ld.global.u32 %r1, [%d1];",
        "ld.u32 %r1, [%d1];",
        "st.global.u32 [%d1], %r2;",
        "atom.global.add.u32 %r1, [%d1], 1;",
    ):
        body = f"mov.u32 %r2, 1; add.u64 %d1, %at0, {offset}; {access} st.global.u32 [%at1], %r2;"
        fails(rf"PTX line \d+, block \(0, 0, 0\), warp 0, lane {lane}: out of bounds of global memory", body, given, other)


@pytest.mark.parametrize(
    "access",
    ["ld.global.u32 %r1, [%d1+-4];", "st.global.u32 [%d1+-4], %t;", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1+-16];"],
)
def test_element_before_a_null_pointer(access: str) -> None:
    """The end of the address space: the end of the access is 0 again."""
    fails("lane 0: out of bounds of global memory: .* B at 0xfffffffffffffff", f"mov.u64 %d1, 0; {access}", words())
    uneven = f"setp.eq.u32 %p1, %lane, 9; selp.b64 %d1, 0, %a0, %p1; add.u64 %d1, %d1, 16; @%p1 mov.u64 %d1, 0; {access}"
    fails("lane 9: out of bounds of global memory: .* B at 0xfffffffffffffff", uneven, words(64), options={"checks": False})


@pytest.mark.parametrize("error", [IndexError, ValueError, TypeError, AssertionError])
def test_fault_of_the_emulator_is_told_as_one(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise error("of the emulator")

    monkeypatch.setattr(accesses, "gather", broken)
    told = rf"PTX line \d+, block \(0, 0, 0\), warp 0: the emulator failed: {error.__name__}: of the emulator: ld.global.u32"
    found = fails(told, "ld.global.u32 %r1, [%at0];", words(), kind=InternalError)
    assert isinstance(found.__cause__, error)


def test_last_byte_inside_an_array_is_not() -> None:
    given = words(33)
    run("ld.global.u32 %r1, [%at0+4]; st.global.u32 [%at0+4], %lane;", given)
    np.testing.assert_array_equal(given[1:], LANES)


def test_lanes_that_take_no_part_may_have_any_address() -> None:
    out = words()
    run(
        """setp.lt.u32 %p1, %lane, 5; selp.b64 %d1, %at0, 3, %p1; @%p1 st.global.u32 [%d1], %lane;
            @%p1 ld.global.u32 %r1, [%d1];""",
        out,
    )
    np.testing.assert_array_equal(out, np.where(LANES < 5, LANES, 0xDEAD))


@pytest.mark.parametrize(
    ("sentence", "access"),
    [
        ("4 B at byte 128 of 128", "st.shared.u32 [%r1+4], 1;"),
        ("4 B at byte 4294967292 of 128", "st.shared.u32 [%r1+-128], 1;"),
        ("out of bounds of shared memory", "ld.shared.u32 %r2, [%r1+1048576];"),
        ("8 B at byte 18446744073709551608 of 12", "ld.local.u64 %d2, [-8];"),
        ("lane 31: out of bounds of local memory: 8 B at byte 8 of 12", "st.local.u64 [own+8], 1;"),
    ],
)
def test_outside_of_shared_and_local_memory(sentence: str, access: str) -> None:
    body = f"mov.u32 %r1, room; mad.lo.u32 %r1, %lane, 4, %r1; setp.eq.u32 %p1, %lane, 31; @%p1 {access}"
    fails(sentence, body, globals_=".shared .align 8 .b8 room[128]; .local .align 8 .b8 own[12];")


def test_tensors_that_share_memory_have_one_allocation() -> None:
    """A view in the middle of a storage: what lies before and behind it can be reached, and is the other tensor's."""
    storage = torch.arange(96, dtype=torch.int32)
    left, middle = storage[:32], storage[32:64]
    run(
        "ld.global.u32 %r1, [%at1+-128]; ld.global.u32 %r2, [%at1+128]; add.u32 %r1, %r1, %r2; st.global.u32 [%at0], %r1;",
        left,
        middle,
    )
    assert storage[:32].tolist() == [2 * lane + 64 for lane in range(32)]
    array = np.arange(64, dtype=np.uint32).reshape(2, 32)
    run("ld.global.u32 %r1, [%at0+-128]; st.global.u32 [%at0], %r1;", array[1])
    np.testing.assert_array_equal(array[1], LANES)


def test_arrays_that_overlap_have_one_allocation() -> None:
    """None of them is a NumPy view of another: they share memory all the same."""
    swap = """ld.global.u32 %r1, [%at0]; ld.global.u32 %r2, [%at1]; bar.warp.sync -1; st.global.u32 [%at0], %r2;
        bar.warp.sync -1; st.global.u32 [%at1], %r1;"""
    for first, second in ((0, 1), (1, 0), (0, 32), (32, 0)):
        storage = torch.arange(64, dtype=torch.int32)
        expected = storage.clone()
        one, other = (expected[start : start + 32].clone() for start in (first, second))
        expected[first : first + 32] = other
        expected[second : second + 32] = one
        run(swap, *(storage[start:].numpy() for start in (first, second)))
        assert storage.tolist() == expected.tolist()
    room = bytearray(range(128)) * 2
    run(
        "st.global.u32 [%at0], 1; bar.warp.sync -1; ld.global.u32 %r1, [%at1];",
        *(np.frombuffer(room, np.uint32, 33, offset) for offset in (64, 4)),
    )
    assert room[:64] == bytes(range(64)) and room[64:192] == b"\1\0\0\0" * 32 and room[192:] == bytes(range(64, 128))


def test_addresses_do_not_depend_on_where_the_caller_has_the_memory() -> None:
    """Parts of one memory that only touch are two allocations, like arrays that are anywhere."""
    storage = bytearray(512)
    left, right = (np.frombuffer(storage, np.uint8, 256, offset) for offset in (0, 256))
    for pair in ((left, right), (right, left), (np.zeros(256, np.uint8), np.zeros(256, np.uint8))):
        memory = GlobalMemory()
        memory.reserve([(each, "") for each in pair])
        assert [memory.place(each) - (1 << 40) for each in pair] == [0, 512]
    for first, second in ((0, 8), (8, 0)):
        memory = GlobalMemory()
        parts = [np.frombuffer(storage, np.uint8, 100, offset) for offset in (first, second)]
        memory.reserve([(parts[0], ""), (np.zeros(4), ""), (parts[1], "")])
        assert [memory.place(each) - (1 << 40) for each in parts] == [first, second]


def test_memory_that_steps_over_elements() -> None:
    """Every second element, also from the last to the first."""
    for step in (2, -2):
        storage = torch.zeros(64, dtype=torch.int32)
        array = storage.numpy()[::step] if step < 0 else storage[::step].numpy()
        run(f"setp.ne.u32 %p1, %t, 0; @%p1 ret; st.global.u32 [%a0+{4 * 31 * step}], 5;", array)
        assert array[31] == 5 and int(storage.sum()) == 5


@pytest.mark.parametrize(
    "access",
    ["st.global.u32 [%at1], 1;", "st.u32 [%at1], 1;", "red.global.add.u32 [%at1], 1;", "st.relaxed.gpu.global.u32 [%at1], 1;"],
)
def test_store_to_a_read_only_array(access: str) -> None:
    given, out = np.frombuffer(bytes(128), np.uint32), words()
    view = words()
    view.flags.writeable = False
    for array in (given, view[:]):
        told = r"PTX line \d+, block \(0, 0, 0\), warp 0, lane 5: argument 1 is read-only"
        fails(told, f"setp.gt.u32 %p1, %t, 4; @%p1 {access}", out, array)
        run("ld.global.u32 %r1, [%at1]; st.global.u32 [%at0], %r1; setp.gt.u32 %p1, %t, 99; @%p1 " + access, out, array)
        np.testing.assert_array_equal(out, array)


@pytest.mark.parametrize(
    ("access", "size"), [("u16", 2), ("u32", 4), ("v2.u32", 8), ("v4.u32", 16), ("v8.b32", 32), ("v4.u8", 4)]
)
def test_misaligned_access_is_told(access: str, size: int) -> None:
    """ "The address must be naturally aligned to a multiple of the access size"."""
    count = int(access[1]) if access[0] == "v" else 1
    registers = [f"%{'h' if access.endswith('u8') else 'r'}{number}" for number in range(1, count + 1)]
    value = registers[0] if count == 1 else f"{{{', '.join(registers)}}}"
    given = np.zeros(256, np.uint8)
    fails(
        rf"lane 3: {size} B at .* of global memory are misaligned",
        f"""setp.eq.u32 %p1, %lane, 3; selp.b64 %d1, {size // 2}, 0, %p1; add.u64 %d1, %d1, %a0;
            ld.global.{access} {value}, [%d1];""",
        given,
    )


def test_bytes_of_shared_memory_that_nobody_wrote() -> None:
    room = ".shared .align 16 .b8 room[512];"
    told = "warp 0, lane 7: byte {} or one after it of shared memory was never written"
    start = "mov.u32 %r1, room; mad.lo.u32 %r1, %lane, 16, %r1; setp.ne.u32 %p1, %lane, 7; "
    written = """st.shared.v2.u32 [%r1], {%t, %t}; st.shared.u16 [%r1+8], %t; @%p1 st.shared.u16 [%r1+10], %t;
        st.shared.u32 [%r1+12], %t;"""
    fails(told.format(112), start + written + "ld.shared.v4.u32 {%r2, %r3, %r4, %r5}, [%r1];", globals_=room)
    fails(told.format(120), start + written + "ld.shared.u32 %r4, [%r1+8];", globals_=room)
    run(start + written + "ld.shared.u16 %r4, [%r1+8]; @%p1 ld.shared.u32 %r4, [%r1+8];", globals_=room)


def test_bytes_of_local_memory_that_this_thread_did_not_write() -> None:
    body = "setp.lt.u32 %p1, %t, 40; @%p1 st.local.u32 [own], 1; ld.local.u32 %r1, [own];"
    fails("warp 1, lane 8: byte 0 or one after it of local memory", body, block=64, globals_=".local .b32 own;")


@pytest.mark.parametrize(("writes", "misses"), [(0, 1), (99, 0)])
def test_shared_memory_is_forgotten_between_blocks(writes: int, misses: int) -> None:
    body = f"setp.eq.u32 %p1, %block, {writes}; @%p1 st.shared.u32 [room], 1; bar.sync 0; ld.shared.u32 %r1, [room];"
    options = {"schedules": ("forward",)}
    fails(rf"block \({misses}, 0, 0\), .*never written", body, grid=100, globals_=".shared .b32 room;", options=options)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("st.global.u32 [%at0], %r1;", "%r1"),  # a value that leaves the thread
        ("add.u32 %r2, %r1, %r3; st.global.u32 [%at0], %r2;", "%r2"),  # of undefined ones alone
        ("setp.lt.u32 %p1, %t, 9; @%p1 mov.u32 %r1, 1; st.global.u32 [%at0], %r1;", "%r1"),  # in some lanes
        ("@%p2 st.global.u32 [%at0], 1;", "%p2"),
        ("@%p2 bra END; END:", "%p2"),
        ("ld.global.u32 %r1, [%d9];", "%d9"),
    ],
)
def test_register_that_was_never_written(body: str, told: str) -> None:
    fails(f"lane {9 if 'mov' in body else 0}: register {told} is used before it is written", body, words())


def test_registers_start_anew_in_every_block() -> None:
    """What a register holds that was never written is the same in all blocks, whatever those before left there."""
    out = words(32 * 200)
    run("or.b32 %r1, %t, %r9; st.global.u32 [%at0], %r1; xor.b32 %r9, %t, %t;", out, grid=200)
    np.testing.assert_array_equal(out, 0xFFFFFFFF)


def test_part_of_a_register_that_was_never_written_may_be_dropped() -> None:
    """As `undefined_registers` says: compilers combine an undefined half with a defined one, and take the other out again."""
    out = words()
    run("mov.b64 %d1, {%t, %r9}; mov.b64 {%r1, _}, %d1; prmt.b32 %r2, %r1, %r9, 0x3210; st.global.u32 [%at0], %r2;", out)
    np.testing.assert_array_equal(out, LANES)


def test_lanes_of_one_store_that_write_different_values_to_one_place() -> None:
    fails("lane 0: another lane of the same instruction writes something else", "st.global.u32 [%a0], %lane;", words())
    fails("lane 0: another lane", "st.shared.u32 [room], %lane;", globals_=".shared .b32 room;")
    out = words()
    run("st.global.u32 [%a0], 6;", out)
    assert out[0] == 6


def test_error_names_line_of_the_ptx_and_of_the_source() -> None:
    """The store is line 13 of the text, and `.loc` says line 77 of file 1."""
    one = kernel("setp.eq.u32 %p1, %t, 37;\n.loc 1 77 3\n@%p1 st.global.u32 [4], 2;", block=64, grid=2)
    one = type(one)(
        one.ptx.replace(".visible", '.file 1 "scale.cu"\n.visible'),
        *[getattr(one, each) for each in ("entry", "grid", "block", "arguments")],
    )
    line = next(number for number, text in enumerate(one.ptx.splitlines(), 1) if "[4], 2" in text)
    with pytest.raises(EmulationError) as found:
        emulate([one], schedules=("forward",))
    assert str(found.value).startswith(
        f"PTX line {line}, scale.cu:77, block (0, 0, 0), warp 1, lane 5: out of bounds of global memory: 4 B at 0x4, which"
    )
    assert str(found.value).endswith("@%p1 st.global.u32 [4], 2;")


def test_unknown_instructions_and_modifiers_are_named() -> None:
    for text, told in {
        "ld.global.fancy.u32 %r1, [%at0];": ".fancy of ld.global.fancy.u32",
        "frobnicate.u32 %r1, %r2;": "frobnicate",
        "st.global.b128 [%at0], %d1;": "b128",
        "atom.global.mul.u32 %r1, [%at0], 2;": ".mul of atom.global.mul.u32",
        "cp.async.bulk.prefetch.L2.global [%at0], 16;": "cp.async.bulk.prefetch.L2.global",
        "mbarrier.arrive_drop.shared.b64 %d1, [0];": "mbarrier.arrive_drop.shared.b64",
    }.items():
        fails(f"PTX line \\d+.*{told}", text, words())


def test_nothing_is_written_back_after_an_error() -> None:
    """`fails` compares: the first instruction writes to both arrays, the second is out of bounds."""
    values: list[Any] = [words(), words()]
    fails("out of bounds", "st.global.u32 [%at0], 1; st.global.u32 [%at1], 1; st.global.u32 [%at1+4], 1;", *values)
