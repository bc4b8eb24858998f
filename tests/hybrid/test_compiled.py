"""What the hybrids compile to, for GPUs that are not here. Each compiles in a process of its own: LLVM may abort it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from impls.arch import find
from impls.triton.availability import why_not
from impls.worker import Worker

COMPILE = {"TRITON_INTERPRET": "0"}
DECODE = {"batch": 1, "q_heads": 32, "kv_heads": 8, "q_len": 1, "kv_len": 131072, "head_dim": 128, "v_head_dim": 128}
ARCHES = ("sm_80", "sm_90a", "sm_120a")


@pytest.fixture(scope="module")
def converter() -> Iterator[Worker]:
    with Worker("tests.hybrid.children:conversion", env=COMPILE) as worker:
        yield worker


def converted(worker: Worker, arch: str, kind: str, **fields: Any) -> list[dict[str, Any]]:
    request = {"arch": arch, "kind": kind, "problem": {**DECODE, **fields}}
    reply = worker.call(request, timeout=120)
    assert reply.status == "ok", reply.sentence
    return list(reply.value)


@pytest.mark.parametrize(("kind", "reads", "writes"), [("16-bit", 32, 16), ("folded", 32, 16), ("e4m3", 64, 16)])
def test_rows_are_read_without_gaps_and_written_16_bytes_at_a_time(
    converter: Worker, kind: str, reads: int, writes: int
) -> None:
    kernels = [kernel for kernel in converted(converter, "sm_90a", kind) if kernel["entry"] == "convert_rows"]
    assert len(kernels) == 2
    for kernel in kernels:
        stay_in_registers(kernel, reads, writes, 8)


@pytest.mark.parametrize(("kind", "writes"), [("16-bit", 16), ("folded", 16), ("e4m3", 8)])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_columns_are_turned_in_registers(converter: Worker, arch: str, kind: str, writes: int) -> None:
    """A block of each of 8 lines in, 8 head dims of each of 16 tokens out."""
    (kernel,) = (one for one in converted(converter, arch, kind, v_block_axis=-2) if one["entry"] == "convert_columns")
    stay_in_registers(kernel, 64, writes, 8)


def stay_in_registers(kernel: dict[str, Any], read_bits: int, written_bytes: int, loads: int) -> None:
    """All loads of codes come first, of `read_bits` each, no store is of less than `written_bytes`, and nothing is shared."""
    before, _, after = kernel["ptx"].partition("bar.sync")
    assert set(re.findall(r"st\.global\.(\S+)", kernel["ptx"])) == {f"v{written_bytes // 4}.b32"}
    assert len(re.findall(rf"ld\.global\.b{read_bits} ", before)) == loads
    assert "ld.global.b8" not in after
    assert kernel["shared_bytes"] == 0


@pytest.mark.parametrize("axis", [-1, -2])
def test_peaks_are_read_16_bytes_at_a_time(converter: Worker, axis: int) -> None:
    kernels = [one for one in converted(converter, "sm_90a", "e4m3", v_block_axis=axis) if one["entry"] == "find_peaks"]
    assert len(kernels) == 2
    for kernel in kernels:
        assert "ld.global.v4.b32" in kernel["ptx"]
        assert "ld.global.b8" not in kernel["ptx"]


def test_e4m3_is_rounded_by_the_gpu_where_it_can(converter: Worker) -> None:
    for arch, can in (("sm_80", False), ("sm_90a", True)):
        (found,) = {"cvt.rn.satfinite.e4m3x2" in one["ptx"] for one in converted(converter, arch, "e4m3")[1::2]}
        assert found == can


def test_kernels_for_gaps_are_compiled_for_tensors_without_memory() -> None:
    """As the gate plans a case ahead: what a plan expects, then what the case's tensors take."""
    with Worker("tests.hybrid.children:planned_case", env=COMPILE) as worker:
        reply = worker.call({"impl": "hybrid-bf16", "case": "strided"}, timeout=120)
    assert reply.status == "ok", reply.sentence
    assert reply.value == [True, True, False, False]


def test_two_threads_convert_each_its_own_cache() -> None:
    """They share what is launched, which is pointed at the tensors of a call."""
    with Worker("tests.hybrid.children:convert_in_two_threads", env=COMPILE) as worker:
        reply = worker.call({}, timeout=120)
    assert reply.status == "ok", reply.sentence
    assert reply.value == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize("impl", ["hybrid-bf16", "hybrid-fp8"])
@pytest.mark.parametrize("arch", ARCHES)
def test_every_tile_compiles_and_fits(arch: str, impl: str) -> None:
    if "install triton" in (why_not(find(arch)) or ""):
        pytest.skip(why_not(find(arch)))
    with Worker("impls.triton.summary:compile_summary", env=COMPILE) as worker:
        for dim in (128, 256, 512):
            for q_len in (1, 2048):
                problem = {**DECODE, "head_dim": dim, "v_head_dim": dim, "q_len": q_len}
                reply = worker.call({"arch": arch, "impl": impl, "problem": problem}, timeout=300)
                assert reply.status == "ok", f"{problem}: {reply.sentence}"
                for kernel in reply.value["kernels"]:
                    assert kernel["shared_bytes"] <= find(arch).shared_per_block, problem
