"""Caches that would show a fault of the conversion, and what they must become, by torch in float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from impls.arch import CPU
from impls.contract import Cache, Inputs, Paged, Problem
from impls.host import arch_of
from impls.hybrid.conversion import Converter
from impls.hybrid.formats import Kind, format_for
from impls.hybrid.tiles import CONVERSION, ConversionTiles
from impls.nvfp4 import NVFP4Tensor, dequantize
from impls.reference import head_unit
from tests.triton.cases import Case, make_inputs

KINDS: tuple[Kind, ...] = ("16-bit", "e4m3", "folded")


@dataclass(frozen=True)
class Conversion:
    name: str
    kind: Kind
    fields: dict[str, Any] = field(default_factory=dict)
    lens: tuple[int, ...] | None = None
    gap: int | None = None
    """Bytes between the rows of strided tensors; packed ones where left out."""

    @property
    def case(self) -> Case:
        return Case(self.name, self.fields, lens=self.lens, strided=self.gap is not None, gap=self.gap or 0, k_global=0.037)


def _conversions() -> Iterator[Conversion]:
    for kind in KINDS:
        for axis in (-1, -2):
            along = {"v_block_axis": axis}
            yield Conversion(
                f"{kind}-80-axis{axis}", kind, {"batch": 1, **along, "head_dim": 80, "v_head_dim": 80, "kv_len": 149}
            )
            yield Conversion(f"{kind}-bytes-apart-axis{axis}", kind, {**along, "batch": 1, "kv_len": 33}, gap=3)
        yield Conversion(f"{kind}-512", kind, {"batch": 1, "head_dim": 512, "v_head_dim": 16, "kv_len": 70})
        yield Conversion(f"{kind}-words-apart", kind, {"batch": 1, "head_dim": 96}, gap=4)
        if kind != "folded":
            yield Conversion(f"{kind}-float16", kind, {"dtype": "float16", "kv_len": 20})
        for order, axis in (("HND", -1), ("NHD", -1), ("NHD", -2)):
            pages = {"batch": 1, "layout": Paged(16, order), "v_block_axis": axis}  # type: ignore[arg-type]
            yield Conversion(f"{kind}-pages-{order}-axis{axis}", kind, pages, lens=(17,))


CONVERSIONS = {one.name: one for one in _conversions()}


def converter(problem: Problem, kind: Kind, device: torch.device, tiles: ConversionTiles = CONVERSION) -> Converter:
    return Converter(problem, CPU if device.type == "cpu" else arch_of(device), format_for(problem, kind), tiles)


def wanted(problem: Problem, t: NVFP4Tensor, kind: Kind, dtype: torch.dtype) -> torch.Tensor:
    """[pages, heads, tokens, head dim] on the CPU, as the converted cache must hold it."""
    t = NVFP4Tensor(t.codes.cpu(), t.scales.cpu(), t.global_scale.cpu(), t.block_axis, t.length)
    unit = t.global_scale if kind == "folded" else torch.ones(())
    values = dequantize(replace(t, global_scale=unit), torch.float64)
    if isinstance(problem.layout, Paged) and problem.layout.order == "NHD":
        values = values.transpose(1, 2)
    if kind != "e4m3":
        return values.float().to(dtype)
    paged = isinstance(problem.layout, Paged)
    for head in range(problem.kv_heads):
        for page in (slice(None),) if paged else range(problem.batch):
            values[page, head] /= head_unit(problem, t, 0 if paged else page, head)  # type: ignore[arg-type]
    return values.float().to(dtype)


def assert_converted(problem: Problem, inputs: Inputs, packed: Cache, kind: Kind) -> None:
    """Bit by bit, NaN for NaN."""
    for name, source in (("k", inputs.k4), ("v", inputs.v4)):
        got = packed.extra[name].cpu()
        right = wanted(problem, source, kind, got.dtype)
        assert got.shape == right.shape, f"{name}: {got.shape}, not {right.shape}"
        got, right = got.float(), right.float()
        assert torch.equal(got.isnan(), right.isnan()), f"{name}: NaN differs"
        assert torch.equal(got.nan_to_num().signbit(), right.nan_to_num().signbit()), f"{name}: a sign differs"
        assert torch.equal(got.nan_to_num(), right.nan_to_num()), f"{name}: {int((got != right).sum())} values differ"


def run(one: Conversion, device: torch.device, tiles: ConversionTiles = CONVERSION) -> None:
    inputs = make_inputs(one.case, device)
    packed = converter(one.case.problem, one.kind, device, tiles)(inputs.k4, inputs.v4)
    assert_converted(one.case.problem, inputs, packed, one.kind)
