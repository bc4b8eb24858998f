"""What a cubin says of its kernels: registers, local and shared memory, parameters. Needs no tool and no GPU.

A cubin is an ELF file, little endian, 64 bits. Its section `.nv.info` lists attributes of all kernels, `.nv.info.NAME` those of
one, and `.nv.shared.NAME` is as large as the shared memory that the kernel declares. An attribute is

    byte 0   format: 1 no value, 2 or 3 a value in bytes 2-3, 4 a payload whose length is in bytes 2-3
    byte 1   which attribute
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

REGISTERS, STACK_BYTES, PARAMETER = 0x2F, 0x12, 0x17  # EIATTR_REGCOUNT, _MIN_STACK_SIZE, _KPARAM_INFO in nvdisasm's output
WITH_PAYLOAD = 4
RESERVED_SHARED = 1024
"""Bytes at the start of a block's shared memory that the system keeps; from sm_90 on a declaration lies behind them."""
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True)
class Facts:
    """Static facts of one kernel."""

    registers: int
    """32-bit registers of a thread."""
    local_bytes: int
    """Bytes of local memory that a thread takes, calls included: arrays indexed at run time, and spilled registers."""
    shared_bytes: int
    """Bytes of shared memory that the kernel declares; what a launch asks for comes on top."""
    parameter_bytes: tuple[int, ...]
    """Size of each parameter, in order."""


class NoSuchKernel(ValueError):
    """The cubin has no kernel of that name, or is none."""


def facts_of(cubin: bytes, entry: str) -> Facts:
    """The facts of kernel `entry`. Raises NoSuchKernel."""
    try:
        sections = dict(_sections(cubin))
        symbol = _symbols(cubin, sections).index(entry)
        shared = _content(sections, f".nv.shared.{entry}")[1]
        of_all = list(_attributes(cubin, *_content(sections, ".nv.info")))
        of_one = list(_attributes(cubin, *_content(sections, f".nv.info.{entry}")))
        counted = {
            kind: dict(struct.unpack_from("<II", value) for which, value in of_all if which == kind)
            for kind in (REGISTERS, STACK_BYTES)
        }
        registers = counted[REGISTERS][symbol]
    except (struct.error, ValueError, KeyError, IndexError) as error:
        raise NoSuchKernel(f"there is no kernel {entry!r} in this cubin of {len(cubin)} bytes.") from error
    if shared and ".nv.shared.reserved.0" in sections:
        shared -= RESERVED_SHARED
    # (index, ordinal | offset << 16, flags | size << 18)
    parameters = sorted(
        (word & 0xFFFF, flags >> 18)
        for _, word, flags in (struct.unpack_from("<III", value) for which, value in of_one if which == PARAMETER)
    )
    return Facts(registers, counted[STACK_BYTES].get(symbol, 0), shared, tuple(size for _, size in parameters))


def _sections(cubin: bytes) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, header) of every section."""
    if cubin[:4] != b"\x7fELF":
        raise ValueError("no ELF file")
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [_SECTION.unpack_from(cubin, start + number * size) for number in range(count)]
    for header in headers:
        yield _name(cubin, headers[names][4] + header[0]), header


def _symbols(cubin: bytes, sections: dict[str, tuple[int, ...]]) -> list[str]:
    """Names of all symbols, in the order that attributes number them."""
    table, names = _content(sections, ".symtab"), _content(sections, ".strtab")
    return [_name(cubin, names[0] + symbol[0]) for symbol in _SYMBOL.iter_unpack(cubin[table[0] : sum(table)])]


def _content(sections: dict[str, tuple[int, ...]], name: str) -> tuple[int, int]:
    """(offset, size) of a section, (0, 0) if there is none."""
    header = sections.get(name)
    return (header[4], header[5]) if header else (0, 0)


def _name(cubin: bytes, offset: int) -> str:
    return cubin[offset : cubin.index(b"\0", offset)].decode()


def _attributes(cubin: bytes, offset: int, size: int) -> Iterator[tuple[int, bytes]]:
    """(which, payload) of the attributes in a section; the payload of those without one is empty."""
    end = offset + size
    while offset < end:
        format_, which, length = struct.unpack_from("<BBH", cubin, offset)
        offset += 4
        payload = b""
        if format_ == WITH_PAYLOAD:
            payload = cubin[offset : offset + length]
            offset += length
        yield which, payload
