"""A problem that every peer takes, to vary."""

from __future__ import annotations

from typing import Any

from impls.contract import Problem

DECODE: dict[str, Any] = {
    "batch": 2,
    "q_heads": 8,
    "kv_heads": 2,
    "q_len": 1,
    "kv_len": 200,
    "head_dim": 128,
    "v_head_dim": 128,
}
PEERS = (
    "sdpa-flash",
    "sdpa-cudnn",
    "sdpa-efficient",
    "flashinfer-bf16",
    "flashinfer-fa3-bf16",
    "flashinfer-fp8",
    "flashinfer-nvfp4-paged",
)


def problem(**fields: Any) -> Problem:
    """`DECODE` with other fields; `head_dim` alone is that of V too."""
    if "head_dim" in fields:
        fields.setdefault("v_head_dim", fields["head_dim"])
    return Problem(**{**DECODE, **fields})
