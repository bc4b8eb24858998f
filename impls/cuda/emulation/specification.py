"""What to launch, and on what memory, as a JSON file says it.

    {"entry": "saxpy", "grid": [4], "block": [128], "arguments": [{"buffer": "y"}, {"buffer": "x"}, {"f32": 2.0}, {"i32": 500}],
     "buffers": {"y": {"dtype": "float32", "shape": [500], "fill": "zeros"}, "x": {"file": "x.npy"}}}

or a list of these, launched one after the other, whose buffers all of them may use.

    launch      entry, grid, block, arguments; optional: shared_bytes (of dynamic shared memory), buffers,
                overlaps (true: it may start before the launch before it has ended),
                same_bits (false: its result may depend on the order in which warps run)
    grid, block one to three sizes, x first
    argument    {"buffer": NAME}, null (a null pointer), or a value of a kind: {"i32": 5}; kinds are those of `SCALARS`
    buffer      {"dtype", "shape", "fill", "seed"}; {"file": NPY} relative to the JSON file; or {"bytes": N}, which are zero
    dtype       of `DTYPES`; bfloat16 is held as bit patterns in uint16
    fill        "zeros", if left out; "random": normal floats, integers of the whole range; "range": 0, 1, 2...; or a number
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from impls.cuda.emulator.emulate import Kernel
from impls.cuda.emulator.machine.state import Triple
from impls.errors import CommandError

Array = np.ndarray[Any, Any]

SCALARS: Mapping[str, type[np.number[Any]]] = {
    **{f"i{bits}": np.dtype(f"int{bits}").type for bits in (8, 16, 32, 64)},
    **{f"u{bits}": np.dtype(f"uint{bits}").type for bits in (8, 16, 32, 64)},
    **{f"f{bits}": np.dtype(f"float{bits}").type for bits in (16, 32, 64)},
}
DTYPES = ("float16", "bfloat16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
LAUNCH = {"entry", "grid", "block", "arguments"}
OPTIONAL = {"shared_bytes", "overlaps", "same_bits", "buffers"}
LARGEST_FILE = 1 << 26
"""Bytes of text: a longer one is not what was meant."""
LARGEST_NUMBER = 2**63 - 1
"""Of what is counted: sizes, bytes, seeds."""
LONGEST_QUOTE = 60
"""Characters of a value that a sentence shows; of a path or of another's sentence, five times as many."""
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,99}", re.ASCII)


@dataclass(frozen=True)
class Buffer:
    """Memory that kernels read and write."""

    dtype: str
    values: Array
    file: Path | None
    """Where it was read from."""


@dataclass(frozen=True)
class Specification:
    """One file."""

    kernels: list[Kernel]
    buffers: dict[str, Buffer]
    same_bits: bool


def read(path: Path, ptx: str, room: int | None) -> Specification:
    """The launches of `ptx` that the file at `path` describes. Raises CommandError where it describes none.

    `room`: bytes that all buffers together may have.
    """
    text = text_of(path)
    try:
        data = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_constant)
    except CommandError as error:
        raise CommandError(f"{path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise CommandError(f"{path} is not JSON: {error}.") from error
    try:
        return _Reader(path.parent, ptx, math.inf if room is None else room).specification(data)
    except CommandError as error:
        raise CommandError(f"{path}: {error}") from error


def text_of(path: Path) -> str:
    """A file that a user names. Raises CommandError where it cannot be read or is no text."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}.") from error
    if len(content) > LARGEST_FILE:
        raise CommandError(f"{path} has more than {LARGEST_FILE:,} bytes.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not text: byte {error.start} is no UTF-8.") from error


class _Reader:
    """Checks each part where it is; sentences begin with the place."""

    def __init__(self, folder: Path, ptx: str, room: float) -> None:
        self._folder, self._ptx, self._room = folder, ptx, room
        self._buffers: dict[str, Buffer] = {}

    def specification(self, data: Any) -> Specification:
        launches = data if isinstance(data, list) else [data]
        if not launches:
            raise CommandError("there is no launch in it.")
        places = [f"launch {number}" for number in range(len(launches))] if isinstance(data, list) else ["the launch"]
        same_bits = True
        for place, launch in zip(places, launches, strict=True):
            _object(launch, place, LAUNCH, OPTIONAL)
            same_bits &= _flag(launch.get("same_bits", True), f"same_bits of {place}")
            named = launch.get("buffers", {})
            if not isinstance(named, dict):
                raise CommandError(f"buffers of {place} must be an object of names, not {_shown(named)}.")
            for name, described in named.items():
                self._add_buffer(name, described)
        kernels = [self._kernel(launch, place) for place, launch in zip(places, launches, strict=True)]
        return Specification(kernels, self._buffers, same_bits)

    def _kernel(self, launch: Mapping[str, Any], place: str) -> Kernel:
        if not isinstance(launch["entry"], str):
            raise CommandError(f"entry of {place} must be a name, not {_shown(launch['entry'])}.")
        if len(launch["entry"]) > LONGEST_QUOTE and launch["entry"] not in self._ptx:
            raise CommandError(f"entry of {place} is not in the module: {_shown(launch['entry'])}.")
        given = launch["arguments"]
        if not isinstance(given, list):
            raise CommandError(f"arguments of {place} must be a list, not {_shown(given)}.")
        return Kernel(
            self._ptx,
            launch["entry"],
            _sizes(launch["grid"], f"grid of {place}"),
            _sizes(launch["block"], f"block of {place}"),
            [self._argument(each, f"argument {number} of {place}") for number, each in enumerate(given)],
            _integer(launch.get("shared_bytes", 0), f"shared_bytes of {place}", 0),
            _flag(launch.get("overlaps", False), f"overlaps of {place}"),
            [_called(each, number) for number, each in enumerate(given)],
        )

    def _argument(self, given: Any, place: str) -> Any:
        if given is None:
            return None
        if not isinstance(given, dict) or len(given) != 1:
            raise CommandError(f'{place} must be null or an object of one kind, e.g. {{"i32": 5}}, not {_shown(given)}.')
        ((kind, value),) = given.items()
        if kind == "buffer":
            if not isinstance(value, str) or value not in self._buffers:
                known = _shortened(", ".join(self._buffers) or "none", 5 * LONGEST_QUOTE)
                raise CommandError(f"{place} names no buffer: {_shown(value)}; buffers: {known}.")
            return self._buffers[value].values
        if kind not in SCALARS:
            raise CommandError(f"{place} is of no known kind: {_shown(kind)}; kinds: buffer, {', '.join(SCALARS)}.")
        return _scalar(value, SCALARS[kind], place)

    def _add_buffer(self, name: str, described: Any) -> None:
        place = f"buffer {name}"
        if not _NAME.fullmatch(name):
            raise CommandError(f"{_shown(name)} cannot be a buffer's name: letters, digits, '_', '-' and '.' can.")
        if name in self._buffers:
            raise CommandError(f"two buffers are called {name}.")
        if not isinstance(described, dict):
            raise CommandError(f"{place} must be an object, not {_shown(described)}.")
        if "file" in described:
            _object(described, place, {"file"}, set())
            self._buffers[name] = self._loaded(described["file"], place)
        elif "bytes" in described:
            _object(described, place, {"bytes"}, set())
            size = _integer(described["bytes"], f"bytes of {place}", 0)
            self._take(size, place)
            self._buffers[name] = Buffer("uint8", np.zeros(size, np.uint8), None)
        else:
            _object(described, place, {"dtype", "shape"}, {"fill", "seed"})
            self._buffers[name] = self._made(described, place)

    def _made(self, described: Mapping[str, Any], place: str) -> Buffer:
        dtype, shape = described["dtype"], described["shape"]
        if dtype not in DTYPES:
            raise CommandError(f"dtype of {place} is not known: {_shown(dtype)}; there are {', '.join(DTYPES)}.")
        if not isinstance(shape, list) or len(shape) > 32:
            raise CommandError(f"shape of {place} must be a list of at most 32 sizes, not {_shown(shape)}.")
        count = math.prod(_integer(size, f"a size of {place}", 0) for size in shape)
        if count > LARGEST_NUMBER:
            raise CommandError(f"{place} cannot have the shape {_shown(shape)}.")
        word = np.dtype(np.uint16 if dtype == "bfloat16" else dtype)
        # while it is filled there are values of 64 bits as well
        self._take(count * word.itemsize, place, count * 8 if described.get("fill", "zeros") != "zeros" else 0)
        seed = _integer(described.get("seed", 0), f"seed of {place}", 0)
        values = _filled(described.get("fill", "zeros"), count, dtype, seed, place)
        try:
            return Buffer(dtype, values.reshape(shape), None)
        except ValueError as error:  # one size is 0 and another larger than any
            raise CommandError(f"{place} cannot have the shape {_shown(shape)}.") from error

    def _loaded(self, named: Any, place: str) -> Buffer:
        if not isinstance(named, str):
            raise CommandError(f"file of {place} must be a path, not {_shown(named)}.")
        path = self._folder / named
        called = _shortened(str(path), 5 * LONGEST_QUOTE)
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):  # reading a pipe waits, and reading some devices never ends
                raise CommandError(f"file of {place} is not a regular file: {called}.")
            self._take(status.st_size, place)
            values = np.load(path, allow_pickle=False)
        except OSError as error:
            raise CommandError(f"cannot read {called}: {error.strerror or error}.") from error
        except (ValueError, EOFError, SyntaxError) as error:  # a damaged header is evaluated as Python
            why = _shortened(str(error).partition("\n")[0].rstrip("."), 5 * LONGEST_QUOTE)
            raise CommandError(f"{called} is no array of NumPy that can be read: {why}.") from error
        if not isinstance(values, np.ndarray) or values.dtype.name not in DTYPES:
            found = values.dtype.name if isinstance(values, np.ndarray) else "several arrays"
            found = _shortened(found, LONGEST_QUOTE)  # the fields of a structure are any number
            raise CommandError(f"{called} holds {found}; there are {', '.join(DTYPES)}, and bfloat16 as uint16.")
        return Buffer(values.dtype.name, np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="))), path)

    def _take(self, size: int, place: str, meanwhile: int = 0) -> None:
        if size + meanwhile > self._room:
            raise CommandError(f"{place} has {size:,} B; this machine's memory holds {int(self._room):,} B more of buffers.")
        self._room -= size


def _filled(fill: Any, count: int, dtype: str, seed: int, place: str) -> Array:
    """`count` values."""
    values: Array
    word = np.dtype(np.float32 if dtype == "bfloat16" else dtype)
    if fill == "zeros":
        return np.zeros(count, np.uint16 if dtype == "bfloat16" else word)
    if fill == "random":
        generator = np.random.default_rng(seed)
        if word.kind == "f":
            values = generator.standard_normal(count)
        else:
            values = generator.integers(np.iinfo(word).min, np.iinfo(word).max, count, word, endpoint=True)
    elif fill == "range":
        if count:
            _scalar(count - 1, word.type, f"the last element of {place}")
        values = np.arange(count)
    elif isinstance(fill, str):
        raise CommandError(f"fill of {place} is not known: {_shown(fill)}; there are zeros, random, range, or a number.")
    else:
        values = np.full(count, _scalar(fill, word.type, f"fill of {place}"))
    values = values.astype(word)
    return _bfloat16(values) if dtype == "bfloat16" else values


def _bfloat16(values: Array) -> Array:
    """Bit patterns of finite float32 values, rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def _scalar(value: Any, word: type[np.number[Any]], place: str) -> np.number[Any]:
    dtype = np.dtype(word)
    whole = dtype.kind != "f"
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise CommandError(f"{place} must be a {'whole ' if whole else ''}number, not {_shown(value)}.")
    least, most = _limits(dtype)
    if not least <= value <= most:
        raise CommandError(f"{place} is {_shown(value)}, which {dtype.name} does not hold.")
    return dtype.type(value)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "f":
        return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def _object(given: Any, place: str, required: AbstractSet[str], optional: AbstractSet[str]) -> None:
    if not isinstance(given, dict):
        raise CommandError(f"{place} must be an object, not {_shown(given)}.")
    for name in sorted(required - given.keys()):
        raise CommandError(f"{place} lacks {name}.")
    for name in given.keys() - required - optional:
        raise CommandError(
            f"{place} has {_shown(name)}, which is not known; known are {', '.join(sorted({*required, *optional}))}."
        )


def _sizes(given: Any, place: str) -> Triple:
    if not isinstance(given, list) or not 1 <= len(given) <= 3:
        raise CommandError(f"{place} must be a list of one to three sizes, not {_shown(given)}.")
    x, y, z = [*(_integer(size, f"a size of the {place}", 1) for size in given), 1, 1][:3]
    return x, y, z


def _integer(given: Any, place: str, least: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < least:
        raise CommandError(f"{place} must be a whole number of at least {least}, not {_shown(given)}.")
    if given > LARGEST_NUMBER:
        raise CommandError(f"{place} must be a whole number of at most {LARGEST_NUMBER}, not {_shown(given)}.")
    return given


def _flag(given: Any, place: str) -> bool:
    if not isinstance(given, bool):
        raise CommandError(f"{place} must be true or false, not {_shown(given)}.")
    return given


def _called(argument: Any, number: int) -> str:
    """What sentences call it."""
    return f"buffer {argument['buffer']}" if isinstance(argument, dict) and "buffer" in argument else f"argument {number}"


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value)
    except ValueError:  # more digits than Python prints
        text = "a number of thousands of digits"
    return _shortened(text, LONGEST_QUOTE)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 5]}[...]"


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, _ in pairs if [each for each, _ in pairs].count(name) > 1)
        raise CommandError(f"{_shown(twice)} stands twice in one object.")
    return found


def _no_constant(name: str) -> Any:
    raise CommandError(f'{name} is no number in JSON; give the bits of one, e.g. {{"u32": 2143289344}} for a float32 NaN.')
