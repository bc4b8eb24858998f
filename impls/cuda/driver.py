"""Loads cubins and launches them through the CUDA driver, with nothing but ctypes and libcuda.

    program = Program(launches, device)      loads the modules, packs the arguments
    program.launch(stream)                   one cuLaunchKernelEx each: no allocation, no synchronisation, capturable

A module is loaded once per device and stays loaded. Every failure is a RuntimeError that starts with "CUDA error:" and names
the call and the driver's own word for what went wrong, and what that says of the driver where it may be too old.
CUDA Driver API 13.0, "Module Management" and "Execution Control".
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from impls.contract import Launch, Scalar

if TYPE_CHECKING:
    import torch

FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT = 9
MOST_SHARED_MEMORY = 100  # per cent of what an SM can give: left to itself, the driver may leave room for fewer blocks
KEEPS_TILES = 8 * 1024
"""Bytes of a block's shared memory from which on an SM's is worth more than its L1 cache."""
FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CUfunction_attribute
LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CUlaunchAttributeID
UNFIT = {
    200: "it cannot read this cubin",
    209: "this cubin is not for this GPU, or for a newer driver",
    803: "its parts are of different releases",
    804: "it is too old for the CUDA compatibility package here",
}
"""CUresult -> what it says of the driver: INVALID_IMAGE, NO_BINARY_FOR_GPU, SYSTEM_DRIVER_MISMATCH, COMPAT_NOT_SUPPORTED."""
_C_TYPES: dict[str, Any] = {"i32": ctypes.c_int32, "i64": ctypes.c_int64, "f32": ctypes.c_float}


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, of which one is ever used: an int at the start of the union of values."""

    _fields_ = (("id", ctypes.c_uint), ("padding", ctypes.c_char * 4), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


class Program:
    """Launches bound to one GPU, ready to be repeated. Keeps their tensors alive."""

    def __init__(self, launches: Sequence[Launch], device: torch.device) -> None:
        """Raises RuntimeError if a cubin cannot be loaded, ValueError on a launch this driver cannot do."""
        if device.index is None:
            raise ValueError(f"launches are bound to one GPU by its number, and {device} has none.")
        for launch in launches:
            if launch.cluster != (1, 1, 1):
                raise ValueError(
                    f"{launch.entry} asks for a cluster of {launch.cluster}; impls/cuda/driver.py launches single blocks."
                )
        self._launches = tuple(launches)  # their cubins and tensors live as long as this
        self._context = _primary_context(device.index)
        self._arguments = [_pack(launch) for launch in launches]
        self._configs = [_config(launch) for launch in launches]
        with _Current(self._context):
            self._functions = [_function(device.index, launch) for launch in launches]

    def point(self, launch: int, argument: int, tensor: torch.Tensor) -> None:
        """Let pointer number `argument` of launch number `launch` be that of `tensor`, which is not kept alive, from now on."""
        self._arguments[launch][1][argument].value = tensor.data_ptr()

    def launch(self, stream: int) -> None:
        """Put all launches, in order, on `stream`, a CUstream handle."""
        with _Current(self._context):
            for config, function, (pointers, _) in zip(self._configs, self._functions, self._arguments, strict=True):
                config.stream = stream
                _call("cuLaunchKernelEx", ctypes.byref(config), function, pointers, None)


class _Current:
    """Makes a context the thread's current one inside; afterwards the previous one is back."""

    def __init__(self, context: ctypes.c_void_p) -> None:
        self._context = context

    def __enter__(self) -> None:
        _call("cuCtxPushCurrent_v2", self._context)

    def __exit__(self, *exc: object) -> None:
        _call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


@cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise RuntimeError(f"CUDA error: the driver library cannot be loaded ({error}); install the NVIDIA driver.") from error
    handle, pointer = ctypes.c_void_p, ctypes.POINTER
    try:
        library.cuLaunchKernelEx.argtypes = [pointer(_Config), handle, pointer(handle), handle]
    except AttributeError as error:
        raise RuntimeError("CUDA error: the driver has no cuLaunchKernelEx; install one of CUDA 11.8 or newer.") from error
    library.cuCtxPushCurrent_v2.argtypes = [handle]
    library.cuFuncSetAttribute.argtypes = [handle, ctypes.c_int, ctypes.c_int]
    library.cuFuncGetAttribute.argtypes = [pointer(ctypes.c_int), ctypes.c_int, handle]
    library.cuModuleGetFunction.argtypes = [pointer(handle), handle, ctypes.c_char_p]
    return library


def _call(name: str, *arguments: Any) -> None:
    """Call the driver. Raises RuntimeError with the error's name unless it succeeds."""
    library = _library()
    status = getattr(library, name)(*arguments)
    if status:
        word = ctypes.c_char_p()
        library.cuGetErrorName(status, ctypes.byref(word))
        why = f": the driver supports CUDA {_driver_version()}, and {UNFIT[status]}" if status in UNFIT else ""
        raise RuntimeError(f"CUDA error: {name} failed with {(word.value or b'an unknown error').decode()} ({status}){why}.")


def _driver_version() -> str:
    """The CUDA release that the driver supports, e.g. "13.0"."""
    version = ctypes.c_int()
    _library().cuDriverGetVersion(ctypes.byref(version))
    return f"{version.value // 1000}.{version.value % 1000 // 10}"


@cache
def _primary_context(device_index: int) -> ctypes.c_void_p:
    """The context that torch uses on this GPU."""
    _call("cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call("cuDeviceGet", ctypes.byref(device), device_index)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return context


@cache
def _module(device_index: int, cubin: bytes) -> ctypes.c_void_p:
    """The module of `cubin` in the current context, which is the primary one of the device."""
    module = ctypes.c_void_p()
    _call("cuModuleLoadData", ctypes.byref(module), cubin)
    return module


def _function(device_index: int, launch: Launch) -> ctypes.c_void_p:
    """The kernel, allowed the shared memory it is launched with."""
    function = ctypes.c_void_p()
    _call("cuModuleGetFunction", ctypes.byref(function), _module(device_index, launch.cubin), launch.entry.encode())
    allowed = ctypes.c_int()
    _call("cuFuncGetAttribute", ctypes.byref(allowed), FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function)
    if launch.shared_bytes >= KEEPS_TILES:
        _call("cuFuncSetAttribute", function, FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, MOST_SHARED_MEMORY)
    if launch.shared_bytes > allowed.value:  # other programs share the function: only ever raise its limit
        _call("cuFuncSetAttribute", function, FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes)
    return function


def _config(launch: Launch) -> _Config:
    """How to launch, but for the stream."""
    config = _Config((ctypes.c_uint * 3)(*launch.grid), (ctypes.c_uint * 3)(*launch.block), launch.shared_bytes)
    if launch.overlaps:
        config.attributes = ctypes.pointer(_Attribute(id=LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, value=1))
        config.attribute_count = 1
    return config


def _pack(launch: Launch) -> tuple[Any, list[Any]]:
    """(array of pointers to the arguments, the arguments, which must live as long)."""
    values: list[Any] = []
    for argument in launch.args:
        if isinstance(argument, Scalar):
            number = argument.value if argument.kind == "f32" else int(argument.value)
            values.append(_C_TYPES[argument.kind](number))
        else:
            values.append(ctypes.c_void_p(0 if argument is None else argument.data_ptr()))
    return (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values)), values
