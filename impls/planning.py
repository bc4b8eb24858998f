"""What the planners of all kernels go by: plain numbers, no torch, no compiler."""

from __future__ import annotations

from impls.arch import Arch

SMS = 132
"""Streaming multiprocessors that splits are to fill, those of an H200. A GPU with fewer runs its blocks in more waves."""
LARGEST_SCALE = 2.0**126
"""Softmax scale at most: times log2(e) it is still a float32."""
VECTOR_BYTES = 16
"""The widest load of a thread: no kernel gains from more alignment."""


def has_e4m3(arch: Arch) -> bool:
    """Whether the GPU converts E4M3 to float16 by an instruction."""
    return arch.is_gpu and arch.compute_capability >= (8, 9)
