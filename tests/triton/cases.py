"""Problems that would show a fault of the Triton kernels, with their data, run on any device and held against the reference.

Each case is run with poison wherever the contract says that contents do not matter: in the cache beyond a sequence's length
(codes 0xFF, scales 0x7F, which is NaN), in pages that no table names, in table entries past the last page, and in the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from impls.arch import CPU
from impls.contract import EXACT, Implementation, Inputs, Output, Paged, Plan, Problem, Rounds, Runner
from impls.host import arch_of
from impls.numerics.bounds import error_bound
from impls.numerics.metrics import errors
from impls.nvfp4 import NVFP4Tensor, dequantize, quantize
from impls.reference import reference_attention
from impls.triton import TritonAttention

TRITON = TritonAttention()
ABSENT_PAGE = 2**30  # in table entries that must not be read

Data = Callable[[Problem, torch.Generator], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
"""q [B, Hq, Sq, D], k [B, Hkv, Sk, D], v [B, Hkv, Sk, Dv], float32."""


def normal(p: Problem, g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q = torch.randn(p.batch, p.q_heads, p.q_len, p.head_dim, generator=g)
    k = torch.randn(p.batch, p.kv_heads, p.kv_len, p.head_dim, generator=g)
    v = torch.randn(p.batch, p.kv_heads, p.kv_len, p.v_head_dim, generator=g)
    return q, k, v


def sink(p: Problem, g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One key whose value is zero and whose score lies 23.4 log 2 above the others: out is that of the flat tail alone.

    2^-23.4 is 1.5 times the smallest float16: numerators that are rounded without a bias are wrong by a third.
    """
    q, k, v = normal(p, g)
    k.zero_()
    k[:, :, 0] = 1.0
    v[:, :, 0] = 0.0
    q.fill_(23.4 * math.log(2) / (p.softmax_scale * p.head_dim))
    return q, k, v.abs()


def large_scores(p: Problem, g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores of hundreds: a softmax that leaves out the running maximum overflows."""
    q, k, v = normal(p, g)
    return q * 60, k, v


@dataclass(frozen=True)
class Case:
    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    """What differs from `BASE`."""
    lens: tuple[int, ...] | None = None
    data: Data = normal
    k_global: float | None = None
    """Put in place of K's global scale; q is divided by the change, so that scores stay."""
    v_global: float | None = None
    strided: bool = False
    """All tensors are views with gaps between rows, heads and sequences."""
    gap: int = 8
    """Elements between strided rows. Odd ones leave no row of codes at the address of a word."""
    schedule: dict[str, Any] = field(default_factory=dict)
    """Fields of the schedule, in place of what the planner chooses."""

    @property
    def problem(self) -> Problem:
        return Problem(**{**BASE, **self.fields, "ragged": self.lens is not None})


BASE = {"batch": 2, "q_heads": 4, "kv_heads": 2, "q_len": 3, "kv_len": 100, "head_dim": 64, "v_head_dim": 64}
LENS = (0, 1, 37, 64, 100)
MASKS: dict[str, dict[str, Any]] = {
    "causal": {},
    "full": {"causal": False},
    "window": {"window": 7},
    "full-window": {"causal": False, "window": 70},
}


def _cases() -> Iterator[Case]:
    dims = ((16, 16), (16, 96), (32, 16), (32, 32), (48, 80), (128, 128), (192, 128), (128, 256), (256, 64), (512, 512))
    for v_axis in (-1, -2):
        for dim, v_dim in dims:
            yield Case(f"head-dim-{dim}-{v_dim}-axis{v_axis}", {"head_dim": dim, "v_head_dim": v_dim, "v_block_axis": v_axis})
        for rows in (32, 64, 128):  # packed query rows: row tiles of each height that the planner knows besides 16
            shape = {"batch": 1, "q_heads": 2, "kv_heads": 1, "q_len": rows // 2, "v_block_axis": v_axis}
            yield Case(f"row-tile-of-{rows}-axis{v_axis}", shape)
    for dim in (128, 256, 512):
        for rows in (6, 12, 48, 160):  # one for each of the planner's tables
            shape = {"batch": 1, "q_heads": 2, "kv_heads": 1, "q_len": rows // 2, "kv_len": 200}
            yield Case(f"tile-of-{rows}-rows-{dim}", {**shape, "head_dim": dim, "v_head_dim": dim})
    wide = {"batch": 1, "q_heads": 2, "kv_heads": 1, "q_len": 50, "head_dim": 512, "v_head_dim": 512}
    for mask, fields in MASKS.items():
        yield Case(f"two-parts-{mask}", {**wide, **fields})
    yield Case("two-parts-axis-2", {**wide, "v_block_axis": -2}, schedule={"parts": 2})
    yield from _by_word()
    for dtype in ("bfloat16", "float16"):
        yield Case(f"decoded-by-bits-{dtype}", {"dtype": dtype, "kv_len": 300}, schedule={"has_e4m3": False})
    for group in (1, 2, 4, 6, 8):
        yield Case(f"group-{group}", {"q_heads": 2 * group, "q_len": 5})
    yield Case("kv-heads-4", {"kv_heads": 4, "q_heads": 8})
    for mask, fields in MASKS.items():
        for q_len in (1, 5, 17):
            for kv_len in (0, 3, 17, 63, 64, 65, 129):
                shape = {"batch": 1, "q_heads": 2, "kv_heads": 1, "q_len": q_len, "kv_len": kv_len}
                yield Case(f"{mask}-{q_len}-of-{kv_len}", {**shape, **fields})
    for mask, fields in MASKS.items():
        for v_axis in (-1, -2):
            ragged = {"batch": len(LENS), "v_block_axis": v_axis, **fields}
            yield Case(f"ragged-{mask}-axis{v_axis}", ragged, lens=LENS)
            for size, order in ((16, "HND"), (48, "NHD"), (64, "NHD")) if mask == "causal" else ((16, "HND"),):
                yield Case(f"pages-{size}-{order}-{mask}-axis{v_axis}", {**ragged, "layout": Paged(size, order)}, lens=LENS)
    for v_axis in (-1, -2):
        yield Case(f"strided-axis{v_axis}", {"v_block_axis": v_axis}, strided=True)
        for gap in (1, 2, 4):
            yield Case(f"strided-by-{gap}-axis{v_axis}", {"v_block_axis": v_axis, "head_dim": 96}, strided=True, gap=gap)
        paged = {"batch": len(LENS), "v_block_axis": v_axis, "layout": Paged(32, "NHD")}
        yield Case(f"strided-pages-axis{v_axis}", paged, lens=LENS, strided=True)
    many_rows = {"batch": 1, "q_heads": 2, "kv_heads": 1, "q_len": 140, "kv_len": 150}
    for mask, fields in MASKS.items():
        yield Case(f"several-row-tiles-{mask}", {**many_rows, **fields})
    yield Case("more-queries-than-keys", {**many_rows, "kv_len": 100})
    long = {"batch": 4, "q_heads": 4, "kv_heads": 1, "kv_len": 1000}
    yield Case("splits", {**long, "batch": 1, "q_len": 1}, schedule={"splits": 5})
    yield Case("splits-merged-late", {**long, "batch": 1, "q_len": 1}, schedule={"splits": 5, "merged_early": False})
    # more partial results than `merge` weighs at a time
    yield Case("splits-of-70", {**long, "batch": 1, "q_heads": 2, "q_len": 1, "kv_len": 4480}, schedule={"splits": 70})
    yield Case("splits-not-even", {**long, "batch": 1}, schedule={"splits": 3})
    yield Case("splits-most-of-them-empty", long, lens=(0, 5, 600, 1000), schedule={"splits": 8})
    yield Case("splits-window", {**long, "window": 300}, lens=(0, 5, 600, 1000), schedule={"splits": 4})
    yield Case(
        "splits-strided", {**long, "batch": 2, "layout": Paged(64)}, lens=(999, 70), schedule={"splits": 4}, strided=True
    )
    for dtype in ("bfloat16", "float16"):
        one = {"batch": 1, "dtype": dtype, "kv_len": 700}
        yield Case(f"{dtype}-sink-and-flat-tail", {**one, "causal": False}, data=sink)
        yield Case(f"{dtype}-large-scores", one, data=large_scores)
        yield Case(f"{dtype}-splits", one, schedule={"splits": 2})
    for exponent in (-30, 30):
        yield Case(f"k-global-1e{exponent}", k_global=10.0**exponent)
        yield Case(f"v-global-1e{exponent}", v_global=10.0**exponent)
        yield Case(f"v-global-1e{exponent}-splits", {"kv_len": 700}, v_global=10.0**exponent, schedule={"splits": 2})
    yield Case("scale", {"scale": 0.7, "kv_len": 70})


def _by_word() -> Iterator[Case]:
    """Few rows of wide heads, whose codes are decoded a word at a time where they are words."""
    wide = {"batch": 1, "q_heads": 4, "kv_heads": 2, "q_len": 2, "kv_len": 100, "head_dim": 256, "v_head_dim": 256}
    for mask, fields in MASKS.items():
        yield Case(f"by-word-{mask}", {**wide, **fields})
    for dim, v_dim in ((192, 144), (144, 512), (512, 128)):
        yield Case(f"by-word-{dim}-{v_dim}", {**wide, "head_dim": dim, "v_head_dim": v_dim})
    yield Case("by-word-float16", {**wide, "dtype": "float16"}, schedule={"splits": 2})
    yield Case("by-word-not", wide, schedule={"by_word": False})
    yield Case("by-word-pages", {**wide, "batch": len(LENS), "layout": Paged(16, "NHD")}, lens=LENS)
    for gap in (2, 4):  # not words, and words
        yield Case(f"by-word-strided-by-{gap}", wide, strided=True, gap=gap)


CASES = {case.name: case for case in _cases()}


@dataclass(frozen=True)
class Bound:
    """A case ready to run."""

    problem: Problem
    inputs: Inputs
    runner: Runner


def prepare(case: Case, device: torch.device, chosen: Implementation = TRITON) -> Bound:
    inputs = make_inputs(case, device)
    return Bound(case.problem, inputs, bind(case, inputs, device, chosen))


def bind(case: Case, inputs: Inputs, device: torch.device, chosen: Implementation = TRITON) -> Runner:
    from impls.triton.attention import TritonPlan

    problem = case.problem
    arch = CPU if device.type == "cpu" else arch_of(device)
    assert chosen.why_not(problem, arch) is None
    plan = chosen.plan(problem, arch)
    assert isinstance(plan, TritonPlan)
    plan.schedule = replace(plan.schedule, **case.schedule)
    return bind_plan(plan, case, inputs, device)


def bind_plan(plan: Plan, case: Case, inputs: Inputs, device: torch.device) -> Runner:
    """Bound to outputs that are poison, with gaps if the case has them."""
    problem = case.problem
    shape = (problem.batch, problem.q_heads, problem.q_len)
    out = torch.full((*shape, problem.v_head_dim), torch.nan, dtype=inputs.q.dtype, device=device)
    lse = torch.full(shape, torch.nan, device=device)
    if case.strided:
        out, lse = _with_gaps(out, case.gap), _with_gaps(lse.unsqueeze(-1), case.gap).squeeze(-1)
    cache = plan.pack(inputs.k4, inputs.v4)
    return plan.bind(inputs.q, cache, out=out, lse=lse, kv_lens=inputs.kv_lens, block_table=inputs.block_table)


def make_inputs(case: Case, device: torch.device, seed: int = 0) -> Inputs:
    p = case.problem
    g = torch.Generator().manual_seed(seed)
    q, k, v = case.data(p, g)
    k4, v4 = quantize(k), quantize(v, block_axis=p.v_block_axis)
    if case.k_global is not None:
        q = q * (k4.global_scale / case.k_global)
        k4 = replace(k4, global_scale=torch.tensor(case.k_global))
    if case.v_global is not None:
        v4 = replace(v4, global_scale=torch.tensor(case.v_global))
    lens = case.lens or (p.kv_len,) * p.batch
    poison(k4, lens)
    poison(v4, lens)
    table = None
    if isinstance(p.layout, Paged):
        table = block_table(p, lens, g)
        k4, v4 = paged(k4, p.layout, table), paged(v4, p.layout, table)
    q = q.to(getattr(torch, p.dtype))
    if case.strided:
        q, k4, v4 = _with_gaps(q, case.gap), _cache_with_gaps(k4, case.gap), _cache_with_gaps(v4, case.gap)
    kv_lens = torch.tensor(case.lens, dtype=torch.int32) if case.lens is not None else None
    return _to(Inputs(q, k4, v4, kv_lens, table), device)


def poison(t: NVFP4Tensor, lens: tuple[int, ...]) -> None:
    """Overwrite what lies beyond each sequence's length in a dense cache [B, H, S, D]."""
    scales = t.scales.view(torch.uint8)
    for sequence, n in enumerate(lens):
        if t.block_axis == -1:
            t.codes[sequence, :, n:] = 0xFF
            scales[sequence, :, n:] = 0x7F
        else:
            t.codes[sequence, :, :, -(-n // 2) :] = 0xFF
            if n % 2:
                t.codes[sequence, :, :, n // 2] |= 0xF0
            scales[sequence, :, :, -(-n // 16) :] = 0x7F


def block_table(p: Problem, lens: tuple[int, ...], g: torch.Generator) -> torch.Tensor:
    """Shuffled pages, as many as the lengths need; beyond them, pages that there are not."""
    assert isinstance(p.layout, Paged)
    size = p.layout.page_size
    table = torch.full((p.batch, -(-p.kv_len // size)), ABSENT_PAGE, dtype=torch.int32)
    used = [-(-n // size) for n in lens]
    pages = torch.randperm(sum(used) + 3, generator=g, dtype=torch.int32).tolist()
    for sequence, count in enumerate(used):
        table[sequence, :count] = torch.tensor([pages.pop() for _ in range(count)], dtype=torch.int32)
    return table


def paged(t: NVFP4Tensor, layout: Paged, table: torch.Tensor) -> NVFP4Tensor:
    """The dense cache `t` [B, H, S, D] in the pages that `table` names; all other bytes are poison."""
    along_tokens = t.block_axis == -2
    used = table[table != ABSENT_PAGE]
    pages = int(used.max()) + 2 if len(used) else 1

    def scatter(dense: torch.Tensor, per_page: int, fill: int) -> torch.Tensor:
        heads_and_lines = (dense.shape[1], dense.shape[2]) if along_tokens else (dense.shape[1], per_page)
        pool = torch.full((pages, *heads_and_lines, per_page if along_tokens else dense.shape[3]), fill, dtype=torch.uint8)
        for sequence, row in enumerate(table.tolist()):
            for number, page in enumerate(row):
                if page != ABSENT_PAGE:
                    piece = slice(number * per_page, (number + 1) * per_page)
                    tokens = dense[sequence, :, :, piece] if along_tokens else dense[sequence, :, piece]
                    target = pool[page, :, :, : tokens.shape[2]] if along_tokens else pool[page, :, : tokens.shape[1]]
                    target.copy_(tokens)
        return pool.transpose(1, 2).contiguous() if layout.order == "NHD" and not along_tokens else pool

    size = layout.page_size
    codes = scatter(t.codes, size // 2 if along_tokens else size, 0xFF)
    scales = scatter(t.scales.view(torch.uint8), size // 16 if along_tokens else size, 0x7F)
    block_axis = -1 if not along_tokens else (-3 if layout.order == "NHD" else -2)
    length = size if along_tokens else t.length
    return NVFP4Tensor(codes, scales.view(torch.float8_e4m3fn), t.global_scale, block_axis, length)


def _with_gaps(x: torch.Tensor, gap: int) -> torch.Tensor:
    """The same values, with the last axis packed but the outer axes in another order and apart."""
    wide = (x.shape[2], x.shape[0] + 1, x.shape[1] + 2, x.shape[3] + gap)
    room = torch.empty(wide, dtype=x.dtype, device=x.device)
    room.view(torch.uint8).fill_(0xFF)  # NaN, or poison
    view = room.permute(1, 2, 0, 3)[: x.shape[0], : x.shape[1], :, : x.shape[3]]
    view.copy_(x)
    return view


def _cache_with_gaps(t: NVFP4Tensor, gap: int) -> NVFP4Tensor:
    scales = _with_gaps(t.scales.view(torch.uint8), gap).view(torch.float8_e4m3fn)
    return replace(t, codes=_with_gaps(t.codes, gap), scales=scales)


def _to(inputs: Inputs, device: torch.device) -> Inputs:
    """On `device`, strides kept."""

    def move(x: torch.Tensor) -> torch.Tensor:
        if x.device == device:
            return x
        room = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)
        room.copy_(x)
        return room

    def move_cache(t: NVFP4Tensor) -> NVFP4Tensor:
        scales = move(t.scales.view(torch.uint8)).view(torch.float8_e4m3fn)
        return NVFP4Tensor(move(t.codes), scales, t.global_scale.to(device), t.block_axis, t.length)

    others = [x if x is None else move(x) for x in (inputs.kv_lens, inputs.block_table)]
    return Inputs(move(inputs.q), move_cache(inputs.k4), move_cache(inputs.v4), *others)


def on_cpu(inputs: Inputs) -> Inputs:
    return _to(inputs, torch.device("cpu"))


def compare(problem: Problem, inputs: Inputs, output: Output, chain: int, rounds: Rounds | None = None) -> dict[str, float]:
    """Errors over their bounds, and rows that see nothing but do not say so. `rounds` are those of `triton` if left out."""
    inputs = on_cpu(inputs)
    rounds = TritonAttention().rounds(problem) if rounds is None else rounds
    reference = reference_attention(problem, inputs, rounds=rounds)
    v_max = float(dequantize(inputs.v4).abs().nan_to_num(0.0).max()) if inputs.v4.codes.numel() else 0.0
    bound = error_bound(problem, reference, p=rounds["p"], partial=rounds.get("partial", EXACT), chain=chain, v_max=v_max)
    out, lse = output.out.cpu(), output.lse.cpu()
    found = errors(out, lse, reference, bound)
    unseen = reference.lse == -torch.inf
    wrong = int((lse[unseen] != -torch.inf).sum() + (out[unseen] != 0).any(-1).sum())
    return {
        "out_over_bound": found.out_over_bound,
        "lse_over_bound": found.lse_over_bound,
        "bad_empty_rows": wrong,
    }


def run(case: Case, device: torch.device, chosen: Implementation = TRITON) -> dict[str, float]:
    """Run a case once and compare. Raises AssertionError if an input has changed."""
    bound = prepare(case, device, chosen)
    before = [x.clone() for x in _bytes(bound.inputs)]
    bound.runner()
    for old, new in zip(before, _bytes(bound.inputs), strict=True):
        assert torch.equal(old, new), "the kernel wrote to an input"
    chain = bound.problem.kv_len if "splits" in case.schedule else chosen.accumulator_chain(bound.problem)
    return compare(bound.problem, bound.inputs, bound.runner.output, max(chain, 1), chosen.rounds(bound.problem))


def _bytes(inputs: Inputs) -> list[torch.Tensor]:
    caches = [x.view(torch.uint8) for t in (inputs.k4, inputs.v4) for x in (t.codes, t.scales)]
    return [inputs.q, *caches, *(x for x in (inputs.kv_lens, inputs.block_table) if x is not None)]
