"""What the kernels compile to, for GPUs that are not here. Each compiles in a process of its own: LLVM may abort it."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from impls.arch import ARCHES, Arch, find
from impls.triton.availability import why_not
from impls.worker import Worker

COMPILE = {"TRITON_INTERPRET": "0"}
INTERPRET = {"TRITON_INTERPRET": "1"}
DECODE = {"batch": 1, "q_heads": 32, "kv_heads": 8, "q_len": 1, "kv_len": 131072, "head_dim": 128, "v_head_dim": 128}
PREFILL = {**DECODE, "q_len": 2048, "kv_len": 2048}
TILE = {"batch": 1, "q_heads": 8, "kv_heads": 8, "kv_len": 160}  # lines of 80 bytes, for the widest loads
PAGED = {"layout": {"page_size": 16, "order": "NHD"}, "ragged": True}
WIDTHS = [{"head_dim": dim, "v_head_dim": v_dim} for dim, v_dim in ((64, 64), (512, 512), (128, 128), (192, 128))]
SHAPES = [{**DECODE, **width} for width in WIDTHS[:2]] + [{**PREFILL, **width} for width in WIDTHS]
SHAPES += [
    {**DECODE, **PAGED, "v_block_axis": -2},
    {**PREFILL, **PAGED, "window": 100},
    {**PREFILL, "q_len": 8, "dtype": "float16"},
]
ONE_OF_EACH_KIND = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a")
"""The others compile like their neighbours, and are asked for a third of the shapes."""
KINDS = {".u64": ("pointer", "null", "i64"), ".u32": ("i32",), ".f32": ("f32",)}


@pytest.fixture(scope="module")
def launches() -> Iterator[Worker]:
    with Worker("tests.triton.children:launches", env=COMPILE) as worker:
        yield worker


def entry_parameters(ptx: str, entry: str) -> list[str]:
    """Types of the parameters of a kernel, in order."""
    declared = re.search(rf"\.entry {entry}\((.*?)\)\n", ptx, re.DOTALL)
    assert declared, f"the PTX has no entry {entry}"
    return re.findall(r"\.param (\.\w+)", declared[1])


def test_a_launch_is_what_its_ptx_says(launches):
    """Arguments that are missing, too many or out of order would make a kernel read others' bits."""
    reply = launches.call({"case": "splits", "arch": "sm_90a"}, timeout=120)
    assert reply.status == "ok", reply.sentence
    assert [launch["entry"] for launch in reply.value] == ["attend", "merge"]
    for launch in reply.value:
        types = entry_parameters(launch["ptx"], launch["entry"])
        assert len(types) == len(launch["kinds"])
        for type_, kind in zip(types, launch["kinds"], strict=True):
            assert kind in KINDS[type_]
        assert launch["cubin_starts"] == "\x7fELF"
        assert ".target sm_90a" in launch["ptx"]
        assert f".reqntid {launch['block'][0]}" in launch["ptx"]
        assert launch["block"][1:] == [1, 1]
        assert launch["shared_bytes"] <= find("sm_90a").shared_per_block
    assert reply.value[0]["grid"][1] > 1


@pytest.mark.parametrize(("arch", "early"), [("sm_80", False), ("sm_90a", True), ("sm_120a", True)])
def test_a_merge_that_starts_early_waits_before_it_reads(launches, arch, early):
    reply = launches.call({"case": "splits", "arch": arch}, timeout=120)
    attend, merge = (launch["ptx"] for launch in reply.value)
    assert ("griddepcontrol.launch_dependents" in attend) == early
    assert ("griddepcontrol.wait" in merge) == early
    if early:
        assert merge.index("griddepcontrol.wait") < merge.index("ld.global")


def test_a_limit_of_registers_reaches_the_assembler(launches):
    reply = launches.call({"case": "splits", "arch": "sm_90a"}, timeout=120)
    assert ".maxnreg 168" in reply.value[0]["ptx"]


@pytest.mark.parametrize(
    ("case", "in_place"), [("strided-by-1-axis-1", False), ("strided-by-2-axis-1", False), ("group-1", True)]
)
def test_bfloat16_is_decoded_in_place_only_where_rows_are_words(launches, case, in_place):
    """In place a byte is moved by shifts alone, in order by a permutation: 4 of them for each word."""
    reply = launches.call({"case": case, "arch": "sm_90a"}, timeout=120)
    ptx = reply.value[0]["ptx"]
    assert ("prmt.b32 lanes" not in ptx) == in_place


@pytest.mark.parametrize(("case", "by_word"), [("by-word-causal", True), ("by-word-strided-by-2", False)])
def test_wide_heads_are_decoded_in_the_registers_of_operands(launches, case, by_word):
    """No decoded tile goes through shared memory."""
    reply = launches.call({"case": case, "arch": "sm_90a"}, timeout=120)
    ptx = reply.value[0]["ptx"]
    products = [match.start() for match in re.finditer(r"\bmma\.sync", ptx)]
    loop = ptx[products[0] : products[-1]]
    assert (re.search(r"\bst\.shared", loop) is None) == by_word


def test_codes_that_are_subnormal_float32_are_not_flushed(launches):
    """Code 1 enters its multiplication as 2^-127: under flush-to-zero every 0.5 would read as 0."""
    reply = launches.call({"case": "splits", "arch": "sm_90a"}, timeout=120)
    multiplications = set(re.findall(r"\bmul\.[\w.]*f32\w*", reply.value[0]["ptx"]))
    assert multiplications
    assert not [opcode for opcode in multiplications if "ftz" in opcode]


def test_ptx_does_not_depend_on_the_place_of_the_checkout(launches):
    """Equal sources have to give equal hashes on every host."""
    reply = launches.call({"case": "splits", "arch": "sm_90a"}, timeout=120)
    for launch in reply.value:
        assert not re.search(r"^\s*\.(loc|file)\b|/impls/", launch["ptx"], re.MULTILINE)


def test_less_aligned_tensors_get_a_kernel_of_their_own(launches):
    """A kernel that was promised 16-byte rows reads elsewhere, or faults, on rows that are 40 bytes apart."""
    packed = launches.call({"case": "group-2", "arch": "sm_90a"}, timeout=120).value[0]["ptx"]
    apart = launches.call({"case": "strided-axis-1", "arch": "sm_90a"}, timeout=120).value[0]["ptx"]
    assert re.search(r"cp\.async[\w.]* .*, 0x10,", packed)
    assert not re.search(r"cp\.async[\w.]* .*, 0x10,", apart)


def test_a_process_that_interprets_says_that_it_cannot_compile():
    with Worker("impls.triton.summary:compile_summary", env=INTERPRET) as worker:
        reply = worker.call({"arch": "sm_90a", "problem": DECODE}, timeout=60)
    assert reply.status == "unsupported"
    assert "child process without TRITON_INTERPRET" in reply.sentence


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHES.values(), ids=lambda arch: arch.name)
def test_every_shape_compiles_and_fits(arch: Arch):
    if "install triton" in (why_not(arch) or ""):
        pytest.skip(why_not(arch))
    compile_and_check(arch, SHAPES if arch.name in ONE_OF_EACH_KIND else SHAPES[1::3])


@pytest.mark.slow
@pytest.mark.parametrize("v_block_axis", [-1, -2])
@pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
def test_every_tile_compiles_with_both_block_axes_of_v(arch: str, v_block_axis: int):
    """Triton lays a tile out by its shape, and fails for some: on warp groups, on tensor memory, and on neither."""
    tiles = itertools.product((64, 256), (16, 64, 128))
    shapes = [{**TILE, "head_dim": dim, "v_head_dim": dim, "q_len": rows} for dim, rows in tiles]
    compile_and_check(find(arch), [{**shape, "v_block_axis": v_block_axis} for shape in shapes])


def compile_and_check(arch: Arch, problems: list[dict[str, Any]]) -> None:
    """In two processes, for two cores."""
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(_compile_and_check, arch, problems[start::2]) for start in range(2)]:
            done.result()


def _compile_and_check(arch: Arch, problems: list[dict[str, Any]]) -> None:
    with Worker("impls.triton.summary:compile_summary", env=COMPILE) as worker:
        for problem in problems:
            reply = worker.call({"arch": arch.name, "problem": problem}, timeout=300)
            assert reply.status == "ok", f"{problem}: {reply.sentence}"
            kernels = reply.value["kernels"]
            assert len(kernels) == (2 if reply.value["workspace_bytes"] else 1)
            for kernel in kernels:
                assert f".target {arch.name}" in kernel["ptx"]
                assert base64.b64decode(kernel["cubin"]).startswith(b"\x7fELF")
                assert kernel["shared_bytes"] <= arch.shared_per_block, problem
                assert len(kernel["parameters"]) == len(entry_parameters(kernel["ptx"], kernel["entry"]))
