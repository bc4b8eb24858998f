"""What the kernel compiles to, for GPUs that are not here. In a process of its own: LLVM may abort it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from impls.arch import find
from impls.isa.processes import Processes
from impls.isa.toolchain import disassembler
from impls.triton.availability import why_not
from impls.worker import Worker

ROWS = (1, 16, 32, 64, 4096)
ARCHES = ("sm_80", "sm_90a", "sm_100a", "sm_120a")


@pytest.fixture(scope="module")
def compiled() -> Iterator[Worker]:
    with Worker("tests.weights.children:compiled", env={"TRITON_INTERPRET": "0"}) as worker:
        yield worker


def check(compiled: Worker, impl: str, arch: str, rows: int, folder: Path, dtype: str = "bfloat16") -> str:
    """The disassembly of the kernel, which fits and spills nothing."""
    problem = {"rows": rows, "outputs": 14336, "inputs": 4096, "dtype": dtype}
    reply = compiled.call({"impl": impl, "arch": arch, "problem": problem}, timeout=300)
    assert reply.status == "ok", reply.sentence
    assert f".target {arch}" in reply.value["ptx"]
    assert reply.value["shared_bytes"] <= find(arch).shared_per_block
    tool = disassembler(Processes())
    if tool is None:
        pytest.skip("no nvdisasm is installed")
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(bytes.fromhex(reply.value["cubin"]))
    done = subprocess.run([tool.path, "-c", cubin], capture_output=True, text=True, check=True)
    assert not re.search(r"\b(LDL|STL)\b", done.stdout), "it spills"
    return done.stdout


def test_few_rows_are_multiplied_where_they_are_decoded(compiled, tmp_path):
    """Weights that went through shared memory once more would need 4 times its bandwidth."""
    sass = check(compiled, "w4a16:fused", "sm_90a", 1, tmp_path)
    loop = sass[: sass.rindex("HMMA")]
    assert not re.search(r"\bSTS\b", loop[loop.index("HMMA") :])


def test_decoding_to_memory_spills_nothing(compiled, tmp_path):
    check(compiled, "w4a16:convert", "sm_90a", 4096, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHES)
def test_decoding_to_memory_fits_everywhere(compiled, arch, tmp_path):
    if "install triton" in (why_not(find(arch)) or ""):
        pytest.skip(why_not(find(arch)) or "")
    for dtype in ("bfloat16", "float16"):
        check(compiled, "w4a16:convert", arch, 4096, tmp_path, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("arch", ARCHES)
def test_every_tile_fits_and_spills_nothing(compiled, arch, rows, tmp_path):
    if "install triton" in (why_not(find(arch)) or ""):
        pytest.skip(why_not(find(arch)) or "")
    for dtype in ("bfloat16", "float16"):
        check(compiled, "w4a16:fused", arch, rows, tmp_path, dtype)
