"""The cache of compiled kernels under whatever befalls a folder that several processes share."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from impls import files
from impls.arch import find
from impls.cuda import cache, compiler, nvrtc
from impls.cuda.compiler import compile_kernel
from impls.cuda.nvrtc import Nvrtc, Outcome
from tests.cuda.compiling import HEADER, MACROS, SOURCE, write_source
from tests.cuda.needs import needs_nvrtc
from tests.full_disk import run_with_files_up_to

ROOT = Path(__file__).parents[2]
OUTCOME = Outcome(True, "a warning", "the PTX", b"\x7fELF\0the cubin", "reverse")
COMPILE = [sys.executable, "-m", "tests.cuda.compiling"]


@pytest.fixture
def compilations(monkeypatch):
    """What NVRTC is asked for; `anew` forgets what this process has compiled, as a new process would."""
    asked = []
    real = Nvrtc.compile

    def noting(self, *arguments):
        asked.append(arguments)
        return real(self, *arguments)

    monkeypatch.setattr(Nvrtc, "compile", noting)
    compiler._compile_once.cache_clear()
    return asked


def anew(path: Path, folder: Path, kernel: str = "reverse<64>", arch: str = "sm_90a", **macros: int) -> bytes:
    compiler._compile_once.cache_clear()
    return compile_kernel(path, kernel, find(arch), {**MACROS, **macros}, folder=folder).cubin


@needs_nvrtc
def test_a_second_process_does_not_compile(tmp_path, compilations):
    path = write_source(tmp_path / "source")
    first = anew(path, tmp_path / "cache")
    assert anew(path, tmp_path / "cache") == first
    assert len(compilations) == 1


@needs_nvrtc
def test_what_decides_the_outcome_compiles_anew(tmp_path, compilations, monkeypatch):
    folder, path = tmp_path / "cache", write_source(tmp_path / "source")
    anew(path, folder)
    write_source(tmp_path / "source", header=HEADER.replace("* FACTOR", "+ FACTOR"))
    anew(path, folder)
    write_source(tmp_path / "source", text=SOURCE.replace("< n", "<= n"))
    anew(path, folder)
    anew(path, folder, FACTOR=4)
    anew(path, folder, kernel="reverse<32>")
    anew(path, folder, arch="sm_80")
    monkeypatch.setattr(compiler, "OPTIONS", (*compiler.OPTIONS, "--use_fast_math"))
    anew(path, folder)
    other = nvrtc.find()
    monkeypatch.setattr(nvrtc, "find", lambda: Nvrtc(other.path, other.headers, "13.0.89", "another build", other.targets))
    anew(path, folder)
    assert len(compilations) == 8
    assert len(list(folder.iterdir())) == 8


def test_what_is_stored_comes_back(tmp_path):
    cache.store(tmp_path, "k", OUTCOME)
    assert cache.load(tmp_path, "k") == OUTCOME
    assert cache.load(tmp_path, "another") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b[: len(b) // 2],
        lambda b: b"",
        lambda b: b.replace(b"reverse", b"reverts"),
        lambda b: b[:-1],
        lambda b: b"\0" * len(b),
    ],
    ids=["cut", "empty", "changed", "last byte lost", "zeros"],
)
def test_a_damaged_entry_counts_as_absent_and_is_replaced(tmp_path, damage):
    cache.store(tmp_path, "k", OUTCOME)
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    assert cache.load(tmp_path, "k") is None
    cache.store(tmp_path, "k", OUTCOME)
    assert cache.load(tmp_path, "k") == OUTCOME


def test_an_entry_of_another_form_counts_as_absent(tmp_path):
    import hashlib

    body = b'{"ptx": "a form of some other version"}'
    (tmp_path / "k.kernel").write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    assert cache.load(tmp_path, "k") is None


def test_a_kill_in_the_middle_of_writing_leaves_no_half_entry(tmp_path):
    program = (
        "import os, time\nfrom pathlib import Path\nfrom impls.cuda import cache\nfrom impls.cuda.nvrtc import Outcome\n"
        "os.fsync = lambda handle: time.sleep(60)\n"
        f"cache.store(Path({str(tmp_path)!r}), 'k', Outcome(True, '', 'ptx', b'cubin', 'k'))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    deadline = time.monotonic() + 20
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    (draft,) = tmp_path.iterdir()
    assert draft.name.startswith(files.DRAFT)
    assert cache.load(tmp_path, "k") is None
    cache.store(tmp_path, "k", OUTCOME)
    assert cache.load(tmp_path, "k") == OUTCOME
    assert draft.exists()  # it might be another process's that is writing
    an_hour_ago = time.time() - files.FORGOTTEN_SECONDS - 1
    os.utime(draft, (an_hour_ago, an_hour_ago))
    cache.store(tmp_path, "k", OUTCOME)
    assert [path.name for path in tmp_path.iterdir()] == ["k.kernel"]


@needs_nvrtc
def test_processes_that_compile_the_same_kernel_at_once_do_not_disturb_each_other(tmp_path):
    command = [*COMPILE, str(write_source(tmp_path / "source")), str(tmp_path / "cache")]
    children = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert len(set(said)) == 1 and said[0].strip()
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".kernel"]


@pytest.mark.parametrize("place", ["below a file", "of the system"])
def test_a_folder_that_cannot_be_written_is_said_once(tmp_path, capsys, place):
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "cache" if place == "below a file" else Path("/proc/nvfp4bench")
    cache._complained.discard(folder)
    cache.store(folder, "k", OUTCOME)
    cache.store(folder, "l", OUTCOME)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"compiled kernels are not kept for the next call: {folder} cannot be written (")
    assert cache.load(folder, "k") is None


def test_a_folder_that_can_keep_kernels_has_no_trouble_and_nothing_new(tmp_path):
    assert cache.why_not_kept(tmp_path / "new") is None
    assert list((tmp_path / "new").iterdir()) == []


def test_an_error_of_writing_names_the_file(tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        files.replace_file(tmp_path / "kept", b"")
    assert caught.value.filename == str(tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []


@needs_nvrtc
def test_a_full_disk_costs_the_cache_and_not_the_kernel(tmp_path):
    command = [*COMPILE, str(write_source(tmp_path / "source")), str(tmp_path / "cache")]
    full = run_with_files_up_to(4096, command)
    assert full.returncode == 0
    assert full.stderr.count("compiled kernels are not kept for the next call") == 1
    assert list((tmp_path / "cache").iterdir()) == []
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout == full.stdout


def test_an_entry_by_another_name_counts_as_absent(tmp_path):
    """As a copy, or a link that a file system mixed up, would leave it."""
    one, other = cache.key(["one"]), cache.key(["other"])
    cache.store(tmp_path, one, OUTCOME)
    (tmp_path / f"{other}.kernel").write_bytes((tmp_path / f"{one}.kernel").read_bytes())
    assert cache.load(tmp_path, one) == OUTCOME
    assert cache.load(tmp_path, other) is None


def test_an_entry_that_may_never_end_counts_as_absent(tmp_path):
    name = cache.key(["endless"])
    (tmp_path / f"{name}.kernel").symlink_to("/dev/zero")
    assert cache.load(tmp_path, name) is None
