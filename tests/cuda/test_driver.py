"""Launching through the driver, with a driver that only takes notes: what a GPU would be told, and what failures become."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from impls.contract import Launch, Scalar
from impls.cuda import driver

TENSOR = torch.arange(4)
LAUNCH = Launch(
    ptx="",
    cubin=b"cubin",
    entry="attend",
    grid=(3, 2, 1),
    block=(128, 1, 1),
    shared_bytes=90_000,
    args=(TENSOR, None, Scalar("i32", -5), Scalar("i64", 2**40), Scalar("f32", 0.5)),
)
GPU_1 = torch.device("cuda", 1)


class NotingDriver:
    """Stands for libcuda: hands out handles, notes the calls, fails where it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        self.fails: dict[str, int] = {}
        self.limit = 48 * 1024

    def __getattr__(self, name: str):
        def call(*arguments):
            self.calls.append((name, arguments))
            if name == "cuGetErrorName":
                arguments[1]._obj.value = b"CUDA_ERROR_INVALID_IMAGE"
            elif name == "cuDriverGetVersion":
                arguments[0]._obj.value = 12080
            elif name == "cuFuncGetAttribute":
                arguments[0]._obj.value = self.limit
            elif name == "cuFuncSetAttribute" and arguments[1] == 8:  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self.limit = arguments[2]
            elif name in ("cuModuleLoadData", "cuModuleGetFunction", "cuDevicePrimaryCtxRetain"):
                arguments[0]._obj.value = 77
            return self.fails.get(name, 0)

        return call

    def named(self, name: str) -> list[tuple[object, ...]]:
        return [arguments for called, arguments in self.calls if called == name]


@pytest.fixture
def libcuda(monkeypatch):
    fake = NotingDriver()
    monkeypatch.setattr(driver, "_library", lambda: fake)
    for cached in (driver._primary_context, driver._module):
        cached.cache_clear()
    yield fake
    for cached in (driver._primary_context, driver._module):
        cached.cache_clear()


def test_launches_go_out_in_order_with_their_geometry_and_stream(libcuda):
    second = replace(LAUNCH, grid=(7, 1, 1), shared_bytes=0)
    program = driver.Program([LAUNCH, second], GPU_1)
    program.launch(stream=1234)
    configs = [arguments[0]._obj for arguments in libcuda.named("cuLaunchKernelEx")]
    geometry = [(*config.grid, *config.block, config.shared_bytes, config.stream) for config in configs]
    assert geometry == [(3, 2, 1, 128, 1, 1, 90_000, 1234), (7, 1, 1, 128, 1, 1, 0, 1234)]
    assert [config.attribute_count for config in configs] == [0, 0]


def test_a_launch_that_overlaps_says_so(libcuda):
    driver.Program([LAUNCH, replace(LAUNCH, overlaps=True)], GPU_1).launch(stream=0)
    config = libcuda.named("cuLaunchKernelEx")[1][0]._obj
    assert config.attribute_count == 1
    assert (config.attributes[0].id, config.attributes[0].value) == (6, 1)


def test_structures_are_laid_out_as_the_driver_reads_them():
    """Sizes and offsets of CUlaunchConfig and CUlaunchAttribute on a 64-bit machine, from cuda.h of CUDA 13.0."""
    assert ctypes.sizeof(driver._Attribute) == 72
    assert driver._Attribute.value.offset == 8
    assert ctypes.sizeof(driver._Config) == 56
    offsets = {"shared_bytes": 24, "stream": 32, "attributes": 40, "attribute_count": 48}
    assert {name: getattr(driver._Config, name).offset for name in offsets} == offsets


def test_arguments_keep_their_width_and_value(libcuda):
    program = driver.Program([LAUNCH], GPU_1)
    program.launch(stream=0)
    pointers = libcuda.named("cuLaunchKernelEx")[0][2]
    read = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_float]
    values = [kind.from_address(pointer).value for kind, pointer in zip(read, pointers, strict=True)]
    assert values == [TENSOR.data_ptr(), None, -5, 2**40, 0.5]


def test_a_cubin_is_loaded_once_for_a_gpu(libcuda):
    driver.Program([LAUNCH, LAUNCH], GPU_1)
    driver.Program([LAUNCH], GPU_1)
    assert len(libcuda.named("cuModuleLoadData")) == 1
    driver.Program([LAUNCH], torch.device("cuda", 0))
    assert len(libcuda.named("cuModuleLoadData")) == 2


def test_the_limit_of_shared_memory_is_raised_and_never_lowered(libcuda):
    driver.Program([LAUNCH], GPU_1)
    driver.Program([replace(LAUNCH, shared_bytes=60_000)], GPU_1)
    limits = [arguments[2] for arguments in libcuda.named("cuFuncSetAttribute") if arguments[1] == 8]
    assert limits == [90_000]


def test_an_sm_gives_as_much_shared_memory_as_it_can_to_a_kernel_that_keeps_tiles_there(libcuda):
    driver.Program([LAUNCH], GPU_1)
    assert [arguments[1:] for arguments in libcuda.named("cuFuncSetAttribute")] == [(9, 100), (8, 90_000)]
    libcuda.calls.clear()
    driver.Program([replace(LAUNCH, shared_bytes=2048)], GPU_1)
    assert libcuda.named("cuFuncSetAttribute") == []


def test_the_callers_context_comes_back_also_after_a_failure(libcuda):
    program = driver.Program([LAUNCH], GPU_1)
    libcuda.fails["cuLaunchKernelEx"] = 1
    with pytest.raises(RuntimeError, match=r"^CUDA error: cuLaunchKernelEx failed with CUDA_ERROR_INVALID_IMAGE \(1\)\.$"):
        program.launch(stream=0)
    assert len(libcuda.named("cuCtxPushCurrent_v2")) == len(libcuda.named("cuCtxPopCurrent_v2")) == 2


def test_a_cubin_for_another_gpu_is_an_error_with_its_name(libcuda):
    libcuda.fails["cuModuleLoadData"] = 209
    with pytest.raises(RuntimeError, match="cuModuleLoadData failed with CUDA_ERROR_INVALID_IMAGE"):
        driver.Program([LAUNCH], GPU_1)


@pytest.mark.parametrize(
    ("call", "status", "why"),
    [
        ("cuModuleLoadData", 200, "it cannot read this cubin"),
        ("cuModuleLoadData", 209, "this cubin is not for this GPU, or for a newer driver"),
        ("cuInit", 803, "its parts are of different releases"),
    ],
)
def test_a_driver_that_may_be_too_old_is_said_to_be_so(libcuda, call, status, why):
    libcuda.fails[call] = status
    with pytest.raises(RuntimeError, match=rf"^CUDA error: {call} failed .*: the driver supports CUDA 12\.8, and {why}\.$"):
        driver.Program([LAUNCH], GPU_1)


def test_a_driver_without_the_call_that_launches_is_told_its_age(monkeypatch):
    monkeypatch.setattr(driver.ctypes, "CDLL", lambda name: SimpleNamespace())
    driver._library.cache_clear()
    with pytest.raises(RuntimeError, match=r"install one of CUDA 11\.8 or newer"):
        driver._primary_context.__wrapped__(0)


def test_clusters_are_refused_not_ignored(libcuda):
    with pytest.raises(ValueError, match="cluster"):
        driver.Program([replace(LAUNCH, cluster=(2, 1, 1))], GPU_1)


def test_a_device_without_a_number_is_refused(libcuda):
    with pytest.raises(ValueError, match="number"):
        driver.Program([LAUNCH], torch.device("cuda"))


def test_a_machine_without_a_driver_is_told_so(monkeypatch):
    def missing(name: str) -> SimpleNamespace:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(driver.ctypes, "CDLL", missing)
    driver._library.cache_clear()
    with pytest.raises(RuntimeError, match="install the NVIDIA driver"):
        driver._primary_context.__wrapped__(0)
