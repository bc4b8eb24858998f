"""`triton-native`: refused where there is no NVFP4 product, made of it where there is one, right in the interpreter."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from impls.arch import ARCHES, CPU, Arch, find
from impls.contract import Problem
from impls.isa.processes import Processes
from impls.isa.sass import opcodes
from impls.isa.toolchain import disassembler
from impls.registry import implementation
from impls.triton_native import availability
from impls.worker import Worker

COMPILE = {"TRITON_INTERPRET": "0"}
INTERPRET = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
PROBLEM = {"batch": 1, "q_heads": 32, "kv_heads": 8, "q_len": 1, "kv_len": 8192, "head_dim": 128, "v_head_dim": 128}
NATIVE = {"sm_100a", "sm_103a", "sm_110a", "sm_120a", "sm_121a"}
PRODUCT_OF_FP4 = r"\b(?:mma\.sync|tcgen05\.mma)\S*kind::mxf4nvf4\.block_scale\S*"
PRODUCT_OF_16_BITS = r"\b(?:mma\.sync\S*\.f32\.\w*16\.\w*16\.f32|tcgen05\.mma\S*kind::f16|wgmma\.mma_async\S*)"
FP4_OPCODES = r"OMMA|UTCOMMA"
QUICK = ("decode", "extend", "head-dim-80", "group-6", "float16-decode", "ragged-v-tokens", "paged-nhd-2", "empty-splits")
QUICK += ("globals-tiny-huge", "large-scores", "all-codes", "strided")


def name_of(arch: Arch) -> str:
    return arch.name


@pytest.mark.parametrize("arch", [CPU, *ARCHES.values()], ids=name_of)
def test_a_target_without_the_instruction_is_refused_by_name(arch: Arch):
    """An architecture that is newer has not everything that an older one has: each is asked for by its exact name."""
    reason = implementation("triton-native").why_not(Problem(**PROBLEM), arch)
    if arch.name not in NATIVE and arch.is_gpu:
        assert reason is not None
        assert reason.startswith(f"{arch.name} ")
        assert "NVFP4 mma.sync" in reason
    elif not arch.is_gpu:
        assert reason is None or "TRITON_INTERPRET=1" in reason or "triton" in reason
    else:
        assert reason is None or "triton" in reason


@pytest.mark.parametrize(("version", "arch"), [((3, 6), "sm_100a"), ((3, 7), "sm_121a"), ((3, 8), "sm_110a")])
def test_a_triton_that_fails_is_refused_with_its_version(monkeypatch, version, arch):
    monkeypatch.setattr("impls.triton.availability.installed_version", lambda: version)
    reason = availability.why_not(find(arch)) or ""
    assert reason.startswith(f"triton 3.{version[1]} cannot compile")
    assert arch in reason


def test_heads_that_tensor_memory_cannot_hold_are_refused():
    reason = implementation("triton-native").why_not(Problem(**{**PROBLEM, "v_head_dim": 512}), find("sm_100a"))
    assert reason is not None
    assert "triton" in reason


@pytest.fixture(scope="module")
def compiler() -> Iterator[Worker]:
    with Worker("impls.triton.summary:compile_summary", env=COMPILE) as worker:
        yield worker


def machine_code(cubin: bytes, folder: Path) -> dict[str, int]:
    processes = Processes()
    tool = disassembler(processes)
    if tool is None:
        pytest.skip("there is no nvdisasm here")
    file = folder / "kernel.cubin"
    file.write_bytes(cubin)
    (counts,) = opcodes(processes.run([tool.path, "--print-code", file]).output).values()
    return counts


SHAPES = [
    {"head_dim": dim, "v_head_dim": dim, "q_len": rows, "v_block_axis": axis}
    for dim in (64, 128, 256, 512)
    for rows in (1, 2048)
    for axis in (-1, -2)
]
COMPILED = [("sm_120a", SHAPES[4])]
SLOW = [
    pytest.param(arch, shape, marks=pytest.mark.slow)
    for arch in sorted(NATIVE)
    for shape in {"sm_120a": SHAPES, "sm_100a": SHAPES[4:8] + SHAPES[2:12:8]}.get(arch, SHAPES[4:12:5])
]


@pytest.mark.parametrize(("arch", "shape"), [*COMPILED, *SLOW])
def test_scores_are_a_product_of_fp4_and_nothing_else_takes_its_place(compiler, tmp_path, arch: str, shape: dict[str, Any]):
    """Triton multiplies in 16 bits, without a word, where it cannot do it: for 64 rows of tcgen05, for one. Then K would be
    multiplied by a product of 16 bits, of which there must be no more than those that P times V takes.
    """
    problem = {**PROBLEM, **shape}
    reason = implementation("triton-native").why_not(Problem(**problem), find(arch))
    if reason is not None:
        pytest.skip(reason)
    reply = compiler.call({"impl": "triton-native", "arch": arch, "problem": problem}, timeout=300)
    assert reply.status == "ok", reply.sentence
    kernel, plan = reply.value["kernels"][0], reply.value["plan"]
    assert kernel["entry"] == "attend"
    assert f".target {arch}" in kernel["ptx"]
    assert kernel["shared_bytes"] <= find(arch).shared_per_block
    assert re.findall(PRODUCT_OF_FP4, kernel["ptx"])
    assert any(re.match(FP4_OPCODES, opcode) for opcode in machine_code(base64.b64decode(kernel["cubin"]), tmp_path))
    products = len(re.findall(PRODUCT_OF_16_BITS, kernel["ptx"]))
    if arch in ("sm_120a", "sm_121a"):  # m16n8k16, shared out among the warps
        wanted = plan["block_m"] * plan["block_n"] * shape["v_head_dim"] // (16 * 8 * 16 * plan["num_warps"])
        assert products == wanted
    else:  # m128 n<=256 k16, and Triton unrolls the first and the last step of the loop
        steps = plan["block_n"] // 16 * -(-shape["v_head_dim"] // 256)
        assert products % steps == 0
        assert products <= 3 * steps


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Worker]:
    with Worker("impls.numerics.measure:examine", env=INTERPRET) as worker:
        yield worker


@pytest.mark.parametrize("case", QUICK)
def test_within_its_error_bound_in_the_interpreter(interpreter, case: str):
    """Q is rounded by the kernel as the reference rounds it: a code that differs would be far beyond the bound of the rest.

    The gate on a CPU runs all cases.
    """
    reply = interpreter.call({"impl": "triton-native", "case": case, "on": "cpu"}, timeout=300)
    if reply.status == "unsupported" and "install triton" in (reply.sentence or ""):
        pytest.skip(reply.sentence)
    assert reply.status == "ok", reply.sentence
    assert reply.value["numerics"]["verdict"] == "pass"
