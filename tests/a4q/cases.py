"""The cases of `tests.triton.cases` by `a4q` and `a4q-q16`, but for those that they refuse, and more: of many query rows, and
of caches whose steps are staged in shared memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from impls.a4q.attention import A4QPlan, TiledPlan
from impls.a4q.native import planner as native
from impls.a4q.native.attention import NativePlan
from impls.a4q.native.planner import NativeTile
from impls.a4q.planner import SharedTile, Tile, shared_tile, tile_of_a_warp
from impls.arch import Arch, find
from impls.contract import DTYPES, Implementation, Inputs, Paged, Plan, Runner
from impls.host import arch_of
from impls.registry import implementation
from tests.triton.cases import CASES, LENS, MASKS, Case, bind_plan, compare, make_inputs

IMPLS = ("a4q", "a4q-q16")
AnyTile = Tile | SharedTile | NativeTile


def _many_rows() -> Iterator[Case]:
    """Rows of two tiles, the second not full, unless said otherwise: groups of 3 heads, and of 2 where lengths are ragged."""
    rows = {"batch": 1, "q_heads": 6, "kv_heads": 2, "q_len": 50, "kv_len": 300}
    for axis in (-1, -2):
        for dim, v_dim in (
            (64, 64),
            (128, 128),
            (192, 128),
            (64, 256),
            (256, 192),
            (256, 256),
            (384, 128),
            (512, 512),
            (256, 384),
        ):
            yield Case(f"many-{dim}-{v_dim}-axis{axis}", {**rows, "head_dim": dim, "v_head_dim": v_dim, "v_block_axis": axis})
        for dim in (128, 256, 512):
            for q_len in (20, 70):
                fields = {"batch": len(LENS), "q_len": q_len, "head_dim": dim, "v_head_dim": dim, "v_block_axis": axis}
                yield Case(f"many-ragged-{q_len}-{dim}-axis{axis}", {**fields, "kv_len": 300}, lens=(0, 1, 77, 192, 300))
                for size, order in ((16, "HND"), (48, "NHD"), (128, "HND")):
                    name = f"many-pages-{size}-{q_len}-{dim}-axis{axis}"
                    paged = {**fields, "kv_len": 300, "layout": Paged(size, order), "window": 90 if size == 48 else None}
                    yield Case(name, paged, lens=(0, 1, 77, 192, 300))
        for gap in (1, 8):
            strided = {**rows, "head_dim": 128, "v_head_dim": 128, "v_block_axis": axis}
            yield Case(f"many-strided-by-{gap}-axis{axis}", strided, strided=True, gap=gap)
    for dtype in DTYPES:
        for mask, fields in MASKS.items():
            yield Case(f"many-{mask}-{dtype}", {**rows, **fields, "head_dim": 128, "v_head_dim": 128, "dtype": dtype})
    for dim in (64, 128, 256, 512):
        long = {"batch": 4, "q_heads": 4, "kv_heads": 1, "q_len": 40, "kv_len": 1000, "head_dim": dim, "v_head_dim": dim}
        yield Case(f"many-splits-{dim}", long, lens=(0, 5, 600, 1000), schedule={"splits": 3})
        yield Case(f"many-splits-window-{dim}", {**long, "window": 300}, lens=(0, 5, 600, 1000), schedule={"splits": 4})


def _staged() -> Iterator[Case]:
    """Every team walks more steps than it has stages, unless a sequence is short, and the last step is not whole."""
    long = {"batch": 4, "q_heads": 4, "kv_heads": 1, "q_len": 2, "kv_len": 5000}
    lens = (5000, 4871, 70, 0)
    for dim, v_dim in ((64, 64), (128, 128), (192, 192), (256, 256), (384, 384), (512, 512), (192, 128), (64, 256), (512, 128)):
        for dtype in DTYPES:
            fields = {**long, "head_dim": dim, "v_head_dim": v_dim, "dtype": dtype}
            yield Case(f"staged-{dim}-{v_dim}-{dtype}", fields, lens=lens, schedule={"splits": 1})
        two_tiles = {**long, "head_dim": dim, "v_head_dim": v_dim, "q_heads": 6, "q_len": 2}
        yield Case(f"staged-{dim}-{v_dim}-two-row-tiles", two_tiles, lens=lens, schedule={"splits": 1})
    for dim in (128, 512):
        fields = {**long, "head_dim": dim, "v_head_dim": dim}
        yield Case(f"staged-{dim}-group-16", {**fields, "q_heads": 32, "kv_heads": 2, "q_len": 1}, lens=lens)
        yield Case(
            f"staged-{dim}-full-group-8", {**fields, "q_heads": 16, "kv_heads": 2, "q_len": 1, "causal": False}, lens=lens
        )
        yield Case(f"staged-{dim}-in-splits", {**fields, "q_len": 1}, lens=lens, schedule={"splits": 3})
        yield Case(f"staged-{dim}-strided", fields, lens=lens, strided=True, gap=8)


ALL_CASES = CASES | {case.name: case for case in (*_many_rows(), *_staged())}
NAMES = [
    (impl, name)
    for impl in IMPLS
    for name in ALL_CASES
    if implementation(impl).why_not(ALL_CASES[name].problem, find("sm_90a")) is None
]


def plan(chosen: Implementation, case: Case, arch: Arch, tile: AnyTile | None = None) -> TiledPlan:
    """With the case's number of splits, if it has one."""
    if isinstance(tile, NativeTile):
        made: Plan = NativePlan(case.problem, arch, tile=tile)
    elif tile is not None:
        made = A4QPlan(case.problem, arch, rounds_q=chosen.name == "a4q", tile=tile)
    else:
        made = chosen.plan(case.problem, arch)
    assert isinstance(made, TiledPlan)
    if "splits" in case.schedule:
        made.schedule = replace(made.schedule, splits=case.schedule["splits"])
        made.kernels()
    return made


def tiles(chosen: Implementation, case: Case, arch: Arch) -> list[AnyTile]:
    """One for each kernel that `arch` runs."""
    few = tile_of_a_warp(case.problem, arch, rounds_q=chosen.name == "a4q")
    if arch.executes("wgmma"):
        return [few, shared_tile(case.problem)]
    return [few, native.tile_for(case.problem)] if chosen.name == "a4q" and native.serves(arch) else [few]


def bind(chosen: Implementation, case: Case, inputs: Inputs, device: torch.device, tile: AnyTile | None = None) -> Runner:
    return bind_plan(plan(chosen, case, arch_of(device), tile), case, inputs, device)


def run(chosen: Implementation, case: Case, device: torch.device, inputs: Inputs | None = None) -> dict[str, float]:
    inputs = inputs or make_inputs(case, device)
    runner = bind(chosen, case, inputs, device)
    runner()
    return compare(case.problem, inputs, runner.output, max(case.problem.kv_len, 1), chosen.rounds(case.problem))


def assert_holds(found: dict[str, float]) -> str:
    """The figures, as a line."""
    told = "  ".join(f"{key} {value:.3g}" for key, value in found.items())
    assert found["out_over_bound"] <= 1 and found["lse_over_bound"] <= 1 and found["bad_empty_rows"] == 0, told
    return told
