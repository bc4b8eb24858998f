"""The quantiser's kernels: their bits, in Triton's interpreter, and what they compile to."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from impls.arch import ARCHES, find
from impls.isa.processes import Processes
from impls.isa.sass import opcodes
from impls.isa.toolchain import disassembler
from impls.nvfp4 import quantize
from impls.triton import availability
from impls.triton.quantize import Quantizer, why_not
from impls.triton.quantize_layouts import ROW_BLOCKS, in_memory_order, rows
from impls.worker import Worker
from tests.triton.quantize_cases import CASES, assert_same_bits

INTERPRET = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
COMPILE = {"TRITON_INTERPRET": "0"}
SLOW_ARCHES = [pytest.param(arch, marks=pytest.mark.slow) for name, arch in ARCHES.items() if name != "sm_90a"]


@pytest.fixture(scope="module")
def cases() -> Iterator[Worker]:
    with Worker("tests.triton.quantize_children:run_case", env=INTERPRET) as worker:
        yield worker


@pytest.fixture(scope="module")
def compiler() -> Iterator[Worker]:
    with Worker("tests.triton.quantize_children:compiled", env=COMPILE) as worker:
        yield worker


@pytest.mark.parametrize("name", CASES)
def test_same_bits_as_torch_on_the_cpu(cases, name):
    reply = cases.call({"case": name}, timeout=120)
    assert reply.status == "ok", reply.sentence


def test_corrected_quotients_are_division_at_every_boundary():
    """One correction for what bfloat16 and float16 hold, exhaustively; two for float32; none is not enough for either."""
    with Worker("tests.triton.quantize_children:run_division", env=INTERPRET) as worker:
        for bits, corrections in ((8, 1), (11, 1), (24, 2)):
            reply = worker.call({"bits": bits, "corrections": corrections}, timeout=120)
            assert (reply.status, reply.value) == ("ok", 0), reply.sentence
            assert worker.call({"bits": bits, "corrections": 0}, timeout=120).value > 0


def machine_code(compiled: dict[str, Any], folder: Path) -> Counter[str]:
    """{opcode: how often} of a kernel."""
    processes = Processes()
    tool = disassembler(processes)
    if tool is None:
        pytest.skip("there is no nvdisasm here")
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(base64.b64decode(compiled["cubin"]))
    (counts,) = opcodes(processes.run([tool.path, "--print-code", cubin]).output).values()
    return Counter(counts)


@pytest.mark.parametrize("axis", [-1, -2])
@pytest.mark.parametrize("arch", [find("sm_90a"), *SLOW_ARCHES], ids=lambda arch: arch.name)
def test_loads_are_wide_and_nothing_spills(compiler, arch, axis, tmp_path):
    if "install triton" in (availability.why_not(arch) or ""):
        pytest.skip(availability.why_not(arch))
    reply = compiler.call({"arch": arch.name, "axis": axis}, timeout=300)
    assert reply.status == "ok", reply.sentence
    search, rounding = reply.value
    assert (search["entry"], rounding["entry"]) == ("largest", "quantize_rows" if axis == -1 else "quantize_columns")
    for kernel in (search, rounding):
        assert f".target {arch.name}" in kernel["ptx"]
        declared = re.search(rf"\.entry {kernel['entry']}\((.*?)\)\n", kernel["ptx"], re.DOTALL)
        assert declared is not None
        assert len(re.findall(r"\.param \.\w+", declared[1])) == kernel["arguments"]
    vectors = ("v4", 4) if axis == -1 else ("v2", 16)  # 2 blocks a thread in 16 bytes at a time, 4 blocks in 8
    assert len(re.findall(rf"ld\.global\.{vectors[0]}\.b32", rounding["ptx"])) >= vectors[1]
    assert len(re.findall(r"ld\.global\.v4\.b32", search["ptx"])) >= 4
    for kernel in (search, rounding):
        spilled = [opcode for opcode in machine_code(kernel, tmp_path) if re.match(r"(LDL|STL)\b", opcode)]
        assert not spilled, kernel["entry"]


def test_what_the_kernels_cannot_do_is_said_in_a_sentence():
    x = torch.zeros(4, 32)
    cases = (
        (x.double(), "takes bfloat16, float16 and float32, not float64."),
        (torch.zeros(3, 3, 3, 3, 40)[:, :2, :2, :2, :32], "make the tensor contiguous."),
        (torch.zeros(4, 32, device="meta"), "not on meta"),
        (x, "use a child process with TRITON_INTERPRET=1"),
    )
    for tensor, sentence in cases:
        assert sentence in (why_not(tensor, -1) or "")
        with pytest.raises(ValueError, match=r"^quantize: "):
            quantize(tensor, backend="triton", check=False)


def test_a_search_between_gaps_has_full_tiles():
    """Few heads a token, as pages have them: planes of one token would leave most of a tile empty."""
    x = torch.empty(4096, 17, 64, dtype=torch.bfloat16)[:, :16]
    layout = rows(in_memory_order(x), across_rows=True)
    assert layout.numbers["tiles"] * ROW_BLOCKS * 16 == x.numel()


def test_backend_of_another_name_is_refused():
    with pytest.raises(ValueError, match="backend is torch, triton or None, not 'cuda'"):
        quantize(torch.zeros(16), backend="cuda")


def test_on_a_cpu_torch_rounds_unless_triton_is_named():
    """No process that has not asked to interpret Triton may need it."""
    x = torch.randn(4, 32)
    assert_same_bits(quantize(x), quantize(x, backend="torch"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu_triton_rounds_unless_torch_is_named():
    x = torch.randn(4, 32, device="cuda")
    assert why_not(x, -1) is None
    assert len(Quantizer(x).launches) == 2
    assert_same_bits(quantize(x), quantize(x.cpu()))
    assert_same_bits(quantize(x, backend="torch"), quantize(x.cpu()))
