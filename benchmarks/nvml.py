"""The SM clock of GPU 0, read through the driver's management library (NVML) with ctypes."""

from __future__ import annotations

import ctypes

LIBRARY = "libnvidia-ml.so.1"
NVML_CLOCK_SM = 1  # nvmlClockType_t


class SmClock:
    """Reads the SM clock of the GPU that CUDA calls number 0 in this process. Creates no CUDA context."""

    def __init__(self) -> None:
        self.why_not: str | None = None
        """One sentence, where the clock cannot be read."""
        self._handle = ctypes.c_void_p()
        try:
            self._find()
            self._read()
        except (OSError, AttributeError, _NvmlError) as error:  # an old driver lacks a function
            self.why_not = f"SM clocks are not recorded: {str(error).rstrip('.')}."

    def mhz(self) -> int | None:
        """The clock now; None where it cannot be read, and from the first time on that it cannot."""
        if self.why_not:
            return None
        try:
            return self._read()
        except _NvmlError as error:
            self.why_not = f"SM clocks are no longer recorded: {error}."
            return None

    def _find(self) -> None:
        """The GPU by its PCI address, because CUDA_VISIBLE_DEVICES changes the numbers of CUDA and not those of NVML."""
        driver = ctypes.CDLL("libcuda.so.1")
        device, address = ctypes.c_int(), ctypes.create_string_buffer(32)
        if (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(device), 0)
            or driver.cuDeviceGetPCIBusId(address, len(address), device)
        ):
            raise _NvmlError("the CUDA driver does not give the PCI address of GPU 0")
        self._library = ctypes.CDLL(LIBRARY)
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByPciBusId_v2", address, ctypes.byref(self._handle))

    def _read(self) -> int:
        clock = ctypes.c_uint()
        self._call("nvmlDeviceGetClockInfo", self._handle, NVML_CLOCK_SM, ctypes.byref(clock))
        return clock.value

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise _NvmlError(f"{name} failed with NVML error {status}")


class _NvmlError(RuntimeError):
    """A call that did not succeed."""
