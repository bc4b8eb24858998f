"""The SM clock is that of the GPU which CUDA numbers 0, and where there is none to be had, the reason is a sentence."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from benchmarks import nvml
from benchmarks.nvml import SmClock

ADDRESS = b"0000:3B:00.0"


class Driver:
    """Stands for libcuda."""

    def cuInit(self, flags: int) -> int:  # noqa: N802
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:  # noqa: N802
        assert number == 0
        device._obj.value = 5
        return 0

    def cuDeviceGetPCIBusId(self, address: Any, size: int, device: Any) -> int:  # noqa: N802
        assert (size, device.value) == (32, 5)
        address.value = ADDRESS
        return 0


class Management:
    """Stands for libnvidia-ml."""

    def __init__(self, clock_status: int = 0) -> None:
        self.clock_status = clock_status

    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, address: Any, handle: Any) -> int:  # noqa: N802
        assert address.value == ADDRESS
        handle._obj.value = 0x1234
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, clock: Any) -> int:  # noqa: N802
        assert (handle.value, kind) == (0x1234, 1)
        clock._obj.value = 1980
        return self.clock_status


@pytest.fixture
def libraries(monkeypatch) -> dict[str, Any]:
    there: dict[str, Any] = {"libcuda.so.1": Driver(), nvml.LIBRARY: Management()}

    def load(name: str) -> Any:
        if name not in there:
            raise OSError(f"{name}: cannot open shared object file")
        return there[name]

    monkeypatch.setattr(ctypes, "CDLL", load)
    return there


def test_the_gpu_is_found_by_its_address(libraries):
    clock = SmClock()
    assert clock.why_not is None
    assert clock.mhz() == 1980


def test_what_is_missing_is_said_and_no_clock_is_made_up(libraries):
    del libraries[nvml.LIBRARY]
    clock = SmClock()
    assert clock.why_not == f"SM clocks are not recorded: {nvml.LIBRARY}: cannot open shared object file."
    assert clock.mhz() is None


def test_a_clock_that_is_not_given_is_said(libraries):
    libraries[nvml.LIBRARY] = Management(clock_status=3)
    clock = SmClock()
    assert clock.why_not == "SM clocks are not recorded: nvmlDeviceGetClockInfo failed with NVML error 3."
    assert clock.mhz() is None


def test_a_clock_that_is_lost_between_samples_stays_lost_and_is_said(libraries):
    clock = SmClock()
    assert clock.mhz() == 1980
    libraries[nvml.LIBRARY].clock_status = 15
    assert clock.mhz() is None
    libraries[nvml.LIBRARY].clock_status = 0
    assert clock.mhz() is None
    assert clock.why_not == "SM clocks are no longer recorded: nvmlDeviceGetClockInfo failed with NVML error 15."
