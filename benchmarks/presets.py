"""Sizes of published models' layers, from the config.json that stands beside their weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """One attention layer of a model."""

    hidden: int
    q_heads: int
    kv_heads: int
    head_dim: int
    source: str
    """The model whose config.json says so."""


PRESETS = {
    "llama-3-8b": Preset(4096, 32, 8, 128, "meta-llama/Meta-Llama-3-8B"),
    "llama-3-70b": Preset(8192, 64, 8, 128, "meta-llama/Meta-Llama-3-70B"),
    "gemma-3-27b": Preset(5376, 32, 16, 128, "google/gemma-3-27b-it"),
    "gemma-3-12b": Preset(3840, 16, 8, 256, "google/gemma-3-12b-it"),
}
