"""Classes, pipes, and how much of an instruction a bound may count."""

from __future__ import annotations

import pytest

from impls.cuda.emulator.counting.classes import Mma, classify, mma
from impls.cuda.emulator.errors import Unknown

NVFP4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"
CUTLASS_NVFP4 = "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3"


@pytest.mark.parametrize(
    ("instruction", "name", "pipe"),
    [
        # Nsight Compute, Kernel Profiling Guide, "Pipelines"
        ("fma.rn.ftz.f32", "fp32 arithmetic", "fma"),
        ("add.rn.f32x2", "fp32 arithmetic", "fma"),
        ("mad.lo.s32", "integer", "fma"),
        ("mul.wide.u32", "integer", "fma"),
        ("add.s64", "integer", "alu"),
        ("max.NaN.f32", "fp32 arithmetic", "alu"),
        ("min.s32", "integer", "alu"),
        ("lop3.b32", "logic", "alu"),
        ("prmt.b32", "logic", "alu"),
        ("popc.b32", "logic", "xu"),
        ("setp.lt.and.s32", "comparison", "alu"),
        ("fma.rn.bf16x2", "16-bit packed", "fp16"),
        ("mul.f16", "16-bit arithmetic", "fp16"),
        ("mul.f64", "fp64 arithmetic", "fp64"),
        ("ex2.approx.ftz.f32", "special function", "xu"),
        ("ld.global.nc.L1::no_allocate.L2::256B.v4.u32", "global load", "lsu"),
        ("st.global.v2.f32", "global store", "lsu"),
        ("ld.shared::cta.b32", "shared load", "lsu"),
        ("st.shared.v4.b32", "shared store", "lsu"),
        ("ld.u32", "generic load", "lsu"),
        ("ld.param.u64", "parameter load", "none"),
        ("ld.local.f32", "local load", "lsu"),
        ("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "shared load", "lsu"),
        ("stmatrix.sync.aligned.m8n8.x4.shared.b16", "shared store", "lsu"),
        ("cp.async.cg.shared.global.L2::128B", "async copy", "lsu"),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", "async copy", "issue"),
        ("cp.async.wait_group", "wait", "issue"),
        ("cp.async.mbarrier.arrive.shared.b64", "barrier", "lsu"),
        ("atom.shared.inc.u32", "atomic", "lsu"),
        ("red.global.add.f32", "atomic", "lsu"),
        ("shfl.sync.bfly.b32", "cross-lane", "lsu"),
        ("bar.sync", "barrier", "adu"),
        ("bra.uni", "branch", "cbu"),
        ("mov.b64", "move", "none"),
        ("cvta.to.global.u64", "move", "none"),
        ("neg.f32", "move", "none"),
        ("cvt.rn.satfinite.e2m1x2.f32", "conversion", "issue"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "tensor 16-bit", "tensor"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "tensor tf32", "tensor"),
        ("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16", "tensor fp8", "tensor"),
        ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e4m3.f32", "tensor fp8", "tensor"),
        ("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32", "tensor int8", "tensor"),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", "tensor 16-bit", "tensor"),
        (NVFP4, "tensor nvfp4", "tensor"),
        (CUTLASS_NVFP4, "tensor nvfp4", "tensor"),
        (NVFP4.replace("mxf4nvf4", "mxf4").replace("4X", "2X").replace("ue4m3", "ue8m0"), "tensor mxfp4", "tensor"),
    ],
)
def test_class_and_pipe(instruction: str, name: str, pipe: str) -> None:
    opcode, *modifiers = instruction.split(".")
    assert classify(instruction) == classify(opcode, modifiers)
    assert classify(instruction)[:2] == (name, pipe)


@pytest.mark.parametrize(
    "instruction",
    ["frobnicate.b32", "add.b32", "max.e4m3", "ld.global", "cp.strange", "mma.sync.aligned.m16n8k16.row.col", "abs"],
)
def test_what_is_not_known_is_named(instruction: str) -> None:
    with pytest.raises(Unknown, match=instruction):
        classify(instruction)


@pytest.mark.parametrize(
    ("instruction", "work", "issues"),
    [
        ("fma.rn.f32", 1, 1),
        ("fma.rn.f32x2", 2, 1),  # one FFMA2 on sm_100a, two FFMA on sm_120a: two results either way
        ("mul.rn.f32", 1, 1),  # an explicit rounding is never fused
        ("mul.f32", 0.5, 0.5),  # may become one fma with a sum
        ("add.ftz.f32", 0.5, 0.5),
        ("max.f32", 0.5, 0.5),  # three inputs from sm_100 on
        ("mul.rn.f16x2", 1, 1),
        ("add.f16x2", 0.5, 0.5),
        ("cvt.rn.f16x2.f32", 1, 1),
        ("cvt.rn.bf16.f32", 0.5, 0.5),  # two, and the pair of them, are one packed conversion
        ("cvt.u64.u32", 0, 0),
        ("cvt.f32.f16", 0, 0),
        ("ld.shared.v4.f32", 1, 1),
        ("ld.shared.f32", 0.25, 0.25),  # four to neighbours may become one
        ("st.shared.v2.b8", 0.125, 0.125),
        ("ld.global.v8.f32", 1, 1),
        ("div.rn.f32", 0, 0),
        ("add.s32", 0, 0),
        ("mov.b32", 0, 0),
        ("bra", 0, 0),
        ("mbarrier.try_wait.parity.shared::cta.b64", 0, 0),
    ],
)
def test_a_bound_counts_only_what_the_machine_code_keeps(instruction: str, work: float, issues: float) -> None:
    assert classify(instruction)[2:] == (work, issues)


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", Mma("m16n8k16 f32.bf16.bf16.f32", 2048)),
        (NVFP4, Mma("mxf4nvf4 4X m16n8k64 f32.e2m1.e2m1.f32.ue4m3", 8192)),
        (CUTLASS_NVFP4, Mma("mxf4nvf4 4X m16n8k64 f32.e2m1.e2m1.f32.ue4m3", 8192)),
        (
            "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
            Mma("sparse m16n8k32 f32.f16.f16.f32", 2048),
        ),
        # four warps share one wgmma
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", Mma("wgmma m64n128k16 f32.f16.f16", 32768)),
        ("wgmma.fence.sync.aligned", None),
        ("fma.rn.f32", None),
    ],
)
def test_products_of_an_mma(instruction: str, expected: Mma | None) -> None:
    assert mma(instruction) == expected
