"""Which forms of mma.sync there are: those that ptxas assembles, and no others."""

from __future__ import annotations

import pytest

from impls.cuda.emulator.counting import classes
from impls.cuda.emulator.errors import Unknown
from impls.cuda.emulator.tensor_cores.forms import mma
from impls.cuda.emulator.tensor_cores.rules import RULES
from impls.isa.catalogue import catalogue
from impls.isa.result import committed, load_committed
from tests.cuda.emulator.tensor_cores.operands import NVFP4, form

NOT_HERE = ("f16/m8n8k4", "int8/m8n8k16", "f64", "int4", "b1")
TARGETS = ("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120", "sm_120f", "sm_120a", "sm_121a")


def _forms() -> dict[str, tuple[str, ...]]:
    """Modifiers of each probed mma.sync by the program's name."""
    return {
        program.id: tuple(program.ptx.split()[0].split(".")[1:])
        for program in catalogue()
        if program.id.startswith("mma.sync/") and "selector" not in program.id
    }


CLASSES = {
    **dict.fromkeys(("f16", "bf16"), "tensor 16-bit"),
    "tf32": "tensor tf32",
    **dict.fromkeys(("fp8", "f8f6f4", "mxf8f6f4"), "tensor fp8"),
    "mxf4": "tensor mxfp4",
    "mxf4nvf4": "tensor nvfp4",
    "int8": "tensor int8",
}
"""{kind: class of its counters}"""
FORMS = _forms()
"""Of ptxas: name, target -> whether some release assembles it."""


def _assembled() -> dict[tuple[str, str], bool]:
    accepted: dict[tuple[str, str], bool] = {}
    for release in committed():
        for name, target, cell in load_committed(release).rows():
            if name in FORMS and target in TARGETS:
                accepted[name, target] = accepted.get((name, target), False) or cell.accepted
    return accepted


def _known(modifiers: tuple[str, ...], target: str) -> bool:
    try:
        instruction = mma(modifiers, target)
    except Unknown as unknown:
        assert ".".join(modifiers) in str(unknown) and str(unknown).endswith(".")
        return False
    assert set(instruction.rules) <= set(RULES)
    return True


def test_as_ptxas_has_it():
    assembled = _assembled()
    assert len(assembled) > 1000 and any(assembled.values())
    differ = {
        (name, target): accepted
        for (name, target), accepted in assembled.items()
        if _known(FORMS[name], target) != (accepted and not name.removeprefix("mma.sync/").startswith(NOT_HERE))
    }
    assert not differ


def test_what_is_counted_of_an_mma_is_what_it_multiplies():
    """Counters read the name by themselves; shape and types have to be those that are executed."""
    compared = 0
    for modifiers in FORMS.values():
        for target in TARGETS:
            if not _known(modifiers, target):
                continue
            executed, counted = mma(modifiers, target), classes.mma("mma", modifiers)
            m, n, k = executed.shape
            assert counted is not None and counted.products == m * n * k
            types = f"{executed.accumulator}.{executed.a_type}.{executed.b_type}.{executed.accumulator}"
            assert f"m{m}n{n}k{k} {types}" in counted.name
            assert classes.classify("mma", modifiers).name == CLASSES[executed.kind]
            compared += 1
    assert compared > 100


def test_either_order_of_qualifiers():
    shape, row, col, *rest = NVFP4.split(".")
    swapped = ".".join([*rest[:3], shape, row, col, *rest[3:]])
    one, other = form(NVFP4), form(swapped)
    assert (one.shape, one.kind, one.rules) == (other.shape, other.kind, other.rules) == ((16, 8, 64), "mxf4nvf4", one.rules)


@pytest.mark.parametrize(
    "text, target, why",
    [
        (NVFP4.replace("4X", "2X"), "sm_120a", "kind::mxf4nvf4 has .scale_vec::2X with .ue8m0, .scale_vec::4X with .ue4m3"),
        (NVFP4, "sm_90a", "sm_90a has no mma with .block_scale"),
        (NVFP4, "sm_120", "sm_120 has no mma with .block_scale"),
        (NVFP4 + ".sparse", "sm_120a", "it has .sparse"),
        ("m16n8k16.row.row.f32.f16.f16.f32", "sm_80", "it has no .col"),
        ("m16n8k16.col.row.f32.f16.f16.f32", "sm_80", "A must be .row and B .col"),
        ("kind::f16.m16n8k16.row.col.f32.f16.f16.f32", "sm_120a", "no such types, or not with these qualifiers"),
        ("m16n8k32.row.col.f32.f16.f16.f32", "sm_80", "its shape must be m16n8k8 or m16n8k16"),
        ("m16n8k16.row.col.f32.f16.bf16.f32", "sm_80", "A and B must be"),
        ("m16n8k16.row.col.f32.f16.f16.f16", "sm_80", "C and D must be of one type, f16 or f32"),
        ("m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_80", "sm_80 does not have it"),
        ("m16n8k16.row.col.f32.f16.f16.f32", "sm_70", "the tensor cores of sm_70 are not known"),
        ("m16n8k16.row.col.satfinite.f32.f16.f16.f32", "sm_80", "no such types, or not with these qualifiers"),
    ],
)
def test_why_unknown(text, target, why):
    with pytest.raises(Unknown) as unknown:
        form(text, target)
    assert why in str(unknown.value)


def test_cached():
    assert form(NVFP4) is form(NVFP4)
