"""Functions that worker processes run for the quantiser: with TRITON_INTERPRET=1 interpreted, without it compiled."""

from __future__ import annotations

import base64
from typing import Any

import torch

from impls.arch import find
from impls.triton.quantize import Quantizer
from tests.triton.division import wrong_quotients
from tests.triton.quantize_cases import CASES, check

CPU = torch.device("cpu")


def run_case(request: dict[str, Any]) -> None:
    check(CASES[request["case"]], CPU)


def run_division(request: dict[str, Any]) -> int:
    return wrong_quotients(request["bits"], request["corrections"], CPU)


def compiled(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What rounding bfloat16 [4, 8, 1024, 128] along an axis launches on `arch`."""
    x = torch.zeros(4, 8, 1024, 128, dtype=getattr(torch, request.get("dtype", "bfloat16")))
    quantizer = Quantizer(x, block_axis=request["axis"], arch=find(request["arch"]))
    return [
        {"entry": one.entry, "ptx": one.ptx, "cubin": base64.b64encode(one.cubin).decode(), "arguments": len(one.args)}
        for one in quantizer.launches
    ]
