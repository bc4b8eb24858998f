"""PTX ISA 9.1: syntax (chapter 4), state spaces and types (5), operands (6), directives (11); and what compilers write."""

from __future__ import annotations

import re
import struct

import pytest

from impls.cuda.emulator.errors import EmulationError, Unknown
from impls.cuda.emulator.ptx.errors import BadPTX
from impls.cuda.emulator.ptx.parser import parse
from impls.cuda.emulator.ptx.syntax import (
    Address,
    Arguments,
    Guard,
    Immediate,
    Label,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Source,
    Special,
    Symbol,
    Variable,
    Vector,
)
from tests.cuda.emulator.ptx.modules import HEAD, kernel, one, text


def r(*numbers: int) -> tuple[Register, ...]:
    return tuple(Register(f"%r{number}") for number in numbers)


class TestOperands:
    @pytest.mark.parametrize(
        ("statement", "expected"),
        [
            ("add.s32 %r0, %r1, -5;", (*r(0, 1), Immediate(-5))),
            ("and.b32 %r0, %r1, 0xFFFF0000U;", (*r(0, 1), Immediate(0xFFFF0000))),
            ("and.b32 %r0, %r1, 0b101;", (*r(0, 1), Immediate(5))),
            ("and.b32 %r0, %r1, 017;", (*r(0, 1), Immediate(15))),
            ("mov.b64 %rd0, 0xFFFFFFFFFFFFFFFF;", (Register("%rd0"), Immediate(2**64 - 1))),
            ("mov.f32 %f0, 0f7FC00001;", (Register("%f0"), Immediate(0x7FC00001, "f32"))),
            ("mov.f32 %f0, 0F80000000;", (Register("%f0"), Immediate(0x80000000, "f32"))),
            ("mov.f64 %rd0, 0d3FF0000000000001;", (Register("%rd0"), Immediate(0x3FF0000000000001, "f64"))),
            ("mov.f32 %f0, -0.5;", (Register("%f0"), Immediate(0xBFE0000000000000, "f64"))),
            ("mov.f32 %f0, 1.e3;", (Register("%f0"), Immediate(struct.unpack("<Q", struct.pack("<d", 1000.0))[0], "f64"))),
            ("mov.u32 %r0, WARP_SZ;", (*r(0), Immediate(32))),
            ("mov.u32 %r0, %tid.x;", (*r(0), Special("%tid.x"))),
            ("mov.u32 %r0, %lanemask_lt;", (*r(0), Special("%lanemask_lt"))),
            ("mov.u64 %rd0, data;", (Register("%rd0"), Symbol("data"))),
            ("mov.u64 %rd0, data+4;", (Register("%rd0"), Symbol("data", 4))),
            ("ld.param.u64 %rd0, [data];", (Register("%rd0"), Address(Symbol("data")))),
            ("ld.param.u32 %r0, [data + 4];", (*r(0), Address(Symbol("data"), 4))),
            ("ld.global.b32 %r0, [%rd1+-16];", (*r(0), Address(Register("%rd1"), -16))),
            ("ld.global.b32 %r0, [%rd1+0x10];", (*r(0), Address(Register("%rd1"), 16))),
            ("ld.local.b32 %r0, [64];", (*r(0), Address(None, 64))),
            ("or.pred %p0, %p1, !%p2;", (Register("%p0"), Register("%p1"), Negated(Register("%p2")))),
            ("setp.lt.s32 %p0|%p1, %r0, 1;", (Pair(Register("%p0"), Register("%p1")), *r(0), Immediate(1))),
            ("call.uni (data), k, (n, %r1);", (Arguments((Symbol("data"),)), Symbol("k"), Arguments((Symbol("n"), *r(1))))),
            ("ret;", ()),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_each_kind(self, statement: str, expected: tuple[Operand, ...]) -> None:
        assert one(statement).operands == expected

    @pytest.mark.parametrize(
        ("statement", "expected"),
        [
            ("mbarrier.arrive.shared::cta.b64 _, [%r1];", (Sink(), Address(*r(1)))),
            ("ld.global.v4.b64 {%rd0, _, %rd1, _}, [%rd2];", (Vector((Register("%rd0"), Sink(), Register("%rd1"), Sink())),)),
            ("shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1;", (Pair(*r(1), Register("%p1")), *r(2))),
            ("elect.sync _|%p1, -1;", (Pair(Sink(), Register("%p1")), Immediate(-1))),
            ("@%p1 ld.global.b32 { %r1 }, [ %rd2 + 0 ];", (Vector(r(1)), Address(Register("%rd2")))),
            ("st.global.b32 [ %rd2+ 8 ], { %r1 };", (Address(Register("%rd2"), 8), Vector(r(1)))),
            ("mov.pred %p1, -1;", (Register("%p1"), Immediate(-1))),
            ("mul.f32x2 %rd0, %rd1, %rd2;", (Register("%rd0"), Register("%rd1"), Register("%rd2"))),
            ("griddepcontrol.wait ;", ()),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_as_compilers_write_them(self, statement: str, expected: tuple[Operand, ...]) -> None:
        assert one(statement).operands[: len(expected)] == expected

    def test_scales_of_a_product_stand_in_braces(self) -> None:
        product = one(
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
            "{%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3}, {%r6},{%rs5, %rs5}, {%r7}, {0, 0};"
        )
        assert product.opcode == "mma"
        assert product.modifiers == (
            *("sync", "aligned", "m16n8k64", "row", "col", "kind::mxf4nvf4", "block_scale", "scale_vec::4X"),
            *("f32", "e2m1", "e2m1", "f32", "ue4m3"),
        )
        assert product.operands[2] == Vector(r(4, 5))
        assert product.operands[4:] == (
            *(Vector(r(6)), Vector((Register("%rs5"), Register("%rs5")))),
            *(Vector(r(7)), Vector((Immediate(0), Immediate(0)))),
        )

    def test_a_wait_may_hint_at_a_time(self) -> None:
        wait = one("mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %p1, [%r1], %r2, 0x989680;")
        assert wait.modifiers == ("try_wait", "parity", "acquire", "cta", "shared::cta", "b64")
        assert wait.operands == (Register("%p1"), Address(*r(1)), *r(2), Immediate(10_000_000))

    def test_modifiers_keep_their_colons(self) -> None:
        copy = one("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];")
        assert copy.modifiers == ("async", "bulk", "shared::cluster", "global", "mbarrier::complete_tx::bytes")
        assert copy.name == "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


class TestInstructions:
    def test_predicates(self) -> None:
        assert one("@%p1 ret;").predicate == Guard(Register("%p1"), False)
        assert one("@!%p1 ret;").predicate == Guard(Register("%p1"), True)
        assert one("ret;").predicate is None

    def test_lines_and_text_are_those_of_the_ptx(self) -> None:
        body = kernel("/* a comment\nof two lines */ add.s32 %r0, // and one in it\n\t%r1,   %r2; mov.b32 %r1, 0;\nret;").body
        assert [(each.line, each.text) for each in body] == [
            *((7, "add.s32 %r0, %r1, %r2;"), (8, "mov.b32 %r1, 0;")),
            (9, "ret;"),
        ]

    def test_source_lines(self) -> None:
        """Files may be named after the code; of inlined code its own line counts; line 0 is none."""
        module = parse(
            text(
                "mov.b32 %r0, 0;\n.loc 2 78 3, function_name $L__info_string0, inlined_at 1 458 3\nmov.b32 %r1, 1;\n"
                ".loc\t1 9 0\nmov.b32 %r2, 2;\n.loc 1 0 0\nmov.b32 %r3, 3;"
            )
            + '.file\t1 "/src//a.cu"\n.file 2 "b.cuh", 1700000000, 42\n'
        )
        assert [each.source for each in module.functions["k"].body] == [
            None,
            Source("b.cuh", 78),
            Source("/src//a.cu", 9),
            None,
        ]

    def test_labels_name_what_follows(self) -> None:
        function = kernel("bra L1;\nL0: L1:\nret;\n$L__end:")
        assert function.labels == {"L0": 1, "L1": 1, "$L__end": 2}
        assert function.body[0].operands == (Label("L1"),)

    def test_lists_of_branch_targets(self) -> None:
        function = kernel("A: ret; B: ret;\nts: .branchtargets A, B;\nbrx.idx %r0, ts;")
        assert function.branch_targets == {"ts": ("A", "B")}
        assert function.labels == {"A": 0, "B": 1}
        assert function.body[-1].operands == (*r(0), Label("ts"))


class TestScopes:
    def test_wait_loops_use_their_names_again(self) -> None:
        """As CUTLASS and CuTe write them: each in braces, with the same labels and predicate."""
        wait = (
            "{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%r1], %r2;\n"
            "@P1 bra.uni DONE;\nbra.uni LAB_WAIT;\nDONE:\n}\n"
        )
        function = kernel(wait + wait)
        first, second = function.body[:3], function.body[3:]
        assert [function.labels[each.operands[0].name] for each in (first[1], first[2])] == [3, 0]
        assert [function.labels[each.operands[0].name] for each in (second[1], second[2])] == [6, 3]
        predicates = [each[0].operands[0] for each in (first, second)]
        assert predicates[0] != predicates[1]
        assert [function.registers[predicate.name] for predicate in predicates] == ["pred", "pred"]
        assert [each[1].predicate for each in (first, second)] == [Guard(predicate, False) for predicate in predicates]

    def test_an_inner_name_hides_an_outer_one_to_the_brace(self) -> None:
        body = kernel(".reg .b32 x; mov.b32 x, 1; { .reg .b64 x; mov.b64 x, 2; { mov.b64 x, 3; } } mov.b32 x, 4;").body
        names = [each.operands[0].name for each in body]
        assert names[0] == names[3] == "x"
        assert names[1] == names[2] != "x"

    def test_new_names_are_nobody_elses(self) -> None:
        function = kernel(
            ".reg .b32 x; { .reg .b32 x; mov.b32 x, 1; } .reg .b64 x$1; mov.b64 x$1, 2; { .reg .f32 x; mov.f32 x, 3.0; }"
        )
        assert [function.registers[each.operands[0].name] for each in function.body] == ["b32", "b64", "f32"]

    def test_variables_of_a_function_are_told_from_the_modules(self) -> None:
        body = text(".shared .b64 tile; st.shared.b64 [tile], 0;")
        module = parse(body.replace(".visible", ".shared .b32 tile;\n.visible"))
        (store,) = module.functions["k"].body
        address = store.operands[0]
        assert isinstance(address, Address) and isinstance(address.base, Symbol)
        assert module.functions["k"].variables[address.base.name].type == "b64"
        assert module.globals["tile"].type == "b32"
        assert address.base.name != "tile"

    def test_a_name_ends_with_its_scope(self) -> None:
        with pytest.raises(BadPTX, match=r"^PTX line 7: low is not declared\.$"):
            kernel("{ .reg .b16 low; mov.b16 low, 1; }\nmov.b16 low, 2;")

    def test_instructions_in_one_line_of_inline_assembly(self) -> None:
        body = kernel("{ .reg .b16 low, high; mov.b32 {low, high}, %r1; cvt.rn.f16x2.e4m3x2 %r2, high; }").body
        assert body[0].operands[0] == Vector((Register("low"), Register("high")))
        assert body[1].operands == (*r(2), Register("high"))


class TestDeclarations:
    def test_ranges_of_registers(self) -> None:
        function = kernel(".reg .b32 a<3>, b; .reg .f32 c;")
        assert {name: kind for name, kind in function.registers.items() if name[0] != "%"} == {
            **dict.fromkeys(("a0", "a1", "a2", "b"), "b32"),
            "c": "f32",
        }

    @pytest.mark.parametrize(
        ("declaration", "expected"),
        [
            (".shared .align 16 .b8 x[1024];", Variable("x", "shared", "b8", 16, 1024)),
            (".shared .f64 x;", Variable("x", "shared", "f64", 8, 1)),
            (".extern .shared .align 128 .b8 x[];", Variable("x", "shared", "b8", 128, None, None, True)),
            (".const .b32 x[2][3];", Variable("x", "const", "b32", 4, 6)),
            (".global .v4 .f32 x[2];", Variable("x", "global", "f32", 16, 8)),
            (".global .u32 x = -1;", Variable("x", "global", "u32", 4, 1, b"\xff\xff\xff\xff")),
            (".visible .global .f32 x = 0f3F317218;", Variable("x", "global", "f32", 4, 1, bytes.fromhex("1872313f"))),
            (".global .f32 x = 0.5;", Variable("x", "global", "f32", 4, 1, bytes.fromhex("0000003f"))),
            (".global .b8 x[4] = {1, 2};", Variable("x", "global", "b8", 1, 4, b"\1\2\0\0")),
            (".const .u16 x[] = {1, 0x102};", Variable("x", "const", "u16", 2, 2, b"\1\0\2\1")),
            (".global .align 1 .b8 _$_str[2] = {95, 0};", Variable("_$_str", "global", "b8", 1, 2, b"_\0")),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_variables_of_a_module(self, declaration: str, expected: Variable) -> None:
        module = parse(f"{HEAD}{declaration}\n")
        assert module.globals == {expected.name: expected}

    def test_sizes(self) -> None:
        module = parse(f"{HEAD}.shared .b64 a[3], b;\n.extern .shared .b8 c[];\n")
        assert [variable.bytes for variable in module.globals.values()] == [24, 8, 0]

    def test_variables_of_a_function(self) -> None:
        function = kernel(".local .align 8 .b8 __local_depot0[24];\n.shared .align 4 .u32 x;")
        assert function.variables == {
            "__local_depot0": Variable("__local_depot0", "local", "b8", 8, 24),
            "x": Variable("x", "shared", "u32", 4, 1),
        }

    def test_an_entry(self) -> None:
        function = parse(
            f"{HEAD}.visible .entry _Z1kPf(\n\t.param .u64 .ptr .global .align 1 _Z1kPf_param_0,\n"
            "\t.param .align 64 .b8 _Z1kPf_param_1[128]\n)\n.reqntid 128, 2\n.minnctapersm 2\n.maxnreg 168\n{ ret; }\n"
        ).functions["_Z1kPf"]
        assert function.is_entry
        assert function.parameters == (
            Variable("_Z1kPf_param_0", "param", "u64", 8, 1),
            Variable("_Z1kPf_param_1", "param", "b8", 64, 128),
        )
        assert function.directives == {"reqntid": (128, 2), "minnctapersm": (2,), "maxnreg": (168,)}
        assert (function.required_block, function.largest_block) == ((128, 2, 1), None)

    def test_functions_and_calls_of_what_is_elsewhere(self) -> None:
        module = parse(
            HEAD
            + ".extern .func (.param .b32 func_retval0) vprintf\n(\n\t.param .b64 vprintf_param_0,\n"
            + "\t.param .b64 vprintf_param_1\n);\n"
            + ".extern .func __assertfail (.param .b64 a) .noreturn;\n"
            + ".func (.param .f32 out) half(.param .f32 in)\n{ .reg .f32 %f1;\n"
            + "ld.param.f32 %f1, [in]; st.param.f32 [out], %f1; ret; }\n"
            + ".entry k() {\n{ // callseq 0, 0\n.param .b64 param0;\n.param .b32 retval0;\n"
            + "call.uni (retval0), vprintf, (param0, param0);\n} // callseq 0\n"
            + "{\n.param .b64 param0;\ncall.uni __assertfail, (param0);\n}\n}\n"
        )
        assert module.declared == {"vprintf", "__assertfail"}
        half, k = module.functions["half"], module.functions["k"]
        assert not half.is_entry
        assert half.results == (Variable("out", "param", "f32", 4, 1),)
        assert [variable.space for variable in k.variables.values()] == ["param"] * 3
        assert k.body[0].operands[:2] == (Arguments((Symbol("retval0"),)), Symbol("vprintf"))
        assert k.body[1].operands[1] != k.body[0].operands[2]

    def test_debug_sections_and_pragmas_say_nothing(self) -> None:
        module = parse(
            text('.pragma "nounroll";\nret;')
            + "\t.section\t.debug_str\n\t{\n$L__info_string0:\n.b8 95\n.b8 0\n\n\t}\n\t.section .debug_loc { }\n"
        )
        assert len(module.functions["k"].body) == 1

    def test_a_module_states_its_version_and_target(self) -> None:
        module = parse(".version 8.7\n.target sm_90a, debug\n.address_size 64")
        assert (module.version, module.target, module.address_size) == ((8, 7), "sm_90a", 64)
        with pytest.raises(BadPTX, match="states its version"):
            parse(".target sm_90a\n")
        with pytest.raises(BadPTX, match="states its target"):
            parse(".version 8.7\n")


class TestErrors:
    @pytest.mark.parametrize(
        ("body", "sentence"),
        [
            ("\nadd.s32 %r0, %r1, %r99;", "PTX line 7: %r99 is not declared."),
            ("bra nowhere;", "PTX line 6: nowhere is not declared."),
            ("@%r77 ret;", "PTX line 6: '%r77' is not a register."),
            (".reg .b32 x; .reg .b64 x;", "PTX line 6: x is declared twice in one scope."),
            ("L: L: ret;", "PTX line 6: L is declared twice in one scope."),
            ("add.s32 %r0, %r1, ;", "PTX line 6: the operand '' is not understood."),
            ("add.s32 %r0, {%r1, %r2;", "PTX line 6: 'add.s32 %r0, {%r1, %r2;' is not understood."),
            ("add.s32 %r0, %r1 %r2;", "PTX line 6: the operand '%r1 %r2' is not understood."),
            ("ld.u32 %r0, [%r1 * 4];", "PTX line 6: the address '%r1 * 4' is not understood."),
            ("ld.u32 %r0, [%rd1-4];", "PTX line 6: the address '%rd1-4' is not understood."),
            ("add..s32 %r0, %r1, 1;", "PTX line 6: 'add..s32 %r0, %r1, 1;' is not understood."),
            (".reg .b32 %;", "PTX line 6: the registers '.b32 %' are not understood."),
            ("/* ret;", "PTX line 6: '/* ret;' is not understood."),
            ("{ ret;", "PTX line 8: the text ends within a function."),
            ("ts: .branchtargets %r0;", "PTX line 6: a .branchtargets follows a label and lists labels."),
        ],
    )
    def test_a_sentence_with_the_line(self, body: str, sentence: str) -> None:
        with pytest.raises(BadPTX, match=f"^{re.escape(sentence)}$"):
            kernel(body)

    @pytest.mark.parametrize(
        ("body", "names"),
        [
            (".reg .v4 .f32 x;", "v4"),
            (".reg .b7 x;", "b7"),
            (".shared .e4m3 x;", "e4m3"),
            (".tensormap x;", "tensormap"),
            ("add.s32 %r0, %r1, (1+2);", "constant expressions"),
            ("cp.async.bulk.tensor.2d.shared::cta.global [%r0], [%rd0, {%r1, %r2}];", "coordinates"),
        ],
    )
    def test_what_is_ptx_but_not_known_here_is_named(self, body: str, names: str) -> None:
        with pytest.raises(Unknown, match=names):
            kernel(body)

    @pytest.mark.parametrize(
        ("declaration", "kind"),
        [
            (".global .u64 x = generic(y);", Unknown),
            (".global .attribute(.managed) .b32 x;", EmulationError),
            (".global .b8 x[1] = {1, 2};", BadPTX),
            (".global .b32 x = 1.5;", BadPTX),
            (".global .b8 x[-1];", BadPTX),
            (".alias a, b;", Unknown),
            (".entry k(.param .u64 .ptr .algin 4 x) { ret; }", Unknown),
            (".entry k() .reqntidy 128 { ret; }", Unknown),
            (".global x;", BadPTX),
        ],
    )
    def test_declarations_that_cannot_be(self, declaration: str, kind: type[EmulationError]) -> None:
        with pytest.raises(kind):
            parse(f"{HEAD}{declaration}\n")
