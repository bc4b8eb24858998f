"""`nvfp4bench kernels` on kernels whose facts are known, and on what a user gets wrong."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import nvfp4bench
from benchmarks.commands import kernels as command
from benchmarks.inspection import KINDS, LeftOut, Row
from impls.arch import find
from impls.cuda.compiler import compile_kernel
from impls.registry import implementation, implementations
from tests.cuda.needs import needs_nvrtc

KERNELS = Path(__file__).with_name("static_kernels.py")
PROMISED = {"impl", "arch", "head_dim", "name", "registers", "spill_bytes", "local_bytes", "shared_bytes", "warps_per_sm"}
PROMISED |= {"opcodes", "ptx_sha256", "cubin_sha256"}


def kernels(capsys, *arguments: str) -> tuple[int, str, str]:
    status = nvfp4bench.main(["kernels", *arguments])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.fixture(scope="module")
def answer() -> tuple[int, dict[str, Any]]:
    """Status and report of one call that has everything: kernels, refusals, and one that does not compile."""
    impls = ",".join(f"{KERNELS}:{name}" for name in ("Tidy", "Spilling", "Broken"))
    written = io.StringIO()
    with contextlib.redirect_stdout(written), pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "usable_cores", lambda: 1)  # a process costs more to start than these kernels to compile
        arguments = ["--impl", impls, "--arch", "sm_120a,sm_90", "--head-dim", "64,512", "--json"]
        status = nvfp4bench.main(["kernels", *arguments])
    return status, json.loads(written.getvalue())


@needs_nvrtc
def test_every_fact_of_a_kernel_is_in_its_row(answer):
    _, report = answer
    rows = report["rows"]
    assert set(report["toolchain"]) == {"nvrtc", "triton", "triton_ptxas", "triton_ptxas_sm_100", "nvdisasm"}
    assert all(row.keys() >= PROMISED for row in rows)
    order = [(name, arch, 64, kind) for name in ("tidy", "spilling") for arch in ("sm_120a", "sm_90a") for kind in KINDS]
    assert [(row["impl"], row["arch"], row["head_dim"], row["workload"]) for row in rows] == order
    for row in rows:
        tidy = row["impl"] == "tidy"
        assert row["threads"] == 128
        assert row["name"] == row["impl"]
        assert row["opcodes"]["EXIT"] >= 1
        assert row["shared_bytes"] == 2048 + (64 if tidy else 0)
        assert row["local_bytes"] == (0 if tidy else 256)
        assert (row["spill_bytes"] == 0) == tidy
        assert any(opcode.startswith("STL") for opcode in row["opcodes"]) != tidy
        assert row["warps_per_sm"] == (48 if row["arch"] == "sm_120a" else 64)  # few registers, and 3 KiB of shared memory


@needs_nvrtc
def test_hashes_are_those_of_what_a_gpu_loads(answer):
    made = compile_kernel(KERNELS.with_suffix(".cu"), "tidy", find("sm_90a"), {"HEAD_DIM": 64})
    (row,) = (row for row in answer[1]["rows"] if (row["impl"], row["arch"], row["workload"]) == ("tidy", "sm_90a", "decode"))
    assert row["cubin_sha256"] == hashlib.sha256(made.cubin).hexdigest()
    assert row["ptx_sha256"] == hashlib.sha256(made.ptx.encode()).hexdigest()


@needs_nvrtc
def test_a_kernel_that_does_not_compile_fails_the_report_and_a_refusal_does_not(answer):
    status, report = answer
    assert status == 1
    left_out = [LeftOut(**one) for one in report["left_out"]]
    assert Counter((one.impl, one.status) for one in left_out) == {
        ("tidy", "unsupported"): 6,
        ("spilling", "unsupported"): 6,
        ("broken", "unsupported"): 6,
        ("broken", "failed"): 6,
    }
    lines = command._reasons(left_out)
    assert "tidy, 6 left out, unsupported: wide heads are refused." in lines
    assert any(line.startswith("broken, 3 left out, failed: CompileError: ") and "no kernel missing" in line for line in lines)


@needs_nvrtc
def test_a_kernel_is_a_line_of_the_table(answer):
    rows = [Row(**row) for row in answer[1]["rows"]]
    head, first, *_ = command._table(rows)
    assert head.split()[:5] == ["impl", "arch", "dim", "workload", "kernel"]
    assert first.split()[:5] == ["tidy", "sm_120a", "64", "decode", "tidy"]
    assert "2112 of 101376" in first
    assert first.endswith(f" 48  {sum(rows[0].opcodes.values()):>12}")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--impl", "tritn"], "unknown implementation 'tritn'; there are "),
        (
            ["--impl", "sdpa-flash", "--arch", "sm_90a", "--head-dim", "64"],
            "sdpa-flash does not list its kernels: its runners state none, or `lists_launches` is not set.",
        ),
        (["--arch", "sm_91"], "unknown architecture 'sm_91'; known are "),
        (["--impl", "w4a16"], "only kernels of attention are reported, and w4a16 is a projection; leave it out of --impl."),
        (["--impl", "triton,triton+w4a16"], "only kernels of attention are reported, and triton+w4a16 is a layer;"),
        (["--arch", "sm_90a,cpu"], "kernels are compiled for GPUs, and cpu is none"),
        (["--arch", "sm_90a,"], "--arch takes names with commas between them"),
        (["--head-dim", "100"], "head_dim must be a multiple of 16 (an NVFP4 block), not 100."),
        (["--head-dim", "1e3"], "--head-dim takes numbers such as 128 with commas between them, not '1e3'."),
        (["--head-dim", "0"], "head_dim must be at least 1, not 0."),
        (["--impl", "triton", "--arch", "sm_90a", "--head-dim", "1024"], "triton takes head dims up to 512, not 1024."),
    ],
)
def test_what_is_not_known_is_one_sentence(capsys, arguments, sentence):
    status, out, err = kernels(capsys, *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"nvfp4bench kernels: {sentence}")
    assert err.count("\n") == 1


def test_without_a_disassembler_nothing_is_compiled(capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.inspection.disassembler", lambda processes: None)
    monkeypatch.setattr("benchmarks.commands.kernels.inspect", None)
    status, _, err = kernels(capsys, "--impl", "triton", "--arch", "sm_90a", "--head-dim", "64")
    assert status == 2
    assert err.startswith("nvfp4bench kernels: there is no nvdisasm here, ")


def test_a_cache_that_cannot_be_written_is_said_once(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(command, "needed_disassembler", lambda: None)
    monkeypatch.setattr(command, "inspect", lambda wanted, *_: ([], [command.LeftOut("a", "b", 64, "c", "unsupported", "no.")]))
    _, _, err = kernels(capsys, "--impl", "triton", "--arch", "sm_90a", "--head-dim", "64")
    folder = tmp_path / "file" / "nvfp4bench" / "cuda"
    assert err.count(f"compiled kernels are not kept for the next call: {folder} cannot be written (Not a directory).") == 1


def test_our_own_kernels_are_listed():
    listed = {name for name, one in implementations().items() if one.lists_launches}
    assert listed >= {
        "triton",
        "triton-native",
        "a4q",
        "a4q-q16",
        "dual-chunk",
        "dual-chunk:triton",
        "hybrid-bf16",
        "hybrid-fp8",
    }


def test_chunks_list_the_kernels_of_what_is_inside():
    assert implementation("dual-chunk:a4q").lists_launches
    assert not implementation("dual-chunk:torch-reference-bf16").lists_launches


@pytest.mark.slow
def test_kernels_of_chunks_and_of_their_merge_are_reported_once_each(capsys):
    status, out, _ = kernels(capsys, "--impl", "dual-chunk:triton", "--arch", "sm_90a", "--head-dim", "64", "--json")
    assert status == 0
    found = [row["name"] for row in json.loads(out)["rows"] if row["workload"] == "decode"]
    assert found == ["attend", "merge", "fold"]


@pytest.mark.slow
@pytest.mark.parametrize(("impl", "arch"), [("triton", "sm_90a"), ("triton-native", "sm_120a")])
def test_kernels_of_triton_are_reported(capsys, impl, arch):
    status, out, _ = kernels(capsys, "--impl", impl, "--arch", arch, "--head-dim", "128", "--json")
    assert status == 0
    rows = json.loads(out)["rows"]
    assert {(row["workload"], row["name"]) for row in rows} >= {(kind, "attend") for kind in ("decode", "extend", "prefill")}
    for row in rows:
        assert 0 < row["registers"] <= 255
        assert 0 < row["shared_bytes"] <= find(arch).shared_per_block
        assert row["warps_per_sm"] >= row["threads"] // 32
        assert (row["spill_bytes"] > 0) == (row["local_bytes"] > 0)
