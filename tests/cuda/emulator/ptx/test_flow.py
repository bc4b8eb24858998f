"""Control flow against its definitions, by walking every path of small random functions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from impls.cuda.emulator.errors import Unknown
from impls.cuda.emulator.ptx.errors import BadPTX
from impls.cuda.emulator.ptx.flow import Flow, flow, possibly_undefined
from impls.cuda.emulator.ptx.syntax import Function
from tests.cuda.emulator.ptx.modules import kernel


def of(body: str) -> Flow:
    return flow(kernel(body))


class TestSuccessors:
    def test_each_way_to_go_on(self) -> None:
        body = "L: bra.uni M; @%p1 bra L; M: @%p1 ret; exit; @!%p1 trap; trap; bar.sync 0;"
        assert of(body).successors == ((2,), (2, 0), (3, 7), (7,), (5,), (), (7,))

    def test_a_branch_by_a_list_goes_to_each_once(self) -> None:
        body = "A: ret; B: ret; ts: .branchtargets B, A, B; brx.idx %r0, ts; @%p0 brx.idx.uni %r0, ts; ret;"
        assert of(body).successors[2:4] == ((1, 0), (4, 1, 0))

    @pytest.mark.parametrize("body", ["bra %r0;", "bra;", "L: brx.idx %r0, L;"])
    def test_a_branch_to_no_place_is_refused(self, body: str) -> None:
        with pytest.raises(BadPTX, match="branches to no place in k"):
            of(body)

    def test_blocks(self) -> None:
        blocks = of("mov.b32 %r0, 0; L: add.s32 %r0, %r0, 1; @%p0 bra L; @%p1 ret; mov.b32 %r1, 0;").blocks
        assert [(block.start, block.end, block.successors) for block in blocks] == [
            *((0, 1, (1,)), (1, 3, (2, 1))),
            *((3, 4, (3, 4)), (4, 5, (4,))),
        ]

    def test_an_empty_function(self) -> None:
        assert of("") == Flow((), (), ())
        assert possibly_undefined(kernel("")) == set()


class TestReconvergence:
    def test_both_sides_of_a_branch_meet(self) -> None:
        body = "@%p0 bra ELSE; mov.b32 %r0, 0; bra JOIN; ELSE: mov.b32 %r0, 1; JOIN: mov.b32 %r1, 0; ret;"
        assert of(body).postdominators == (4, 2, 4, 4, 5, 6)

    def test_lanes_that_leave_a_loop_wait_behind_it(self) -> None:
        assert of("L: @%p0 bra OUT; add.s32 %r0, %r0, 1; bra L; OUT: ret;").postdominators == (3, 2, 0, 4)

    def test_nobody_waits_for_lanes_that_have_ended(self) -> None:
        """The branch's sides meet at JOIN although lanes may return on the way."""
        body = "@%p0 bra JOIN; mov.b32 %r0, 0; @%p1 ret; mov.b32 %r0, 1; JOIN: bar.sync 0; ret;"
        assert of(body).postdominators[:3] == (4, 2, 3)

    def test_nobody_waits_for_lanes_that_fail(self) -> None:
        body = "@%p0 bra FINE; mov.b32 %r0, 0; trap; FINE: bar.sync 0; ret;"
        assert of(body).postdominators == (3, 5, 5, 4, 5)


REGISTERS = 2
PLACES = st.integers(0, 11)
STATEMENTS = st.one_of(
    st.builds("bra L{};".format, PLACES),
    st.builds("@%p0 bra L{};".format, PLACES),
    st.sampled_from(["ret;", "@%p0 ret;", "trap;"]),
    st.builds("mov.b32 %r{}, {};".format, st.integers(0, REGISTERS - 1), st.integers(0, 9)),
    st.builds("@%p0 mov.b32 %r{}, {};".format, st.integers(0, REGISTERS - 1), st.integers(0, 9)),
    st.builds("st.shared.b32 [0], %r{};".format, st.integers(0, REGISTERS - 1)),
)


@st.composite
def functions(draw: st.DrawFn) -> Function:
    statements = draw(st.lists(STATEMENTS, min_size=1, max_size=12))
    places = {f"L{number % (len(statements) + 1)}" for number in range(12)}
    body = [
        f"{f'L{number}: ' if f'L{number}' in places else ''}{statement}" for number, statement in enumerate([*statements, ""])
    ]
    missing = [f"L{number}:" for number in range(len(statements) + 1, 12)]
    return kernel("mov.pred %p0, 1;\n" + "\n".join([*body, *missing]))


def reachable(edges: list[set[int]], start: int, without: int | None = None) -> set[int]:
    """What paths from `start` come to, `start` itself too."""
    seen: set[int] = set()
    left = [start] if start != without else []
    while left:
        at = left.pop()
        if at not in seen:
            seen.add(at)
            left += [each for each in edges[at] if each != without]
    return seen


@settings(max_examples=400)
@given(functions())
def test_postdominators_are_the_nearest_places_on_all_paths(function: Function) -> None:
    end = len(function.body)
    edges = [set(after) for after in flow(function).successors] + [set()]
    for at, instruction in enumerate(function.body):
        if instruction.opcode == "ret" and instruction.predicate and at + 1 < end:
            edges[at] -= {end}
    for at, found in enumerate(flow(function).postdominators):
        if end not in reachable(edges, at):
            assert found == end
            continue
        unavoidable = {each for each in range(end + 1) if each != at and end not in reachable(edges, at, without=each)}
        # the nearest of them comes before all the others: from it each other one is unavoidable
        nearest = [
            each for each in unavoidable if all(x == each or end not in reachable(edges, each, without=x) for x in unavoidable)
        ]
        assert nearest == [found]


@settings(max_examples=400)
@given(functions())
def test_reads_that_a_path_reaches_without_a_write(function: Function) -> None:
    successors = flow(function).successors
    expected = set()
    for register in range(REGISTERS):
        name = f"%r{register}"
        written = [each.opcode == "mov" and each.predicate is None and str(each.operands[0]) == name for each in function.body]
        edges = [set() if known else set(after) for known, after in zip(written, successors, strict=True)] + [set()]
        for at in reachable(edges, 0) - {len(function.body)}:
            if function.body[at].opcode == "st" and str(function.body[at].operands[1]) == name:
                expected.add((at, name))
    assert possibly_undefined(function) == expected


def test_a_read_counts_before_the_write_of_its_own_instruction() -> None:
    assert possibly_undefined(kernel("add.s32 %r0, %r0, 1; add.s32 %r0, %r0, 1;")) == {(0, "%r0")}


def test_each_path_leaves_out_another_write() -> None:
    body = "@%p0 bra A; mov.b32 %r0, 0; bra J; A: mov.b32 %r1, 0; J: st.shared.b32 [%r0], %r1;"
    assert possibly_undefined(kernel(f"mov.pred %p0, 1; {body}")) == {(5, "%r0"), (5, "%r1")}


def test_predicates_and_addresses_are_reads() -> None:
    found = possibly_undefined(kernel("@%p1 st.global.b32 [%rd0], {%r0};"))
    assert found == {(0, "%p1"), (0, "%rd0"), (0, "%r0")}


def test_definite_assignment_does_not_guess() -> None:
    with pytest.raises(Unknown, match=r"wgmma\.fence"):
        possibly_undefined(kernel("wgmma.fence.sync.aligned;"))
