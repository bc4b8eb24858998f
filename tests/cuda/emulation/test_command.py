"""`nvfp4bench emulate`: what it says of a kernel that is right, of one at fault, and of input that it cannot use."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import nvfp4bench
from impls.cuda.emulation import command, memory
from tests.full_disk import run_with_files_up_to

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "emulate"
SUM, RACY, SPEC = EXAMPLES / "block_sum.ptx", EXAMPLES / "block_sum_racy.ptx", EXAMPLES / "block_sum.json"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """(exit status, stdout, stderr) of the command."""

    def call(*arguments: object) -> tuple[int, str, str]:
        status = nvfp4bench.main(["emulate", *map(str, arguments)])
        return status, *capsys.readouterr()

    return call


def kernel(body: str, *, target: str = "sm_80", parameters: str = ".param .u64 p", before: str = "") -> str:
    return f""".version 8.5
.target {target}
.address_size 64
{before}
.visible .entry k({parameters})
{{
.reg .b64 %rd<8>;
.reg .b32 %r<8>;
.reg .pred %p<4>;
{body}
ret;
}}
"""


STORE = "ld.param.u64 %rd1, [p];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
"""%rd3: where the thread's own element is."""


def launch(**changes: Any) -> dict[str, Any]:
    """Of `kernel`, one block of 64 threads with an element for each."""
    one = {
        "entry": "k",
        "grid": [1],
        "block": [64],
        "arguments": [{"buffer": "p"}],
        "buffers": {"p": {"dtype": "uint32", "shape": [64]}},
    }
    return {name: value for name, value in {**one, **changes}.items() if value is not None}


@pytest.fixture
def files(tmp_path: Path) -> Callable[[str, Any], tuple[Path, str, Path]]:
    """Arguments for a PTX text and a specification: a value, or JSON as text."""

    def write(ptx: str, specification: Any) -> tuple[Path, str, Path]:
        module, spec = tmp_path / "k.ptx", tmp_path / "spec.json"
        module.write_text(ptx)
        spec.write_text(specification if isinstance(specification, str) else json.dumps(specification))
        return module, "--launch", spec

    return write


# A kernel that is right


def test_the_example_adds_up(run, tmp_path):
    status, output, _ = run(SUM, "--launch", SPEC, "--save", tmp_path)
    assert status == 0
    assert "it ran forward and reverse and seeded, with the same bytes; no race was found." in output
    values = np.arange(500, dtype=np.float64)
    expected = [values[start : start + 128].sum() for start in range(0, 500, 128)]  # below 2^24: exact in float32
    assert np.load(tmp_path / "out.npy").tolist() == expected
    assert np.load(tmp_path / "x.npy").tolist() == values.tolist()


def test_counts_are_those_of_the_program(run, tmp_path):
    """4 blocks of 4 warps: 1 + 7 barriers each; 500 values read, 4 written; rounds of 64, 32, 16, 8, 4, 2 and 1 sums."""
    assert run(SUM, "--launch", SPEC, "--json", tmp_path / "a.json")[0] == 0
    data = json.loads((tmp_path / "a.json").read_text())
    (only,) = data["launches"]
    assert (only["entry"], only["grid"], only["block"], only["blocks"]) == ("block_sum", [4, 1, 1], [128, 1, 1], 4)
    assert only["classes"]["barrier"]["executions"] == 4 * 4 * 8
    assert only["totals"]["global_bytes"] == 4 * (500 + 4)
    additions = 4 * (2 + 1 + 1 + 1 + 1 + 1 + 1)
    sums = only["classes"]["fp32 arithmetic"]
    assert (sums["executions"], sums["lanes"]) == (additions, 4 * (64 + 32 + 16 + 8 + 4 + 2 + 1))
    (add,) = [line for line in only["ptx_lines"] if line["text"].startswith("add.rn.f32")]
    assert add["executions"] == additions and SUM.read_text().splitlines()[add["line"] - 1].strip() == add["text"]
    assert only["clocks"]["fma"] == additions * 32 / 64  # an SM of sm_80 adds 64 lanes a clock
    assert [each["source"] for each in only["source_lines"]] == [None]


def test_json_says_what_memory_holds_and_is_the_same_again(run, tmp_path):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    run(SUM, "--launch", SPEC, "--json", first, "--save", tmp_path)
    run(SUM, "--launch", SPEC, "--json", second)
    assert first.read_bytes() == second.read_bytes()
    data = json.loads(first.read_text())
    assert data["holds"] and data["target"] == "sm_80"
    assert data["ptx_sha256"] == hashlib.sha256(SUM.read_bytes()).hexdigest()
    out = np.load(tmp_path / "out.npy")
    assert data["buffers"]["out"] == {"dtype": "float32", "shape": [4], "sha256": hashlib.sha256(out.tobytes()).hexdigest()}


def test_rules_that_are_only_documented_are_listed(run, files, tmp_path):
    body = "mov.f32 %f1, 0f3F800000;\nex2.approx.ftz.f32 %f1, %f1;"
    ptx = kernel(body).replace(".reg .b32", ".reg .f32 %f<2>;\n.reg .b32")
    status, output, _ = run(*files(ptx, launch()), "--json", tmp_path / "a.json")
    assert status == 0
    rules = json.loads((tmp_path / "a.json").read_text())["rules"]
    documented = [name for name, rule in rules.items() if rule["status"] == "documented only"]
    assert documented and all(re.search(rf"^  {re.escape(name)} ", output, re.MULTILINE) for name in documented)
    assert f"{len(documented)} of its rules are only documented" in output


def test_source_lines_are_counted(run, files, tmp_path):
    body = ".loc 1 7 0\nmov.u32 %r1, 1;\nmov.u32 %r2, 2;\n.loc 1 9 0\nmov.u32 %r3, 3;"
    status, output, _ = run(*files(kernel(body, before='.file 1 "k.cu"'), launch()), "--json", tmp_path / "a.json")
    assert status == 0
    (only,) = json.loads((tmp_path / "a.json").read_text())["launches"]
    counted = {each["source"]: each["executions"] for each in only["source_lines"]}
    assert counted == {"k.cu:7": 2 * 2, "k.cu:9": 2 * 2}  # ret is of line 9 too
    assert re.search(r"^k\.cu:7 +4 ", output, re.MULTILINE)


def test_launches_follow_each_other_on_the_same_buffers(run, files, tmp_path):
    body = f"{STORE}ld.global.u32 %r2, [%rd3];\nadd.u32 %r2, %r2, 3;\nst.global.u32 [%rd3], %r2;"
    two = [launch(), launch(buffers=None)]
    assert run(*files(kernel(body), two), "--save", tmp_path)[0] == 0
    assert np.load(tmp_path / "p.npy").tolist() == [6] * 64


def test_launch_that_overlaps_and_does_not_wait_races(run, files):
    body = f"{STORE}ld.global.u32 %r2, [%rd3];\nadd.u32 %r2, %r2, 3;\nst.global.u32 [%rd3], %r2;"
    two = [launch(), launch(buffers=None, overlaps=True)]
    status, output, _ = run(*files(kernel(body, target="sm_90"), two))
    assert status == 1 and "nothing orders the two" in output
    waits = kernel(f"griddepcontrol.wait;\n{body}", target="sm_90")
    assert run(*files(waits, two))[0] == 0


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("sm_75", "nothing is known of the target sm_75: no limit of shared memory but --shared-limit, and no bounds."),
        ("sm_86", "no rate of sm_86 is known, so no bound either"),
    ],
)
def test_what_is_not_known_of_the_target_is_said(run, files, target, sentence):
    status, output, _ = run(*files(kernel("", target=target), launch()))
    assert status == 0 and sentence in output and "clocks at least" not in output


def test_text_of_nvrtc_ends_with_a_zero(run, files):
    assert run(*files(kernel("") + "\0", launch()))[0] == 0


# A kernel at fault


def test_the_racy_example_lacks_one_barrier():
    right, racy = ([line for line in file.read_text().splitlines() if line[:2] != "//"] for file in (SUM, RACY))
    barriers = [number for number, line in enumerate(right) if line == "\tbar.sync 0;"]
    assert [*right[: barriers[1]], *right[barriers[1] + 1 :]] == racy


def test_the_racy_example_is_told(run, tmp_path):
    status, output, _ = run(RACY, "--launch", SPEC, "--json", tmp_path / "a.json", "--save", tmp_path / "saved")
    assert status == 1
    assert re.fullmatch(r"fault: PTX line 48, block \(0, 0, 0\), warp 0\b.*shared memory.*nothing orders the two.*\n", output)
    data = json.loads((tmp_path / "a.json").read_text())
    assert not data["holds"] and data["fault"]["kind"] == "RaceFound" and "launches" not in data
    assert not list((tmp_path / "saved").iterdir())


FAULTS = {
    "out of bounds": (f"{STORE}st.global.u32 [%rd3+4], %r1;", "warp 1, lane 31", "of buffer p, which has 256 B"),
    "misaligned": (f"{STORE}ld.global.u32 %r2, [%rd3+2];", "warp 0, lane 0", "misaligned"),
    "uninitialised": ("add.u32 %r1, %r2, %r3;\nld.param.u64 %rd1, [p];\nst.global.u32 [%rd1], %r1;", "lane 0", "%r1"),
    "deadlock": (f"{STORE}setp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync 0, 64;", "warp 0", "deadlock"),
    "trap": ("trap;", "lane 0", "trapped"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_name_ptx_line_source_line_block_and_warp(run, files, fault):
    body, thread, what = FAULTS[fault]
    ptx = kernel(f".loc 1 7 0\n{body}", before='.file 1 "k.cu"')
    status, output, errors = run(*files(ptx, launch()))
    assert status == 1 and not errors
    line = re.match(r"fault: PTX line (\d+), k\.cu:7, block \(0, 0, 0\), ", output)
    assert line and thread in output and what in output and output.count("\n") == 1
    assert ptx.splitlines()[int(line[1]) - 1].rstrip(";\n") in output


def test_result_that_depends_on_the_order_is_told(run, files):
    """The last warp to store wins."""
    body = f"{STORE}atom.global.exch.b32 %r2, [%rd1], %r1;"
    status, output, _ = run(*files(kernel(body), launch()))
    assert status == 1 and "bytes of global memory differ" in output and "of buffer p" in output
    assert run(*files(kernel(body), launch(same_bits=False)))[0] == 0
    assert run(*files(kernel(body), launch()), "--schedules", "reverse")[0] == 0


def test_races_are_not_looked_for_without_checks(run):
    status, output, _ = run(RACY, "--launch", SPEC, "--no-checks", "--schedules", "forward")
    assert status == 0 and "races were not looked for" in output


# Input that it cannot use


def refused(called: tuple[int, str, str]) -> str:
    """The one sentence."""
    status, _, errors = called
    assert status == 2 and errors.startswith("nvfp4bench emulate: ") and errors.count("\n") == 1, errors
    assert errors.endswith(".\n") and not errors.endswith("..\n")
    return errors


def buffer(**described: Any) -> dict[str, Any]:
    return launch(buffers={"p": described})


SPECIFICATIONS: dict[str, tuple[Any, str]] = {
    "empty": ("", "is not JSON"),
    "cut off": ('{"entry": ', "is not JSON"),
    "nested without end": ("[" * 100_000, "is not JSON"),
    "NaN": ('{"entry": NaN}', "NaN is no number in JSON"),
    "thousands of digits": ('{"entry": 1' + "0" * 5000 + "}", "is not JSON"),
    "twice": ('{"entry": "k", "entry": "k"}', '"entry" stands twice'),
    "no launch": ([], "there is no launch in it"),
    "number": (3, "the launch must be an object, not 3"),
    "second of a list": ([launch(), 3], "launch 1 must be an object"),
    "lacking": (launch(grid=None), "the launch lacks grid"),
    "unknown key": (launch(clusters=[1]), 'the launch has "clusters", which is not known'),
    "entry of another type": (launch(entry=["k"]), "entry of the launch must be a name"),
    "no such entry": (launch(entry="f"), "no entry called f; its entries: k"),
    "grid of strings": (launch(grid=["4"]), "a size of the grid of the launch must be a whole number"),
    "grid of fractions": (launch(grid=[1.5]), "must be a whole number"),
    "grid of truth": (launch(grid=[True]), "must be a whole number"),
    "negative grid": (launch(grid=[-1]), "must be a whole number of at least 1, not -1"),
    "no grid": (launch(grid=[]), "a list of one to three sizes"),
    "four sizes": (launch(grid=[1, 1, 1, 1]), "a list of one to three sizes"),
    "large grid": (launch(grid=[1, 1, 70_000]), "a grid of (1, 1, 70000)"),
    "large block": (launch(block=[64, 64]), "blocks of 4096 threads; 1024 are the most"),
    "flat block": (launch(block=[1, 1, 65]), "a block of (1, 1, 65)"),
    "arguments of another type": (launch(arguments={}), "arguments of the launch must be a list"),
    "too few arguments": (launch(arguments=[]), "k has 1 parameters, and 0 arguments came"),
    "argument of another size": (launch(arguments=[{"i32": 1}]), "has 8 B, and the argument 4 B"),
    "bare argument": (launch(arguments=[5]), "argument 0 of the launch must be null or an object of one kind"),
    "argument of two kinds": (launch(arguments=[{"i32": 1, "i64": 2}]), "an object of one kind"),
    "unknown kind": (launch(arguments=[{"int": 1}]), 'of no known kind: "int"'),
    "overflow": (launch(arguments=[{"i8": 128}]), "argument 0 of the launch is 128, which int8 does not hold"),
    "negative": (launch(arguments=[{"u64": -1}]), "-1, which uint64 does not hold"),
    "infinite": ('{"entry":"k","grid":[1],"block":[1],"arguments":[{"f64":1e999}]}', "Infinity, which float64 does not hold"),
    "fraction": (launch(arguments=[{"u64": 1.0}]), "must be a whole number, not 1.0"),
    "text for a number": (launch(arguments=[{"f64": "1"}]), 'must be a number, not "1"'),
    "no such buffer": (launch(arguments=[{"buffer": "q"}]), 'names no buffer: "q"; buffers: p'),
    "list for a buffer": (launch(arguments=[{"buffer": ["p"]}]), "names no buffer"),
    "buffers of another type": (launch(buffers=[]), "buffers of the launch must be an object"),
    "buffer twice": ([launch(), launch()], "two buffers are called p"),
    "path for a name": (launch(buffers={"../p": {"bytes": 4}}), "cannot be a buffer's name"),
    "buffer of another type": (launch(buffers={"p": 4}), "buffer p must be an object"),
    "empty buffer": (buffer(), "buffer p lacks dtype"),
    "unknown dtype": (buffer(dtype="float8", shape=[1]), 'dtype of buffer p is not known: "float8"'),
    "dtype of another type": (buffer(dtype=[], shape=[1]), "dtype of buffer p is not known: []"),
    "shape of another type": (buffer(dtype="int8", shape=4), "shape of buffer p must be a list"),
    "negative size": (buffer(dtype="int8", shape=[-4]), "a size of buffer p must be a whole number of at least 0"),
    "impossible shape": (buffer(dtype="int8", shape=[0, 2**62, 2**62]), "cannot have the shape"),
    "endless shape": (buffer(dtype="int8", shape=[2**62] * 32), "cannot have the shape"),
    "endless size": (buffer(dtype="int8", shape=[10**4000]), "a size of buffer p must be a whole number of at most"),
    "endless bytes": (buffer(bytes=10**4000), "bytes of buffer p must be a whole number of at most"),
    "unknown fill": (buffer(dtype="int8", shape=[4], fill="ones"), 'fill of buffer p is not known: "ones"'),
    "fill of another type": (buffer(dtype="int8", shape=[4], fill=[1]), "fill of buffer p must be a whole number"),
    "fill that does not fit": (buffer(dtype="int8", shape=[4], fill=200), "200, which int8 does not hold"),
    "range that does not fit": (buffer(dtype="int8", shape=[200], fill="range"), "199, which int8 does not hold"),
    "negative seed": (buffer(dtype="int8", shape=[4], fill="random", seed=-1), "seed of buffer p"),
    "over memory": (buffer(bytes=10**15), "buffer p has 1,000,000,000,000,000 B; this machine's memory holds"),
    "over memory, filled": (buffer(dtype="int8", shape=[10**15], fill="random"), "this machine's memory holds"),
    "over memory, blocks": (launch(grid=[2**31 - 1]), "B of memory, and"),
    "file that is not there": (buffer(file="no.npy"), "No such file"),
    "folder": (buffer(file="."), "file of buffer p is not a regular file"),
    "not NumPy's": (buffer(file="spec.json"), "is no array of NumPy"),
    "endless file": (buffer(file="x" * 4000), "File name too long"),
    "file of another type": (buffer(file=3), "file of buffer p must be a path"),
    "file with a shape": (buffer(file="no.npy", shape=[3]), 'buffer p has "shape", which is not known'),
    "shared bytes": (launch(shared_bytes=-1), "shared_bytes of the launch must be a whole number of at least 0"),
    "endless shared memory": (launch(shared_bytes=10**4000), "shared_bytes of the launch must be a whole number of at most"),
    "endless grid": (launch(grid=[10**4000]), "a size of the grid of the launch must be a whole number of at most"),
    "endless entry": (launch(entry="f" * 4000), "entry of the launch is not in the module"),
    "many buffers": (
        launch(buffers={f"buffer_{i}": {"bytes": 1} for i in range(500)}),
        'names no buffer: "p"; buffers: buffer_0, buffer_1, ',
    ),
    "much shared memory": (launch(shared_bytes=10**6), "1,000,000 B of shared memory; a block has 166,912 B on sm_80"),
    "flag": (launch(overlaps=1), "overlaps of the launch must be true or false"),
}


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_bad_specification_is_one_sentence(run, files, name):
    specification, sentence = SPECIFICATIONS[name]
    said = refused(run(*files(kernel(STORE), specification)))
    assert sentence in said and len(said) < 1000


MODULES = {
    "empty": (b"", "no PTX that the emulator can read: PTX line 1: a module states its version"),
    "prose": (b"Dear reader,", "PTX line 1: 'Dear reader,' is not understood"),
    "cubin": (b"\x7fELF\x02\x01\x01\xff", "is not text: byte 7 is no UTF-8"),
    "unknown opcode": (kernel("frobnicate.u32 %r1, %r2;").encode(), "frobnicate"),
    "no instructions": (kernel("").replace("ret;", "").encode(), "k has no instructions"),
    "register that nothing declares": (kernel("mov.u32 %x, 1;").encode(), "%x is not declared"),
}


@pytest.mark.parametrize("name", MODULES)
def test_bad_ptx_is_one_sentence(run, files, name, tmp_path):
    content, sentence = MODULES[name]
    arguments = files("", launch())
    (tmp_path / "k.ptx").write_bytes(content)
    assert sentence in refused(run(*arguments))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--schedules", "sideways"], "there is no schedule 'sideways'; there are forward, reverse, seeded"),
        (["--schedules", ","], "--schedules names no schedule"),
        (["--limit", "0"], "--limit must be at least 1, not 0"),
        (["--limit", "100"], "more than 100 warp instructions were executed"),
        (["--shared-limit", "-1"], "--shared-limit must be at least 0, not -1"),
        (["--shared-limit", "511"], "wants 512 B of shared memory; a block has 511 B"),
        (["--json", "/no/such/folder/a.json"], "cannot write /no/such/folder/a.json: No such file"),
        (["--json", str(ROOT)], "it is a folder"),
        (["--json", str(SPEC)], "which is read; name another place"),
        (["--json", str(SUM)], "which is read; name another place"),
        (["--save", str(SPEC)], "File exists"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_option_is_one_sentence(run, options, sentence):
    before = SUM.read_bytes(), SPEC.read_bytes()
    assert sentence in refused(run(SUM, "--launch", SPEC, *options))
    assert (SUM.read_bytes(), SPEC.read_bytes()) == before


@pytest.mark.parametrize("missing", ["ptx", "spec"])
def test_file_that_is_not_there_is_one_sentence(run, tmp_path, missing):
    place = tmp_path / "no"
    files = (place, SPEC) if missing == "ptx" else (SUM, place)
    assert f"cannot read {place}: No such file or directory." in refused(run(files[0], "--launch", files[1]))


def test_buffers_that_are_read_are_not_replaced(run, files, tmp_path):
    np.save(tmp_path / "p.npy", np.ones(64, np.uint32))
    arguments = files(kernel(f"{STORE}st.global.u32 [%rd3], %r1;"), buffer(file="p.npy"))
    assert "name another place" in refused(run(*arguments, "--save", tmp_path))
    assert np.load(tmp_path / "p.npy").tolist() == [1] * 64
    assert run(*arguments, "--save", tmp_path / "new")[0] == 0
    assert np.load(tmp_path / "new" / "p.npy").tolist() == list(range(64))


def test_a_pipe_is_no_buffer_and_is_not_waited_for(run, files, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it would wait"))
    assert "file of buffer p is not a regular file" in refused(run(*files(kernel(STORE), buffer(file="pipe"))))


@pytest.mark.parametrize("linked", [False, True])
def test_two_outputs_in_one_place_are_refused_before_the_work(run, tmp_path, monkeypatch, linked):
    monkeypatch.setattr(command, "emulate", lambda *_, **__: pytest.fail("it was run"))
    place = tmp_path / ("a.json" if linked else "out.npy")
    if linked:
        (tmp_path / "out.npy").symlink_to("a.json")
    said = refused(run(SUM, "--launch", SPEC, "--json", place, "--save", tmp_path))
    assert f"two outputs would be written to {place}; name two places." in said and not place.exists()


def test_json_follows_a_link(run, tmp_path):
    link, target = tmp_path / "link", tmp_path / "target"
    target.write_text("old")
    link.symlink_to("target")
    assert run(SUM, "--launch", SPEC, "--json", link)[0] == 0
    assert link.is_symlink() and json.loads(target.read_text())["holds"]


@pytest.mark.parametrize("option", ["--save", "--json"])
def test_a_full_disk_is_told_and_what_was_there_stays(run, tmp_path, monkeypatch, option):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    place = tmp_path / ("out.npy" if option == "--save" else "a.json")
    place.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    said = refused(run(SUM, "--launch", SPEC, option, tmp_path if option == "--save" else place))
    assert f"cannot write {place}: No space left on device." in said and place.read_text() == "old"


def test_a_disk_that_takes_a_part_of_an_array_is_told(tmp_path):
    """x.npy has 500 floats and a header."""
    (tmp_path / "x.npy").write_text("old")
    emulate = [sys.executable, "nvfp4bench.py", "emulate", str(SUM), "--launch", str(SPEC), "--save", str(tmp_path)]
    done = run_with_files_up_to(1024, emulate)
    assert done.returncode == 2 and done.stderr == f"nvfp4bench emulate: cannot write {tmp_path / 'x.npy'}: File too large.\n"
    assert (tmp_path / "x.npy").read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.npy", "x.npy"]


def test_memory_that_runs_out_all_the_same_is_one_sentence(run, monkeypatch):
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(command, "emulate", exhausted)
    assert "memory is too small" in refused(run(SUM, "--launch", SPEC))


def test_memory_of_the_checks_counts(run, monkeypatch):
    """Room for 2016 B of buffers several times, but not for what is remembered of their and of 4 blocks' shared words."""
    monkeypatch.setattr(memory, "available", lambda: 15 * 2016)
    assert "--no-checks takes less" in refused(run(SUM, "--launch", SPEC))
    assert run(SUM, "--launch", SPEC, "--no-checks")[0] == 0


def test_interrupt_is_one_sentence(files):
    arguments = files(kernel("loop:\nbra loop;"), launch())
    with subprocess.Popen(
        [sys.executable, "-u", "-c", "import nvfp4bench, sys; print('.'); sys.exit(nvfp4bench.main(sys.argv[1:]))", "emulate"]
        + [str(each) for each in arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == ".\n"
        time.sleep(1.5)  # the imports, and some rounds of the loop
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "nvfp4bench emulate: interrupted.\n")
