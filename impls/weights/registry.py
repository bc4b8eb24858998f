"""The list of ways to multiply by NVFP4 weights."""

from __future__ import annotations

from impls.weights.contract import ProjectionImplementation
from impls.weights.torch_linear import TorchBf16Linear
from impls.weights.w4a16 import W4A16, W4A16Convert, W4A16Cuda, W4A16Fused

_ALL = (W4A16, W4A16Fused, W4A16Convert, W4A16Cuda, TorchBf16Linear)


def projections() -> dict[str, ProjectionImplementation]:
    """{name: implementation}"""
    return {made.name: made for made in (each() for each in _ALL)}


def projection(name: str) -> ProjectionImplementation:
    """The implementation called `name`. Raises ValueError if there is none."""
    found = projections()
    if not isinstance(name, str) or name not in found:
        raise ValueError(f"unknown projection {name!r}; there are {', '.join(found)}.")
    return found[name]
