"""How many warps of a kernel reside on an SM, by the rules of cuda_occupancy.h (CUDA 13.0) for sm_80 and newer."""

from __future__ import annotations

from impls.arch import Arch

WARP = 32
PARTITIONS = 4  # of an SM, each with a quarter of its registers
REGISTER_STEP = 256  # registers of a warp are given in such steps
SHARED_STEP = 128  # bytes
RESERVED_SHARED = 1024
"""Bytes of each block's shared memory that the system keeps for itself."""


def resident_warps(arch: Arch, *, threads: int, registers: int, shared_bytes: int) -> int:
    """Warps that an SM of `arch` holds of blocks with `threads`, `registers` a thread and `shared_bytes`, at most.

    0 where not one block fits. Tensor memory and barriers may let fewer in; no cubin says how many of those a block holds.
    """
    warps = -(-threads // WARP)
    in_registers = arch.registers_per_sm // PARTITIONS // _rounded_up(max(registers, 1) * WARP, REGISTER_STEP) * PARTITIONS
    shared = _rounded_up(shared_bytes + RESERVED_SHARED, SHARED_STEP)
    if shared_bytes > arch.shared_per_block or registers > arch.registers_per_thread:
        return 0
    blocks = min(arch.blocks_per_sm, arch.warps_per_sm // warps, in_registers // warps, arch.shared_per_sm // shared)
    return blocks * warps


def _rounded_up(number: int, step: int) -> int:
    return -(-number // step) * step
