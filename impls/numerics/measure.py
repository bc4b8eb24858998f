"""Runs one implementation on one case and says how far it is from right. For `impls.worker`: a fault may take the process.

The tensors are bound holding other contents, which are then replaced, because a runner must read q, `kv_lens` and
`block_table` when it is called. Outputs start as a bit pattern that no arithmetic gives, with more of it around them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from impls.arch import CPU, Arch, find
from impls.contract import Implementation, Inputs, Output, Runner, Unsupported
from impls.host import gpu_here
from impls.numerics.bounds import Bound, declared_bound
from impls.numerics.cases import CASES, Case
from impls.numerics.data import build, to_device
from impls.numerics.emulation import Emulation, emulated, schedules, why_not_emulated
from impls.numerics.metrics import Errors, errors, errors_by_query, errors_by_segment, largest_errors, ratio
from impls.nvfp4 import decode
from impls.reference import Reference, float_attention, reference_attention
from impls.registry import implementation

POISON = 0x7FA5  # as bfloat16, as float16, and doubled as float32 a NaN that arithmetic does not make
GUARD = 256  # elements of poison before and after an output

How = Literal["cpu", "gpu", "emulated"]


def examine(request: Mapping[str, Any]) -> dict[str, Any]:
    """All that is known about one case: {numerics, over_bound, bounds, positions, plan, schedules, rules}.

    `request` has `impl` (a name, or path/to/file.py:Class), `case` (a name in `CASES`) and `on` ("cpu", "gpu",
    "emulated:ARCH").

        numerics     the fields of `benchmarks.records.Numerics`
        over_bound   {out, lse}: largest error over its bound, apart
        bounds       {relative_l2, largest_row_error, lse_error} where each component is at its bound
        positions    [{first, last, relative_l2}] by query row, or by range of keys where the case has segments
        plan         what the planner decided
        schedules    orders in which an emulator ran the warps, with the same result in each; empty where none did
        rules        {name: status} of the emulator's rules that the kernels rest on; empty where it did not run them

    Raises Unsupported where the implementation refuses the case, ValueError on a request that means nothing.
    """
    if request["case"] not in CASES:
        raise ValueError(f"unknown case {request['case']!r}; there are {', '.join(CASES)}.")
    case = CASES[request["case"]]
    how, arch = _place(request["on"])
    chosen = implementation(request["impl"])
    if case.gpu_only and how != "gpu":
        raise Unsupported(f"{case.name} is a case for GPUs: on a CPU it would take minutes.")
    reason = why_not_emulated(chosen, case) if how == "emulated" else None
    reason = reason or chosen.why_not(case.problem, arch)
    if reason is not None:
        raise Unsupported(reason)

    data = build(case)
    real = to_device(data.inputs, torch.device("cuda" if how == "gpu" else "cpu"))
    rows = _compared_rows(case)
    reference = reference_attention(case.problem, real, rows=rows, rounds=chosen.rounds(case.problem)).to("cpu")
    bound = declared_bound(chosen, case.problem, reference, v_max=_largest_value(real))
    run = _run(chosen, case, how, arch, real)
    output = Output(run.output.out[:, :, rows], run.output.lse[:, :, rows])
    found = errors(output.out, output.lse, reference, bound)
    quantisation = None
    if data.original is not None:
        q, k, v = (t.to(real.q.device) for t in data.original)
        exact = float_attention(case.problem, q, k, v, kv_lens=real.kv_lens, rows=rows).to("cpu").out
        quantisation = ratio(output.out.double() - exact, exact)
    return {
        "numerics": {
            "error_over_bound": max(found.out_over_bound, found.lse_over_bound),
            "relative_l2": found.relative_l2,
            "largest_row_error": found.largest_row_error,
            "magnitude_ratio": found.magnitude_ratio,
            "lse_error": found.lse_error,
            "cosine": found.cosine,
            "quantisation_relative_l2": quantisation,
            "nan_count": found.nan_count,
            "inf_count": found.inf_count,
            "verdict": run.fault or why_wrong(output, reference, bound, found) or "pass",
        },
        "over_bound": {"out": found.out_over_bound, "lse": found.lse_over_bound},
        "bounds": largest_errors(reference, bound),
        "positions": _positions(case, output.out, reference),
        "plan": dict(run.plan),
        "schedules": list(run.emulation.schedules),
        "rules": dict(run.emulation.rules),
    }


def plan_case(request: Mapping[str, Any]) -> None:
    """Plan {"impl", "case", "arch"}, so that its kernels are in the caches on disk. Needs no GPU.

    Plans expect packed tensors; those of other placements are packed and bound too, without memory, where that lists kernels.

    Raises Unsupported, and whatever the implementation raises.
    """
    chosen, arch = implementation(request["impl"]), find(request["arch"])
    case = CASES[request["case"]]
    reason = chosen.why_not(case.problem, arch)
    if reason is not None:
        raise Unsupported(reason)
    plan = chosen.plan(case.problem, arch)
    if case.placement != "packed" and chosen.lists_launches:
        given = to_device(build(case).inputs, torch.device("meta"))
        plan.bind(given.q, plan.pack(given.k4, given.v4), kv_lens=given.kv_lens, block_table=given.block_table)


@dataclass(frozen=True)
class _Run:
    """What a runner left behind, on the CPU."""

    output: Output
    fault: str | None
    """A sentence if it broke the contract, whatever the numbers are."""
    plan: Mapping[str, int | str]
    emulation: Emulation


class _Guarded:
    """An output that is poisoned, with poison around it."""

    def __init__(self, shape: tuple[int, ...], token_major: bool, dtype: torch.dtype, device: torch.device) -> None:
        """[B, Hq, Sq, ...], in memory in that order or as [B, Sq, Hq, ...]."""
        order = [0, 2, 1, *range(3, len(shape))] if token_major else list(range(len(shape)))
        self.memory = torch.empty(math.prod(shape) + 2 * GUARD, dtype=dtype, device=device)
        self.poison()
        inner = self.memory[GUARD:-GUARD].view([shape[axis] for axis in order])
        self.tensor = inner.permute(order)  # swapping two axes is its own inverse

    def poison(self) -> None:
        self._bits(self.memory).fill_(POISON)

    @property
    def unwritten(self) -> int:
        """Elements that are still poison."""
        return int((self._bits(self.memory[GUARD:-GUARD]).view(self.tensor.numel(), -1) == POISON).all(-1).sum())

    @property
    def written_outside(self) -> bool:
        bits = self._bits(self.memory)
        width = GUARD * self.memory.element_size() // 2
        return bool((bits[:width] != POISON).any() | (bits[-width:] != POISON).any())

    @staticmethod
    def _bits(memory: torch.Tensor) -> torch.Tensor:
        return memory.view(torch.int16)


def _run(chosen: Implementation, case: Case, how: How, arch: Arch, real: Inputs) -> _Run:
    """Plan, pack, bind and call once, on a GPU as the replay of a graph that was captured while other contents were bound.

    The emulator executes the launches that were listed while other contents were bound.
    """
    p = case.problem
    device = real.q.device
    bound = to_device(real, device)
    changing = [
        (there, given)
        for there, given in ((bound.q, real.q), (bound.kv_lens, real.kv_lens), (bound.block_table, real.block_table))
        if there is not None and given is not None
    ]
    for there, _ in changing:
        there.zero_()
    token_major = case.placement == "strided"
    out = _Guarded((p.batch, p.q_heads, p.q_len, p.v_head_dim), token_major, getattr(torch, p.dtype), device)
    lse = _Guarded((p.batch, p.q_heads, p.q_len), token_major, torch.float32, device)

    plan = chosen.plan(p, arch)
    runner = plan.bind(
        bound.q,
        plan.pack(bound.k4, bound.v4),
        out=out.tensor,
        lse=lse.tensor,
        kv_lens=bound.kv_lens,
        block_table=bound.block_table,
    )
    launches = runner.launches
    call = _captured(runner) if how == "gpu" else runner
    out.poison()
    lse.poison()
    for there, given in changing:
        there.copy_(given)
    emulation = Emulation()
    if how == "emulated":
        emulation = emulated(launches, arch, schedules(case))
    else:
        call()
    if how == "gpu":
        torch.cuda.synchronize()

    intact = _digests(real)
    written = [name for name, digest in _digests(bound).items() if digest != intact[name]]
    fault = emulation.fault
    if fault is not None:
        pass  # the kernels did not come to an end, and out and lse are as they were
    elif runner.output.out.data_ptr() != out.tensor.data_ptr() or runner.output.lse.data_ptr() != lse.tensor.data_ptr():
        fault = "the runner's output is not the out and lse that bind was given."
    elif written:
        fault = f"it wrote to its inputs: {', '.join(written)}."
    elif out.written_outside or lse.written_outside:
        fault = f"it wrote outside of {'out' if out.written_outside else 'lse'}."
    elif out.unwritten or lse.unwritten:
        fault = f"it left elements unwritten: {out.unwritten} of out, {lse.unwritten} of lse."
    return _Run(Output(out.tensor.cpu(), lse.tensor.cpu()), fault, plan.describe(), emulation)


def _captured(runner: Runner) -> Callable[[], None]:
    """The replay of a CUDA graph of one call, after a call that lets it load its kernels."""
    runner()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        runner()
    return graph.replay


def _digests(inputs: Inputs) -> dict[str, str]:
    """{tensor's name: hash of its contents}."""
    tensors = {
        "q": inputs.q,
        "k4.codes": inputs.k4.codes,
        "k4.scales": inputs.k4.scales,
        "k4.global_scale": inputs.k4.global_scale,
        "v4.codes": inputs.v4.codes,
        "v4.scales": inputs.v4.scales,
        "v4.global_scale": inputs.v4.global_scale,
        "kv_lens": inputs.kv_lens,
        "block_table": inputs.block_table,
    }
    return {
        name: hashlib.sha256(t.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()
        for name, t in tensors.items()
        if t is not None
    }


def why_wrong(output: Output, reference: Reference, bound: Bound, found: Errors) -> str | None:
    """None if the numbers of `output`, the reference's query rows, hold; else one sentence."""
    out, lse = output.out, output.lse
    if found.nan_count:
        return f"out and lse hold {found.nan_count} NaN."
    infinite = int(torch.isinf(reference.out.to(out.dtype)).sum())
    if found.inf_count != infinite:
        return f"out and lse hold {found.inf_count} Inf where {infinite} are right."
    empty = reference.lse == -torch.inf
    if bool((out[empty] != 0).any()) or bool((lse[empty] != -torch.inf).any()):
        return "a row that sees no key must be 0 with lse = -inf, and is not."
    if not found.out_over_bound <= 1:
        b, h, i, d = found.worst
        row = int((reference.rows == i).nonzero())
        return (
            f"out is {found.out_over_bound:.3g} times its bound from the reference at sequence {b}, head {h}, query {i}, "
            f"dim {d}: {float(out[b, h, row, d]):.6g} where {float(reference.out[b, h, row, d]):.6g} is right."
        )
    if not found.lse_over_bound <= 1:
        b, h, i = found.worst_lse
        row = int((reference.rows == i).nonzero())
        return (
            f"lse is {found.lse_over_bound:.3g} times its bound from the reference at sequence {b}, head {h}, query {i}: "
            f"{float(lse[b, h, row]):.6g} where {float(reference.lse[b, h, row]):.6g} is right."
        )
    return None


def _compared_rows(case: Case) -> torch.Tensor:
    """[R] the query rows that are held against the reference."""
    count = case.problem.q_len if case.rows is None else case.rows
    return torch.linspace(0, case.problem.q_len - 1, count).round().long()


def _positions(case: Case, out: torch.Tensor, reference: Reference) -> list[dict[str, float]]:
    if case.segments:
        return errors_by_segment(out, reference, case.segments, case.problem.kv_len)
    return errors_by_query(out, reference)


def _largest_value(inputs: Inputs) -> float:
    """Largest |value| of V, poison left out: a NaN scale hides the rest of its block alone."""
    values = decode(inputs.v4).abs().nan_to_num(nan=0.0)
    return float(values.max()) * float(inputs.v4.global_scale) if values.numel() else 0.0


def _place(on: str) -> tuple[How, Arch]:
    """(how to run, for which architecture)."""
    how, _, named = on.partition(":")
    if on == "cpu":
        return "cpu", CPU
    if how == "emulated":
        return "emulated", find(named)
    if on != "gpu":
        raise ValueError(f"a case runs on cpu, gpu or emulated:ARCH, not on {on!r}.")
    arch, reason = gpu_here()
    if arch is None:
        raise ValueError(f"there is no GPU to run on: {reason}")
    return "gpu", arch
