"""The fixture for anybody's kernels: in a pytest run of its own, and the function behind it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from impls.cuda.emulator.errors import BadLaunch
from impls.cuda.pytest_plugin import run

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples" / "emulate"
SUM, RACY = EXAMPLES / "block_sum.ptx", EXAMPLES / "block_sum_racy.ptx"

TESTS = f"""
import sys
from pathlib import Path
import numpy as np
import pytest

EXAMPLES = Path({str(EXAMPLES)!r})

def launch():
    return dict(grid=1, block=128, arguments=[np.zeros(1, np.float32), np.ones(128, np.float32), np.uint32(128)])

def test_right(emulate_ptx):
    report = emulate_ptx(EXAMPLES / "block_sum.ptx", "block_sum", **launch(), expect={{0: np.array([128], np.float32)}})
    assert report.counters[0].blocks == 1
    assert not {{"torch", "triton"}} & set(sys.modules)

def test_race(emulate_ptx):
    emulate_ptx(EXAMPLES / "block_sum_racy.ptx", "block_sum", **launch())

def test_wrong(emulate_ptx):
    emulate_ptx(EXAMPLES / "block_sum.ptx", "block_sum", **launch(), expect={{0: np.array([129], np.float32)}})

def test_race_can_be_expected(emulate_ptx):
    with pytest.raises(Exception, match="nothing orders the two"):
        emulate_ptx(EXAMPLES / "block_sum_racy.ptx", "block_sum", **launch())
"""


def pytest_in(folder: Path, *arguments: str) -> str:
    """Its output: of a run in which nothing but the plugin is of this project."""
    program = f"import sys, pytest; sys.path.insert(0, {str(ROOT)!r}); sys.exit(pytest.main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False).stdout


def test_a_run_of_its_own(tmp_path):
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["impls.cuda.pytest_plugin"]\n')
    (tmp_path / "test_kernels.py").write_text(TESTS)
    output = pytest_in(tmp_path, "-q")
    assert re.search(r"2 failed, 2 passed", output), output
    race, wrong = output[output.index("_ test_race _") :].split("_ test_wrong _")
    assert re.search(r"^E .*RaceFound: PTX line 48, block \(0, 0, 0\), warp 0", race, re.MULTILINE)
    number = next(at for at, line in enumerate(RACY.read_text().splitlines(), 1) if "ld.shared.f32 %f2" in line)
    assert re.search(rf"^E +> +{number} +ld\.shared\.f32 %f2, \[%r10\];$", race, re.MULTILINE)
    assert "execution.py" not in race and "pytest_plugin.py" not in race, "frames of the emulator say nothing of the kernel"
    assert "pytest_plugin.py" not in wrong and ">       emulate_ptx(" in wrong
    assert "1 of 1 elements of argument 0 are not as expected, the first at (0,): 128.0 and not 129.0" in wrong


def test_loading_the_plugin_imports_nothing_heavy():
    program = "import impls.cuda.pytest_plugin, sys; print(*{'torch', 'triton', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "\n"


COPY = """.version 8.5
.target sm_86
.address_size 64
.visible .entry copy(.param .u64 to, .param .u64 from)
{
.reg .b64 %rd<5>;
.reg .b32 %r<3>;
.shared .b32 held[32];
ld.param.u64 %rd1, [to];
ld.param.u64 %rd2, [from];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 2;
add.s64 %rd1, %rd1, %rd3;
add.s64 %rd2, %rd2, %rd3;
.reg .b16 %h;
ld.global.b16 %h, [%rd2];
st.global.b16 [%rd1], %h;
st.shared.b16 [held], 0;
ret;
}
"""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int16])
def test_tensors_and_parts_of_them(dtype):
    """Odd elements of what is not finite: bits are compared, NaN with NaN."""
    source = torch.tensor([1.0, -2.5, 0.0, -0.0] * 8 if not dtype.is_floating_point else [1.0, float("nan"), -0.0, 3.0] * 8).to(
        dtype
    )
    target = torch.zeros(40, dtype=dtype)
    run(COPY, "copy", grid=[1], block=(32, 1), arguments=[target[4:36], source], expect={0: source, 1: source.clone()})
    assert not target[:4].any() and not target[36:].any()
    wrong = source.clone()
    wrong[2] = 7
    with pytest.raises(pytest.fail.Exception, match=r"1 of 32 elements of argument 0 .* the first at \(2,\)"):
        run(COPY, "copy", grid=1, block=32, arguments=[target[4:36], source], expect={0: wrong})


def test_zero_is_not_minus_zero():
    source = np.full(32, 0x8000, np.uint16).view(np.float16)
    with pytest.raises(pytest.fail.Exception, match="32 of 32 elements"):
        run(COPY, "copy", grid=1, block=32, arguments=[np.zeros_like(source), source], expect={0: np.zeros(32, np.float16)})


def test_expectation_of_another_type_is_told():
    source = np.zeros(32, np.uint16)
    with pytest.raises(pytest.fail.Exception, match=r"argument 0 is uint16 of \(32,\), and int64 of \(2,\) is expected"):
        run(COPY, "copy", grid=1, block=32, arguments=[source.copy(), source], expect={0: [1, 2]})


def test_shared_memory_is_what_the_target_has():
    source = np.zeros(32, np.uint16)
    launch = {"grid": 1, "block": 32, "arguments": [source.copy(), source], "shared_bytes": 99 * 1024}
    with pytest.raises(BadLaunch, match="101,376 B on sm_86"):
        run(COPY, "copy", **launch)
    run(COPY, "copy", **launch, shared_limit=None)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (5, "argument 1 is neither a NumPy array or scalar nor a tensor in the CPU's memory, but 5"),
        ([1, 2], "argument 1 is neither"),
        (torch.zeros(32, device="meta"), "argument 1 is neither"),
        (np.int32(5), "parameter from of copy has 8 B, and the argument 4 B"),
    ],
    ids=["int", "list", "tensor elsewhere", "scalar"],
)
def test_arguments_that_no_kernel_can_have_are_refused(value, sentence):
    with pytest.raises(BadLaunch, match=re.escape(sentence)):
        run(COPY, "copy", grid=1, block=32, arguments=[np.zeros(32, np.uint16), value])


@pytest.mark.parametrize("sizes", [(), (1, 1, 1, 1)])
def test_grids_have_one_to_three_sizes(sizes):
    with pytest.raises(ValueError, match="one to three sizes"):
        run(COPY, "copy", grid=sizes, block=32, arguments=[])


def test_whole_numbers_of_numpy_are_sizes():
    source = np.arange(32, dtype=np.uint16)
    for grid, block in ((np.int64(1), np.int32(32)), ((np.uint8(1),), [np.int64(32), 1]), (np.array([1, 1]), 32)):
        target = np.zeros(32, np.uint16)
        run(COPY, "copy", grid=grid, block=block, arguments=[target, source], shared_bytes=np.int64(0), expect={0: source})


OBJECTS = np.array([None] * 32)
OTHER_ORDER = np.zeros(32, np.dtype(np.uint16).newbyteorder("S"))
MISTAKES = {
    "fraction for a grid": ({"grid": 1.5}, TypeError, "grid has to be one to three whole numbers, not 1.5"),
    "fraction in a grid": ({"grid": [1.5]}, TypeError, "a size of grid has to be a whole number, not 1.5"),
    "text for a grid": ({"grid": "111"}, TypeError, "grid has to be one to three whole numbers, not '111'"),
    "nothing for a block": ({"block": None}, TypeError, "block has to be one to three whole numbers, not None"),
    "no arguments": ({"arguments": None}, TypeError, "arguments has to be a list of the kernel's arguments, not NoneType"),
    "number for arguments": ({"arguments": 5}, TypeError, "not int"),
    "array for arguments": ({"arguments": np.zeros(2)}, TypeError, "not ndarray"),
    "text for arguments": ({"arguments": "ab"}, TypeError, "not str"),
    "bytes for PTX": ({"ptx": COPY.encode()}, TypeError, "ptx has to be a text or a pathlib.Path, not bytes"),
    "nothing for PTX": ({"ptx": None}, TypeError, "not NoneType"),
    "name for a path": ({"ptx": str(SUM)}, ValueError, "a path has to be a pathlib.Path"),
    "nothing for an entry": ({"entry": None}, TypeError, "entry has to be a name, not None"),
    "no such argument": ({"expect": {2: 0}}, ValueError, "expect names argument 2, and there are 2, from 0 on"),
    "argument from the end": ({"expect": {-1: 0}}, ValueError, "expect names argument -1"),
    "argument by name": ({"expect": {"to": 0}}, TypeError, "a key of expect has to be a whole number, not 'to'"),
    "list of what is expected": ({"expect": [0]}, TypeError, "not list"),
    "fraction of a byte": ({"shared_bytes": 5.5}, TypeError, "shared_bytes has to be a whole number, not 5.5"),
    "objects": ({"arguments": [OBJECTS, OBJECTS]}, TypeError, "argument 0 is an array of Python objects"),
    "other byte order": ({"arguments": [None, OTHER_ORDER]}, ValueError, "argument 1 has the bytes of"),
    "sparse": (
        {"arguments": [torch.zeros(32).to_sparse(), None]},
        ValueError,
        "argument 0 is a tensor of layout torch.sparse_coo",
    ),
    "negative view": ({"arguments": [torch._neg_view(torch.zeros(32)), None]}, ValueError, "memory holds other values"),
    "conjugate view": (
        {"arguments": [torch.zeros(8, dtype=torch.cfloat).conj(), None]},
        ValueError,
        "memory holds other values",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_the_caller_is_one_sentence(name):
    changes, error, sentence = MISTAKES[name]
    two = [np.zeros(32, np.uint16), np.zeros(32, np.uint16)]
    given = {"ptx": COPY, "entry": "copy", "grid": 1, "block": 32, "arguments": two, **changes}
    with pytest.raises(error, match=re.escape(sentence)) as caught:
        run(**given)
    said = str(caught.value)
    assert type(caught.value) is error and said.endswith(".") and "\n" not in said and len(said) < 250
