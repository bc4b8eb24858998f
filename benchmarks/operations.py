"""The operations that cells are about, and the names of those who do each.

attention     impls.registry                         decode/triton/d128/kv131072
projection    impls.weights.registry                 projection/w4a16/4096x14336/m1
layer         an attention and a projection          layer/triton+w4a16/llama-3-8b/kv32768
"""

from __future__ import annotations

from functools import cache
from typing import Any

import impls.registry
from impls.weights.registry import projection, projections

OPERATIONS = ("attention", "projection", "layer")
IN_LAYERS = ("triton", "a4q", "sdpa-flash", "sdpa-cudnn")
WEIGHTS_IN_LAYERS = ("w4a16", "w4a16-cuda", "torch-bf16-linear")
"""Attention and projection of layers that are measured unasked; any other is named as ATTENTION+PROJECTION."""


COUNTED_IMPLS = ("a4q", "triton", "smem-unpack", "triton-native")
"""Built-in implementations of attention whose kernels are emulated to be counted; what others add is of the same kernels."""


def names(operation: str) -> list[str]:
    """Of all that do `operation`, without importing what an installed package brings."""
    if operation == "projection":
        return list(projections())
    if operation == "layer":
        return [f"{attention}+{weights}" for attention in IN_LAYERS for weights in WEIGHTS_IN_LAYERS]
    return impls.registry.names()


def all_names() -> list[str]:
    """Of every operation."""
    return [name for operation in OPERATIONS for name in names(operation)]


@cache
def lists_no_kernels() -> frozenset[str]:
    """The built-in implementations of attention whose kernels cannot be inspected: they have no static cells."""
    return frozenset(name for name, one in impls.registry.built_in().items() if not one.lists_launches)


@cache
def not_counted() -> frozenset[str]:
    """The built-in implementations of attention that are not emulated to be counted."""
    return frozenset(impls.registry.built_in()) - set(COUNTED_IMPLS)


def operation_of(name: str) -> str:
    """What an implementation of this name does."""
    if name in projections():
        return "projection"
    return "layer" if layer_parts(name) else "attention"


def layer_parts(name: str) -> tuple[str, str] | None:
    """(attention, projection) of a layer's name, None where it is no layer's."""
    attention, plus, weights = name.rpartition("+")
    return (attention, weights) if plus and attention and weights in projections() else None


def implementation(name: str) -> Any:
    """Whoever is called so, or is at path/to/file.py:Class. Raises ValueError if there is nobody."""
    if ".py:" not in name and name in projections():
        return projection(name)
    parts = layer_parts(name)
    if parts is None:
        return impls.registry.implementation(name)
    from benchmarks.layers import Layer

    return Layer(impls.registry.implementation(parts[0]), projection(parts[1]))
