"""A pytest fixture that runs anybody's PTX in the emulator.

    pytest_plugins = ["impls.cuda.pytest_plugin"]          # in the conftest.py of your tests' root

    def test_scale(emulate_ptx):
        values = np.arange(500, dtype=np.float32)
        emulate_ptx(PTX, "scale", grid=4, block=128, arguments=[values, np.float32(2)], expect={0: 2 * values})

It is not registered as an entry point: pytest would import it, and with it a top-level package called `impls`, in every run of
the environment, before the packages of the project that is tested.
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:  # runs that never ask for the fixture shall not import the emulator
    import numpy as np

    from impls.cuda.emulator.emulate import Report
    from impls.cuda.emulator.errors import EmulationError

AROUND = 3
"""PTX lines that are shown before and after the one at fault."""


class EmulatePTX(Protocol):
    def __call__(
        self,
        ptx: str | Path,
        entry: str,
        *,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[Any],
        shared_bytes: int = 0,
        expect: Mapping[int, Any] | None = None,
        **options: Any,
    ) -> Report:
        """Launch `entry` of `ptx`, a text or the path of a file.

        `arguments`: NumPy arrays and tensors in the CPU's memory, which hold afterwards what the kernel left; NumPy scalars;
        None for a null pointer. `expect`: {number of an argument: what it has to hold afterwards, bit for bit}. `options` are
        those of `impls.cuda.emulator.emulate.emulate`; a block's shared memory is limited to what the target has.

        Raises EmulationError where a check fails; its sentence and notes say where. Fails the test where `expect` is not met.
        """
        ...


@pytest.fixture
def emulate_ptx() -> EmulatePTX:
    """Runs PTX in the emulator, checked and counted: see `EmulatePTX`."""
    return run


def run(
    ptx: str | Path,
    entry: str,
    *,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    arguments: Sequence[Any],
    shared_bytes: int = 0,
    expect: Mapping[int, Any] | None = None,
    **options: Any,
) -> Report:
    __tracebackhide__ = True
    from impls.cuda.emulation.launches import shared_limit
    from impls.cuda.emulator.emulate import Kernel, emulate, parsed
    from impls.cuda.emulator.errors import EmulationError

    text = _text(ptx)
    if not isinstance(entry, str):
        raise TypeError(f"entry has to be a name, not {entry!r:.80}.")
    _require_usable(arguments)
    _require_arguments(expect, len(arguments))
    sizes = _three(grid, "grid"), _three(block, "block")
    kernel = Kernel(text, entry, *sizes, arguments, _whole(shared_bytes, "shared_bytes"))
    try:
        if "shared_limit" not in options:
            options["shared_limit"] = shared_limit(parsed(text).target)
        report = emulate([kernel], **options)
    except EmulationError as error:
        failure = _with_excerpt(error, text)
    else:
        for number, wanted in (expect or {}).items():
            _require_equal(number, arguments[number], wanted)
        return report
    raise failure.with_traceback(None) from None  # where in the emulator it was raised says nothing about the kernel


def _text(ptx: str | Path) -> str:
    if isinstance(ptx, Path):
        return ptx.read_text(encoding="utf-8")
    if not isinstance(ptx, str):
        raise TypeError(f"ptx has to be a text or a pathlib.Path, not {type(ptx).__name__}.")
    if ptx.endswith(".ptx") and ".version" not in ptx:
        there = False
        with contextlib.suppress(OSError):  # a text that is too long for a name
            there = Path(ptx).is_file()
        if there:
            raise ValueError(f"ptx is the name of a file, {ptx!r}; a path has to be a pathlib.Path.")
    return ptx


def _three(sizes: int | Sequence[int], name: str) -> tuple[int, int, int]:
    if isinstance(sizes, (str, bytes)) or not (hasattr(sizes, "__index__") or hasattr(sizes, "__iter__")):
        raise TypeError(f"{name} has to be one to three whole numbers, not {sizes!r:.80}.")
    try:
        given: tuple[Any, ...] = (operator.index(sizes),)
    except TypeError:
        given = tuple(sizes)  # type: ignore[arg-type]
    if not 1 <= len(given) <= 3:
        raise ValueError(f"a grid or block has one to three sizes, not {len(given)}.")
    x, y, z = (*(_whole(size, f"a size of {name}") for size in given), 1, 1)[:3]
    return x, y, z


def _whole(value: Any, name: str) -> int:
    """Of Python or of NumPy."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} has to be a whole number, not {value!r:.80}.") from None


def _require_usable(arguments: Sequence[Any]) -> None:
    """Raises TypeError or ValueError for what has no memory that a kernel could read as it is meant."""
    if isinstance(arguments, (str, bytes)) or not isinstance(arguments, Sequence):
        raise TypeError(f"arguments has to be a list of the kernel's arguments, not {type(arguments).__name__}.")
    import numpy as np

    for number, value in enumerate(arguments):
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                raise TypeError(f"argument {number} is an array of Python objects, which no kernel can read.")
            if not value.dtype.isnative:
                swapped = "astype(array.dtype.newbyteorder('='))"
                raise ValueError(f"argument {number} has the bytes of {value.dtype} in the other order; give array.{swapped}.")
        elif hasattr(value, "untyped_storage"):
            import torch

            if value.layout != torch.strided:
                raise ValueError(f"argument {number} is a tensor of layout {value.layout}; give tensor.to_dense().")
            if value.is_neg() or value.is_conj():
                remedy = "tensor.resolve_neg().resolve_conj()"
                raise ValueError(f"argument {number} is a view whose memory holds other values; give {remedy}.")


def _require_arguments(expect: Mapping[int, Any] | None, count: int) -> None:
    if expect is None:
        return
    if not isinstance(expect, Mapping):
        raise TypeError(f"expect has to be {{number of an argument: what it holds}}, not {type(expect).__name__}.")
    for number in expect:
        if not 0 <= _whole(number, "a key of expect") < count:
            raise ValueError(f"expect names argument {number}, and there are {count}, from 0 on.")


def _with_excerpt(error: EmulationError, ptx: str) -> EmulationError:
    """The same, with the lines of PTX around the place that its sentence names."""
    place = re.match(r"PTX line (\d+)", str(error))
    if place is None:
        return error
    at = int(place[1])
    lines = ptx.splitlines()
    for number in range(max(at - AROUND, 1), min(at + AROUND, len(lines)) + 1):
        error.add_note(f"{'>' if number == at else ' '} {number:5}  {lines[number - 1].expandtabs(4)}")
    return error


def _require_equal(number: int, given: Any, wanted: Any) -> None:
    __tracebackhide__ = True
    import numpy as np

    held, due = _array(given), np.asarray(_array(wanted))
    if held.shape != due.shape or held.dtype != due.dtype:
        pytest.fail(f"argument {number} is {held.dtype} of {held.shape}, and {due.dtype} of {due.shape} is expected")
    differs = (_bytes(held) != _bytes(due)).any(axis=-1)
    if differs.any():
        where = tuple(int(i) for i in np.argwhere(differs)[0])
        pytest.fail(
            f"{int(differs.sum())} of {held.size} elements of argument {number} are not as expected, "
            f"the first at {where}: {held[where]} and not {due[where]}"
        )


def _array(values: Any) -> np.ndarray[Any, Any]:
    """Of a tensor its bits, where NumPy has no such type."""
    import numpy as np

    if isinstance(values, (np.ndarray, np.generic)):
        return np.asarray(values)
    if hasattr(values, "untyped_storage"):
        words = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
        import torch

        tensor = values.detach()
        known = tensor.dtype in (torch.float16, torch.float32, torch.float64) or not tensor.dtype.is_floating_point
        return np.asarray((tensor if known else tensor.view(getattr(torch, words[tensor.element_size()]))).numpy())
    return np.asarray(values)


def _bytes(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[..., bytes of an element]."""
    import numpy as np

    return np.frombuffer(values.tobytes(), np.uint8).reshape(*values.shape, values.dtype.itemsize)
