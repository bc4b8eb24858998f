"""Compiling CUDA C++ by NVRTC, for real: what comes of it on any host, and what a user reads when nothing does."""

from __future__ import annotations

import _ctypes
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from impls.arch import ARCHES, CPU, find
from impls.contract import Scalar, Unsupported
from impls.cuda import compiler, nvrtc, source
from impls.cuda.compiler import CompileError, Kernel, compile_kernel
from tests.cuda.compiling import MACROS, SOURCE, write_source
from tests.cuda.needs import needs_nvrtc

SM_90A = find("sm_90a")


@pytest.fixture(autouse=True)
def nothing_remembered():
    compiler._compile_once.cache_clear()


def compiled(folder: Path, kernel: str = "reverse<64>", arch: str = "sm_90a", **changes) -> Kernel:
    path = write_source(folder / "source", **changes)
    return compile_kernel(path, kernel, find(arch), MACROS, folder=folder / "cache")


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_one_compilation_gives_ptx_and_cubin_of_exactly_the_target(tmp_path, arch):
    kernel = compiled(tmp_path, arch=arch)
    assert re.search(rf"^\.target {arch}$", kernel.ptx, re.MULTILINE)
    assert kernel.cubin.startswith(b"\x7fELF")
    assert f".entry {kernel.entry}(" in kernel.ptx
    assert kernel.facts.shared_bytes == 64 * 4
    assert kernel.facts.parameter_bytes == (8, 4)
    assert kernel.log == ""


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHES)
def test_every_architecture_is_known(arch):
    assert nvrtc.why_not(find(arch)) is None


@needs_nvrtc
@pytest.mark.parametrize(("kernel", "arch"), [("reverse<64>", "sm_80"), ("gather", "sm_90a"), ("gather", "sm_120a")])
def test_facts_are_those_that_the_assembler_prints(tmp_path, kernel, arch):
    """-v is the assembler's own account of registers, stack and shared memory."""
    found = nvrtc.find()
    text = source.read(write_source(tmp_path), found.headers)
    options = [*compiler.OPTIONS, "--define-macro=FACTOR=3", "--ptxas-options=-v"]
    said = found.compile(text.text, text.name, text.headers, options, kernel, arch).log
    said = said.partition(compiled(tmp_path, kernel, arch).entry)[2]  # of several kernels in the log, what follows its name
    facts = compiled(tmp_path, kernel, arch).facts
    assert facts.registers == int(re.search(r"Used (\d+) registers", said)[1])
    assert facts.local_bytes == int(re.search(r"(\d+) bytes stack frame", said)[1])
    assert facts.local_bytes == (400 if kernel == "gather" else 0)
    assert facts.shared_bytes == (256 if kernel == "reverse<64>" else 0)


@needs_nvrtc
def test_outcome_does_not_depend_on_the_host(tmp_path, monkeypatch):
    """Equal sources have to give equal hashes wherever the checkout lies and whoever calls."""
    monkeypatch.chdir(tmp_path)
    one = compiled(tmp_path / "here")
    monkeypatch.chdir("/")
    other = compiled(tmp_path / "there")
    assert (one.ptx, one.cubin) == (other.ptx, other.cubin)
    assert str(tmp_path) not in one.ptx and str(tmp_path).encode() not in one.cubin


@needs_nvrtc
def test_ptx_names_lines_of_the_source_and_its_headers(tmp_path):
    files = re.findall(r'\.file\s+\d+ "([^"]+)"', compiled(tmp_path).ptx)
    assert {"/nvfp4bench/reverse.cu", "/nvfp4bench/scaled.cuh"} <= set(files)
    line = SOURCE[: SOURCE.index("__syncthreads")].count("\n") + 1
    assert re.search(rf"\.loc\s+1 {line} .*\n.*bar\.sync", compiled(tmp_path).ptx)


def test_a_source_of_this_tree_is_called_by_its_place_in_it():
    assert source._name(Path(source.__file__)) == "/nvfp4bench/impls/cuda/source.py"


def test_a_header_includes_what_is_beside_it(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "one.cuh").write_text('#include "two.cuh"\n')
    (tmp_path / "shared" / "two.cuh").write_text("// two\n")
    (tmp_path / "kernel.cu").write_text('#include "shared/one.cuh"\n')
    assert set(source.read(tmp_path / "kernel.cu", tmp_path / "cuda").headers) == {"shared/one.cuh", "two.cuh"}


@needs_nvrtc
def test_nothing_is_included_that_was_not_read(tmp_path, monkeypatch):
    """A header from the working directory would be compiled without being hashed."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "stray.cuh").write_text("")
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(CompileError, match=r'could not open source file "stray\.cuh"'):
        compiled(tmp_path, text='#include "stray.cuh"\n' + SOURCE)


@needs_nvrtc
def test_an_error_is_shown_with_its_line(tmp_path):
    with pytest.raises(CompileError) as caught:
        compiled(tmp_path, text=SOURCE.replace("scaled(x[", "scald(x["))
    first, *log = str(caught.value).splitlines()
    assert first.startswith('reverse.cu(6): error: identifier "scald" is undefined (reverse<64> for sm_90a, NVRTC 1')
    assert log[1].strip() == "tile[threadIdx.x] = scald(x[threadIdx.x]);"


@needs_nvrtc
def test_an_error_in_a_header_names_the_header(tmp_path):
    with pytest.raises(CompileError, match=r"^scaled\.cuh\(3\): error: "):
        compiled(tmp_path, header="#pragma once\n#include <cuda_fp16.h>\n__device__ float scaled(float x) { return y; }\n")


@needs_nvrtc
def test_an_asm_statement_that_the_assembler_refuses_is_shown_with_its_line(tmp_path):
    """The assembler knows lines of PTX alone, and nobody has seen that file."""
    with pytest.raises(CompileError) as caught:
        compiled(tmp_path, text=SOURCE.replace("__syncthreads();", 'asm volatile("foo.bar;");'))
    first, *log = str(caught.value).splitlines()
    assert first.startswith("reverse.cu(7): error: Unknown modifier '.bar'")
    assert log[1].strip() == 'asm volatile("foo.bar;");'


@needs_nvrtc
def test_a_kernel_that_is_not_there_is_named(tmp_path):
    with pytest.raises(CompileError, match=r"^reverse\.cu: there is no kernel revers<64>: "):
        compiled(tmp_path, kernel="revers<64>")


@needs_nvrtc
def test_a_source_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"^cannot read the CUDA source .*none\.cu: No such file or directory\.$"):
        compile_kernel(tmp_path / "none.cu", "reverse<64>", SM_90A, folder=tmp_path)


@needs_nvrtc
def test_arguments_that_are_not_the_kernels_are_refused(tmp_path):
    """The driver takes any array of pointers, and the kernel would read others' bits."""
    kernel, x = compiled(tmp_path), torch.zeros(64)
    geometry = {"grid": (1, 1, 1), "block": (64, 1, 1), "shared_bytes": 0}
    launch = kernel.launch(**geometry, args=(x, Scalar("i32", 7)))
    assert (launch.ptx, launch.cubin, launch.entry) == (kernel.ptx, kernel.cubin, kernel.entry)
    with pytest.raises(ValueError, match="takes arguments of 8, 4 bytes, and was given 8, 8"):
        kernel.launch(**geometry, args=(x, Scalar("i64", 7)))
    with pytest.raises(ValueError, match="was given 8"):
        kernel.launch(**geometry, args=(x,))


@needs_nvrtc
def test_more_shared_memory_than_a_block_has_is_refused_before_the_launch(tmp_path):
    args = (None, Scalar("i32", 7))
    with pytest.raises(ValueError, match="asks for 232449 B of shared memory; a block has 232448 B on sm_90a"):
        compiled(tmp_path).launch(grid=(1, 1, 1), block=(64, 1, 1), shared_bytes=232448 - 256 + 1, args=args)


class TestWithoutACompiler:
    @pytest.fixture(autouse=True)
    def anew(self, monkeypatch, tmp_path):
        nvrtc.find.cache_clear()
        monkeypatch.setattr(nvrtc, "package_folders", lambda name: [tmp_path])
        self.nvrtc = tmp_path / "cu13" / "lib" / "libnvrtc.so.13"
        yield
        nvrtc.find.cache_clear()

    def test_none_is_one_sentence_that_says_how_to_get_it(self, tmp_path):
        assert re.fullmatch(r"there is no NVRTC of CUDA 13 here; .*pip install nvidia-cuda-nvrtc==\S+.*", nvrtc.why_not(SM_90A))
        with pytest.raises(Unsupported, match="there is no NVRTC"):
            compile_kernel(tmp_path / "reverse.cu", "reverse<64>", SM_90A)

    def test_a_library_without_its_functions_counts_as_none(self):
        self.nvrtc.parent.mkdir(parents=True)
        self.nvrtc.symlink_to(_ctypes.__file__)
        assert "there is no NVRTC of CUDA 13 here" in nvrtc.why_not(SM_90A)

    @pytest.mark.parametrize("name", ["libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so.alt"])
    def test_an_old_or_broken_one_counts_as_none(self, name):
        self.nvrtc.parent.mkdir(parents=True)
        self.nvrtc.with_name(name).write_text("no library")
        assert "there is no NVRTC of CUDA 13 here" in nvrtc.why_not(SM_90A)

    def test_missing_headers_are_told_apart(self, monkeypatch, tmp_path):
        self.nvrtc.parent.mkdir(parents=True)
        self.nvrtc.touch()
        alone = nvrtc.Nvrtc(self.nvrtc, tmp_path / "include", "13.0.88", "", frozenset({90}))
        monkeypatch.setattr(nvrtc, "_inspect", lambda path: alone)
        assert "CUDA's headers are not beside NVRTC" in nvrtc.why_not(SM_90A)


def test_an_architecture_that_it_does_not_know_is_one_sentence(tmp_path):
    one = nvrtc.Nvrtc(tmp_path, tmp_path, "13.0.88", "", frozenset({80, 90}))
    assert one.why_not(SM_90A) is None
    assert one.why_not(find("sm_121a")).startswith("NVRTC 13.0.88 does not know sm_121a; ")
    assert one.why_not(CPU) == "cpu is no GPU, and CUDA kernels are compiled for GPUs alone."


@needs_nvrtc
def test_the_pinned_release_comes_before_a_newer_one(monkeypatch):
    here = nvrtc.find()
    found = {"a": replace(here, release="13.10.1"), "b": replace(here, release="13.0.88"), "c": replace(here, release="13.2.1")}
    monkeypatch.setattr(nvrtc, "_inspect", lambda path: found.get(path.parent.parent.name))
    chosen = nvrtc._best([Path(name) / "lib" / "libnvrtc.so.13" for name in ("a", "b", "c")])
    assert chosen.release == "13.0.88"
    chosen = nvrtc._best([Path(name) / "lib" / "libnvrtc.so.13" for name in ("a", "c")])
    assert chosen.release == "13.10.1"
