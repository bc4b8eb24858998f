"""A program whose text is wrong shows nothing of the target; a catalogue with a hole hides an instruction."""

from __future__ import annotations

import re

import pytest

from impls.isa.catalogue import Family, catalogue, groups, program
from impls.isa.program import Program, entry, module

MMA = Program("p", "f", "mma.sync $out(b32*2), $in(b32), $io(b64);", "HMMA")


def test_operands_are_loaded_before_and_stored_after_the_instruction() -> None:
    lines = entry(MMA, "k").splitlines()
    assert lines == [
        ".visible .entry k(.param .b64 buffer)",
        "{",
        ".reg .b64 %io;",
        ".reg .b32 %b32_0;",
        ".reg .b32 %b32_1;",
        ".reg .b32 %b32_2;",
        ".reg .b64 %b64_3;",
        "ld.param.b64 %io, [buffer];",
        "ld.volatile.b32 %b32_2, [%io+32];",
        "ld.volatile.b64 %b64_3, [%io+48];",
        "mma.sync {%b32_0, %b32_1}, %b32_2, %b64_3;",
        "st.volatile.b32 [%io+0], %b32_0;",
        "st.volatile.b32 [%io+16], %b32_1;",
        "st.volatile.b64 [%io+48], %b64_3;",
        "ret;",
        "}",
    ]


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (
            "mma.sync/mxf4nvf4/m16n8k64/scale_vec::4X/ue4m3/f32",
            r"mma\.sync\.aligned\.m16n8k64\.row\.col\.kind::mxf4nvf4\.block_scale\.scale_vec::4X\.f32\.e2m1\.e2m1\.f32\.ue4m3 "
            r"\{(%b32_\d+, ){3}%b32_\d+\}, \{(%b32_\d+, ){3}%b32_\d+\}, \{%b32_\d+, %b32_\d+\}, \{(%b32_\d+, ){3}%b32_\d+\}, "
            r"%b32_\d+, \{0, 0\}, %b32_\d+, \{0, 0\};",
        ),
        (
            "tcgen05.mma/block-scaled/cta_group::1/mxf4nvf4/shared/-/block16",
            r"tcgen05\.mma\.cta_group::1\.kind::mxf4nvf4\.block_scale\.block16 "
            r"\[%b32_\d+\], %b64_\d+, %b64_\d+, %b32_\d+, \[%b32_\d+\], \[%b32_\d+\], %true;",
        ),
        ("cvt/f32-to-pair/e2m1x2/rn/satfinite/-", r"cvt\.rn\.satfinite\.e2m1x2\.f32 %b8_\d+, %b32_\d+, %b32_\d+;"),
        ("tcgen05.alloc/cta_group::1/512", r"tcgen05\.alloc\.cta_group::1\.sync\.aligned\.shared::cta\.b32 \[%b32_\d+\], 512;"),
    ],
)
def test_instruction_text(identity: str, expected: str) -> None:
    assert any(re.fullmatch(expected, line) for line in entry(program(identity), "k").splitlines())


def test_accumulators_of_wgmma_have_the_registers_of_their_shape() -> None:
    # 64 x N values over 128 threads: N/2 float32 registers each, N/4 when two f16 share one
    assert entry(program("wgmma/256/f32.bf16.bf16/shared"), "k").count("st.volatile.b32") == 128
    assert entry(program("wgmma/256/f16.f16.f16/shared"), "k").count("st.volatile.b32") == 64


def test_an_unknown_operand_token_is_refused() -> None:
    with pytest.raises(ValueError, match="operand token"):
        entry(Program("p", "f", "mov.b32 $out(b33), 0;", "MOV"), "k")


def test_a_line_belongs_to_the_program_it_was_written_for() -> None:
    made = module([MMA, program("movmatrix")], "9.0", "sm_90a")
    lines = made.text.splitlines()
    number = next(n for n, line in enumerate(lines, 1) if line.startswith("movmatrix"))
    assert made.program_at(number) == program("movmatrix")
    assert made.program_at(made.first_lines[1]) == program("movmatrix")
    assert made.program_at(made.first_lines[1] - 1) == MMA
    assert made.program_at(3) is None
    assert made.program_called("p1") == program("movmatrix")
    assert made.program_called("p2") is None


def test_the_catalogue_has_at_least_1500_different_programs() -> None:
    programs = catalogue()
    assert len({(one.ptx, one.directives) for one in programs}) >= 1500
    assert len({one.id for one in programs}) == len(programs)


def test_every_program_can_be_written_and_every_native_pattern_compiles() -> None:
    for one in catalogue():
        assert entry(one, "k").count("\n") > 5
        re.compile(one.native)
        assert re.fullmatch(r"[\w.:/+-]+", one.id), one.id


def test_a_family_is_the_full_product_of_its_axes() -> None:
    family = Family("f", {"x": ("", ".a"), "y": ("1", "2", "3")}, lambda x, y: f"op{x}.{y};", "OP", ".maxnreg {y}")
    made = family.programs()
    assert [one.id for one in made] == ["f/-/1", "f/-/2", "f/-/3", "f/a/1", "f/a/2", "f/a/3"]
    assert made[5].ptx == "op.a.3;"
    assert made[5].directives == ".maxnreg 3"


@pytest.mark.parametrize(
    "family",
    [
        *("mma.sync/mxf8f6f4", "mma.sync/mxf4", "mma.sync/mxf4nvf4", "mma.sync/f8f6f4", "mma.sp/fp4", "wgmma", "wgmma.sp"),
        *("tcgen05.alloc", "tcgen05.mma", "tcgen05.mma.ws", "tcgen05.mma/block-scaled", "tcgen05.ld", "tcgen05.st"),
        *("tcgen05.ld.red", "tcgen05.cp", "tcgen05.shift", "tcgen05.commit", "tcgen05.fence", "tcgen05.wait"),
        *("ldmatrix/m8n16", "ldmatrix/m16n16", "stmatrix", "movmatrix", "cvt/f32-to-pair", "cvt/pair-to-halves"),
        *("cvt/stochastic-quad", "cp.async", "cp.async.bulk.tensor/load", "cp.async.bulk.tensor/multicast"),
        *("cp.reduce.async.bulk.tensor", "tensormap.replace", "mbarrier.wait", "cluster/entry", "elect.sync"),
        *("griddepcontrol", "setmaxnreg", "redux.sync/f32", "f32x2", "minmax/f32x3", "approximate", "atom/vector"),
        *("ld.global", "st.bulk", "st.async", "clusterlaunchcontrol.try_cancel", "multimem.ld_reduce", "fence.proxy"),
        *("dp4a", "lop3", "prmt"),
    ],
)
def test_no_part_of_the_instruction_set_was_lost(family: str) -> None:
    assert any(one.family == family for programs in groups().values() for one in programs)
