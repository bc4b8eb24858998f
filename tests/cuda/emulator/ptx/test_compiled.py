"""What NVRTC and Triton make of this project's kernels, and the same with its text damaged."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impls.arch import find
from impls.contract import Problem
from impls.cuda.emulator.errors import Unknown
from impls.cuda.emulator.ptx.errors import BadPTX
from impls.cuda.emulator.ptx.flow import flow, possibly_undefined
from impls.cuda.emulator.ptx.parser import parse
from impls.cuda.emulator.ptx.syntax import Function, Instruction, Module
from impls.registry import implementation
from impls.triton.availability import why_not
from impls.worker import Worker
from tests.cuda.emulator.ptx.modules import HEAD
from tests.cuda.needs import needs_nvrtc

DECODE = Problem(1, 32, 8, 1, 131072, 128, 128)
PREFILL = Problem(1, 16, 16, 32768, 32768, 128, 128)
KERNELS = {
    "decode on sm_80": ("a4q", "sm_80", DECODE),
    "decode on sm_90a": ("a4q", "sm_90a", DECODE),
    "prefill on sm_90a": ("a4q", "sm_90a", replace(PREFILL, head_dim=64, v_head_dim=64)),
    "extend on sm_120a": ("a4q", "sm_120a", replace(DECODE, q_len=16)),
}
DAMAGED = "\n".join(
    (
        HEAD + '.file 1 "a.cu"',
        ".extern .shared .align 16 .b8 memory[];",
        ".global .align 4 .f32 SCALE[2] = {0f3F800000, 1.5};",
        ".visible .entry k(.param .u64 .ptr .align 1 data, .param .u32 n)\n.reqntid 128, 1, 1\n{",
        ".reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<3>;",
        ".loc 1 7 3, function_name $L__info_string0, inlined_at 1 458 3",
        "ld.param.u64 %rd1, [data]; // the data",
        "{ .reg .b16 low, high; mov.b32 {low, high}, %r1; cvt.rn.f16x2.e4m3x2 %r2, low; }",
        "$L__BB0_1: @!%p1 ld.global.v2.b32 { %r1, _ }, [ %rd1 + 16 ];",
        "shfl.sync.bfly.b32 %r3|%p2, %r1, 0x10, 31, -1; /* over lanes */ @%p2 bra $L__BB0_1;",
        "st.shared.b32 [memory+-4], %r3; ret; }",
        ".section .debug_str { $L__info_string0: .b8 95 }\n",
    )
)
PIECES = (*';{}[](),.:@!%|_"$+-', "/*", "9" * 40, "0x", ".reg", "\0é")


@cache
def compiled(name: str) -> str:
    impl, arch, problem = KERNELS[name]
    return implementation(impl).plan(problem, find(arch)).kernels()[0].ptx  # type: ignore[attr-defined]


def statements(ptx: str) -> int:
    """Instructions: what ends with a semicolon and is neither a directive nor debug information."""
    code = re.sub(r"//[^\n]*", "", ptx).split(".section")[0]
    code = code[code.index(".entry") :]
    return sum(bool(re.match(r"(?:[{}\s]|[$\w]+:|\.loc[^\n]*\n)*[@a-z]", part)) for part in code.split(";"))


def parts(instruction: Instruction) -> tuple[object, ...]:
    return instruction.opcode, instruction.modifiers, instruction.operands, instruction.predicate


def printed(function: Function, module: Module) -> str:
    """The function alone, from its tree."""
    lines = [f".reg .{kind} {name};" for name, kind in function.registers.items()]
    lines += [f".{variable.space} .{variable.type} {name}[1];" for name, variable in function.variables.items()]
    outside = [f".{variable.space} .{variable.type} {name}[1];" for name, variable in module.globals.items()]
    places: dict[int, list[str]] = {}
    for label, at in function.labels.items():
        places.setdefault(at, []).append(f"{label}:")
    for at, instruction in enumerate(function.body):
        lines += [*places.get(at, ()), str(instruction)]
    lines += places.get(len(function.body), ())
    parameters = ", ".join(f".param .{each.type} {each.name}" for each in function.parameters)
    return "\n".join((HEAD, *outside, f".entry {function.name}({parameters})", "{", *lines, "}"))


def check(ptx: str) -> Function:
    module = parse(ptx)
    (function,) = module.functions.values()
    assert len(function.body) == statements(ptx)
    again = parse(printed(function, module)).functions[function.name]
    assert [parts(each) for each in again.body] == [parts(each) for each in function.body]
    assert (again.labels, again.registers) == (function.labels, function.registers)
    lines = ptx.split("\n")
    for instruction in function.body:
        assert instruction.text.split()[0] in lines[instruction.line - 1]
        assert instruction.name in instruction.text
    assert len(flow(function).postdominators) == len(function.body)
    return function


@needs_nvrtc
@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_nvrtc(name: str) -> None:
    function = check(compiled(name))
    sourced = sum(each.source is not None for each in function.body)
    assert sourced > 0.9 * len(function.body)
    assert {each.source.file.rsplit("/", 1)[-1] for each in function.body if each.source} >= {"fp4.cuh"}


@needs_nvrtc
def test_no_register_of_a_native_kernel_is_undefined() -> None:
    """Compilers may leave some so on purpose; in this kernel they do not."""
    (function,) = parse(compiled("extend on sm_120a")).functions.values()
    assert possibly_undefined(function) == set()


@pytest.mark.skipif(why_not(find("sm_120a")) is not None, reason=str(why_not(find("sm_120a"))))
def test_kernels_of_triton() -> None:
    with Worker("tests.triton.children:launches", env={"TRITON_INTERPRET": "0"}) as worker:
        reply = worker.call({"case": "splits", "arch": "sm_120a"}, timeout=120)
    assert reply.status == "ok", reply.sentence
    for launch in reply.value:
        function = check(launch["ptx"])
        assert function.name == launch["entry"]
        assert function.required_block == tuple(launch["block"])


def test_the_text_to_damage_is_whole() -> None:
    assert len(parse(DAMAGED).functions["k"].body) == 8


@given(st.data())
def test_damaged_text_is_refused_with_a_sentence_or_read(data: st.DataObject) -> None:
    """Pieces dropped, doubled, moved and replaced: nothing but these two errors, and no endless search."""
    text = DAMAGED
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 40)))
        piece = data.draw(st.sampled_from(("", text[start:end] * 2, *PIECES)))
        text = text[:start] + piece + text[end:]
    try:
        module = parse(text)
        for function in module.functions.values():
            flow(function)
            possibly_undefined(function)
    except (BadPTX, Unknown) as error:
        assert str(error).startswith("PTX line ")
        assert "\n" not in str(error)


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    with pytest.raises((BadPTX, Unknown)):
        parse(text)


@pytest.mark.parametrize(
    "piece",
    ["add.s32 %r1, ", "{ ", "a.b.c::d", "[", "mov.b32 {%r1, ", ".reg .b32 a, ", ".a ", "@%p1 ", "L: ", "/* ", ".loc 1 1 1 "],
)
def test_parsing_takes_time_in_proportion_to_the_text(piece: str) -> None:
    """What never ends, many times over: careless expressions look for the end again and again."""
    start = process_time()
    with pytest.raises((BadPTX, Unknown)):
        parse(DAMAGED.replace("ret; }", piece * 40_000))
    assert process_time() - start < 5
