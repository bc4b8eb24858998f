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
            elif name == "cuFuncGetAttribute":
                arguments[0]._obj.value = self.limit
            elif name == "cuFuncSetAttribute":
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
    geometry = [arguments[1:9] for arguments in libcuda.named("cuLaunchKernel")]
    assert geometry == [(3, 2, 1, 128, 1, 1, 90_000, 1234), (7, 1, 1, 128, 1, 1, 0, 1234)]


def test_arguments_keep_their_width_and_value(libcuda):
    program = driver.Program([LAUNCH], GPU_1)
    program.launch(stream=0)
    pointers = libcuda.named("cuLaunchKernel")[0][9]
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
    assert [arguments[2] for arguments in libcuda.named("cuFuncSetAttribute")] == [90_000]


def test_the_callers_context_comes_back_also_after_a_failure(libcuda):
    program = driver.Program([LAUNCH], GPU_1)
    libcuda.fails["cuLaunchKernel"] = 1
    with pytest.raises(RuntimeError, match=r"^CUDA error: cuLaunchKernel failed with CUDA_ERROR_INVALID_IMAGE \(1\)\.$"):
        program.launch(stream=0)
    assert len(libcuda.named("cuCtxPushCurrent_v2")) == len(libcuda.named("cuCtxPopCurrent_v2")) == 2


def test_a_cubin_for_another_gpu_is_an_error_with_its_name(libcuda):
    libcuda.fails["cuModuleLoadData"] = 209
    with pytest.raises(RuntimeError, match="cuModuleLoadData failed with CUDA_ERROR_INVALID_IMAGE"):
        driver.Program([LAUNCH], GPU_1)


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
