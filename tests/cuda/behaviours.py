"""What must hold of compiled kernels on a GPU: they run as written, and cubin and driver say the same of them."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from impls.arch import Arch, find
from impls.contract import Launch, Scalar
from impls.cuda import driver
from impls.cuda.compiler import Kernel, compile_kernel
from impls.host import arch_of
from impls.occupancy import resident_warps
from tests.cuda.compiling import HUNGRY, MACROS, SOURCE, write_source

WIDTH = 64
LOCAL_BYTES, SHARED_BYTES, REGISTERS = 3, 1, 4  # CUfunction_attribute


def compiled(kernel: str, arch: Arch, text: str = SOURCE) -> Kernel:
    with tempfile.TemporaryDirectory() as folder:
        path = write_source(Path(folder), text)
        return compile_kernel(path, kernel, arch, MACROS, folder=Path(folder) / "cache")


def reverse(x: torch.Tensor, *, shared_bytes: int = 0, threads: int = WIDTH) -> Launch:
    """x = 3 * x, reversed; exact for small whole numbers."""
    kernel = compiled(f"reverse<{WIDTH}>", arch_of(x.device))
    geometry = {"grid": (1, 1, 1), "block": (threads, 1, 1), "shared_bytes": shared_bytes}
    return kernel.launch(**geometry, args=(x, Scalar("i32", WIDTH)))  # type: ignore[arg-type]


def runs_on_torchs_stream(device: torch.device) -> None:
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        x = torch.arange(WIDTH, dtype=torch.float32, device=device)
        driver.Program([reverse(x)], device).launch(stream.cuda_stream)
        found = x.cpu()
    assert torch.equal(found, 3 * torch.arange(WIDTH, dtype=torch.float32).flip(0)), found


def replays_in_a_graph(device: torch.device) -> None:
    x = torch.zeros(WIDTH, device=device)
    program = driver.Program([reverse(x)], device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program.launch(torch.cuda.current_stream(device).cuda_stream)
    for start in (1, 5):
        x.copy_(torch.arange(start, start + WIDTH))
        graph.replay()
        found = x.cpu()
        assert torch.equal(found, 3.0 * torch.arange(start, start + WIDTH).flip(0)), found


def gets_all_shared_memory_of_a_block(device: torch.device) -> None:
    x = torch.ones(WIDTH, device=device)
    most = arch_of(device).shared_per_block - 4 * WIDTH
    driver.Program([reverse(x, shared_bytes=most)], device).launch(torch.cuda.current_stream(device).cuda_stream)
    assert torch.equal(x.cpu(), torch.full((WIDTH,), 3.0))


def says_why_a_launch_fails(device: torch.device) -> None:
    x = torch.ones(WIDTH, device=device)
    program = driver.Program([reverse(x, threads=2048)], device)
    _refuses(lambda: program.launch(0), "cuLaunchKernelEx failed with CUDA_ERROR_INVALID_VALUE")
    assert torch.equal(x.cpu(), torch.ones(WIDTH))


def says_that_a_cubin_is_for_another_gpu(device: torch.device) -> None:
    other = find("sm_120a" if arch_of(device).name != "sm_120a" else "sm_90a")
    kernel = compiled("gather", other)
    launch = kernel.launch(grid=(1, 1, 1), block=(32, 1, 1), shared_bytes=0, args=(None, None, None))
    _refuses(lambda: driver.Program([launch], device), "the driver supports CUDA")


def facts_are_the_drivers(device: torch.device) -> None:
    arch = arch_of(device)
    for kernel in (compiled("reverse<64>", arch), compiled("gather", arch), compiled("hungry<100>", arch, HUNGRY)):
        function = _function(kernel, device)
        found = tuple(_attribute(function, which) for which in (REGISTERS, LOCAL_BYTES, SHARED_BYTES))
        facts = kernel.facts
        assert found == (facts.registers, facts.local_bytes, facts.shared_bytes), (kernel.entry, found, facts)


def residency_is_the_drivers(device: torch.device) -> None:
    """Registers, shared memory, blocks and warps each bind in some of these."""
    arch = arch_of(device)
    wrong = []
    for number in (8, 20, 32, 40, 48, 56, 80):
        kernel = compiled(f"hungry<{number}>", arch, HUNGRY)
        function = _function(kernel, device)
        for threads in (32, 96, 128, 256, 1024):
            for shared_bytes in (0, 1000, 20_000, 48_000):
                blocks = ctypes.c_int()
                asked = (ctypes.byref(blocks), function, threads, ctypes.c_size_t(shared_bytes))
                driver._call("cuOccupancyMaxActiveBlocksPerMultiprocessor", *asked)
                registers = kernel.facts.registers
                ours = resident_warps(arch, threads=threads, registers=registers, shared_bytes=shared_bytes)
                if ours != blocks.value * -(-threads // 32):
                    wrong.append((registers, threads, shared_bytes, ours, blocks.value))
    assert not wrong, f"(registers, threads, shared bytes, our warps, the driver's blocks): {wrong}"


BEHAVIOURS: dict[str, Callable[[torch.device], None]] = {
    behaviour.__name__: behaviour
    for behaviour in (
        runs_on_torchs_stream,
        replays_in_a_graph,
        gets_all_shared_memory_of_a_block,
        says_why_a_launch_fails,
        says_that_a_cubin_is_for_another_gpu,
        facts_are_the_drivers,
        residency_is_the_drivers,
    )
}


def _function(kernel: Kernel, device: torch.device) -> ctypes.c_void_p:
    assert device.index is not None
    launch = Launch(kernel.ptx, kernel.cubin, kernel.entry, (1, 1, 1), (32, 1, 1), 0, ())
    return driver.Program([launch], device)._functions[0]


def _attribute(function: ctypes.c_void_p, which: int) -> int:
    value = ctypes.c_int()
    driver._call("cuFuncGetAttribute", ctypes.byref(value), which, function)
    return value.value


def _refuses(call: Callable[[], object], words: str) -> None:
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"nothing was refused where {words!r} was due")
