"""Which operands are results: PTX ISA 9.1, chapter 9, the syntax of each instruction."""

from __future__ import annotations

import pytest

from impls.cuda.emulator.errors import Unknown
from impls.cuda.emulator.ptx.roles import operand_roles, reads, writes
from tests.cuda.emulator.ptx.modules import one


@pytest.mark.parametrize(
    ("statement", "written", "read"),
    [
        ("add.s32 %r0, %r1, %r2;", "%r0", "%r1 %r2"),
        ("mov.b64 {%r0, _}, %rd1;", "%r0", "%rd1"),
        ("mov.b64 %rd1, {%r0, %r1};", "%rd1", "%r0 %r1"),
        ("@%p1 selp.b32 %r0, %r1, 0, %p2;", "%r0", "%p1 %r1 %p2"),
        ("setp.lt.and.s32 %p0|%p1, %r0, 1, !%p2;", "%p0 %p1", "%r0 %p2"),
        ("ld.global.v2.b32 {%r0, %r1}, [%rd0+8];", "%r0 %r1", "%rd0"),
        ("ld.param.u64 %rd0, [data];", "%rd0", ""),
        ("st.shared.v2.b32 [%r0], {%r1, %r2};", "", "%r0 %r1 %r2"),
        ("atom.global.add.u32 %r0, [%rd0], %r1;", "%r0", "%rd0 %r1"),
        ("red.global.add.u32 [%rd0], %r1;", "", "%rd0 %r1"),
        ("@!%p1 bra L; L:", "", "%p1"),
        ("bar.sync %r0, %r1;", "", "%r0 %r1"),
        ("bar.red.popc.u32 %r0, 1, %p1;", "%r0", "%p1"),
        ("barrier.cluster.arrive.release.aligned;", "", ""),
        ("cp.async.cg.shared.global [%r0], [%rd0], 16, %r1;", "", "%r0 %rd0 %r1"),
        ("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r0];", "", "%r0"),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];",
            "",
            "%r1 %rd1 %r2 %r3",
        ),
        ("mbarrier.init.shared::cta.b64 [%r0], %r1;", "", "%r0 %r1"),
        ("mbarrier.arrive.shared::cta.b64 %rd0, [%r0], %r1;", "%rd0", "%r0 %r1"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r0], %r1;", "", "%r0 %r1"),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r0], %r1;", "", "%r0 %r1"),
        ("mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r0], %r1, %r2;", "%p0", "%r0 %r1 %r2"),
        ("mbarrier.pending_count.b64 %r0, %rd0;", "%r0", "%rd0"),
        ("shfl.sync.bfly.b32 %r0|%p0, %r1, 16, 31, -1;", "%r0 %p0", "%r1"),
        ("match.all.sync.b32 %r0|%p0, %r1, -1;", "%r0 %p0", "%r1"),
        ("vote.sync.ballot.b32 %r0, !%p0, %r1;", "%r0", "%p0 %r1"),
        ("elect.sync _|%p0, %r1;", "%p0", "%r1"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0, %r1}, [%r2];", "%r0 %r1", "%r2"),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r2], {%r0, %r1};", "", "%r2 %r0 %r1"),
        (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r0, %r1}, {%r2}, {%f4, %f5, %f6, %f7};",
            "%f0 %f1 %f2 %f3",
            "%r0 %r1 %r2 %f4 %f5 %f6 %f7",
        ),
        ("call.uni (%r0), k, (%r1, n);", "%r0", "%r1"),
        ("call.uni k, (%r1);", "", "%r1"),
        ("multimem.ld_reduce.global.add.f32 %f0, [%rd0];", "%f0", "%rd0"),
        ("multimem.st.global.f32 [%rd0], %f0;", "", "%rd0 %f0"),
        ("griddepcontrol.wait;", "", ""),
    ],
)
def test_registers_written_and_read(statement: str, written: str, read: str) -> None:
    instruction = one(statement)
    assert writes(instruction) == tuple(written.split())
    assert reads(instruction) == tuple(read.split())


def test_every_operand_has_a_role() -> None:
    instruction = one("shfl.sync.idx.b32 %r0|%p0, %r1, %tid.x, 31, -1;")
    roles = operand_roles(instruction)
    assert (*roles.destinations, *roles.sources) == instruction.operands


@pytest.mark.parametrize("statement", ["wgmma.fence.sync.aligned;", "frobnicate.b32 %r0, %r1;"])
def test_an_opcode_that_is_not_known_is_named(statement: str) -> None:
    with pytest.raises(Unknown, match=f"PTX line 6: what {statement.split(';')[0].split()[0]} reads and writes is not known"):
        operand_roles(one(statement))
