"""The kernels of `kernels` as steps of a call: compiled for a GPU, or interpreted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from impls.arch import Arch
from impls.contract import Output, Problem, Runner
from impls.cuda.runner import CompiledRunner
from impls.dual_chunk import kernels
from impls.dual_chunk.merging import Fold, Lengths, Merging
from impls.planning import VECTOR_BYTES
from impls.triton.arguments import MERGE_STRIDES, TYPES, alignment_of, outer_strides, stride_names
from impls.triton.attention import InterpretedRunner, Step, launch_of
from impls.triton.compiler import ELEMENT_BYTES, Compiled, compile_kernel
from impls.triton.planner import power_of_two

if TYPE_CHECKING:
    from impls.triton.arguments import Value

NUM_WARPS = 4
FOLDED_AT_ONCE = 4096
"""Values of a block: 32 a thread, all of whose loads are in flight at once."""
LENGTHS_AT_ONCE = 256
_STRIDES = stride_names(MERGE_STRIDES)


class TritonMerging(Merging):
    name = "triton"

    def __init__(self, problem: Problem, arch: Arch, out_dtype: str, partial_dtype: str) -> None:
        self._problem = problem
        self._arch = arch
        self._out, self._partial = f"*{TYPES[out_dtype]}", f"*{TYPES[partial_dtype]}"

    def prepare(self, most_passes: int) -> None:
        """Compile `fold` for an `out` of packed rows."""
        for passes in range(2, most_passes + 1):
            for number in range(1, passes):
                self._compile_fold(number == 1, number == passes - 1, VECTOR_BYTES)

    def fold(self, fold: Fold) -> Runner:
        p, state, part = self._problem, fold.state, fold.part
        into = fold.into or Output(state.acc, state.top)
        first, last = fold.first is not None, fold.into is not None
        rows = state.top.numel()
        strides = (*outer_strides(into.out)[:3], *outer_strides(into.lse)[:3])
        values: dict[str, Value] = {
            "first_out": state.acc if fold.first is None else fold.first.out,
            "acc": state.acc,
            "top": state.top,
            "total": state.total,
            "new_top": fold.new.top,
            "new_total": fold.new.total,
            "part_out": part.out,
            "part_lse": part.lse,
            "out": into.out,
            "lse": into.lse,
            **dict(zip(_STRIDES, strides, strict=True)),
            "rows": rows,
            "q_heads": p.q_heads,
            "q_len": state.top.shape[-1],
        }
        constants = _fold_constants(p, first, last)
        step = Step(kernels.fold, (-(-rows // constants["ROWS"]), 1, 1), values, constants)
        return self._runner(fold.into or part, step, lambda: self._compile_fold(first, last, alignment_of(into.out)))

    def take_lengths(self, given: Lengths) -> Runner:
        passes, batch = given.lengths.shape
        values: dict[str, Value] = {
            "kv_lens": given.kv_lens,
            "rules": given.rules,
            "lengths": given.lengths,
            "kv_lens_batch_stride": outer_strides(given.kv_lens)[0],
            "batch": batch,
            "kv_len": self._problem.kv_len,
            "passes": passes,
        }
        constants = {"BLOCK": LENGTHS_AT_ONCE}
        types = {
            **dict.fromkeys(("kv_lens", "rules", "lengths"), "*i32"),
            "kv_lens_batch_stride": "i64",
            **dict.fromkeys(("batch", "kv_len", "passes"), "i32"),
        }
        step = Step(kernels.take_lengths, (-(-passes * batch // LENGTHS_AT_ONCE), 1, 1), values, constants)
        return self._runner(
            Output(given.lengths, given.lengths), step, lambda: self._compile(kernels.take_lengths, types, constants, {})
        )

    def _runner(self, output: Output, step: Step, compiled: Any) -> Runner:
        if not self._arch.is_gpu:
            return InterpretedRunner(output, [step])
        return CompiledRunner(output, [launch_of(compiled(), step)], self._arch)

    def _compile_fold(self, first: bool, last: bool, alignment: int) -> Compiled:
        types = {
            "first_out": self._partial if first else "*fp32",
            **dict.fromkeys(("acc", "top", "total", "new_top", "new_total", "part_lse", "lse"), "*fp32"),
            "part_out": self._partial,
            "out": self._out if last else "*fp32",
            **dict.fromkeys(_STRIDES, "i64"),
            **dict.fromkeys(("rows", "q_heads", "q_len"), "i32"),
        }
        ours = ("first_out", "acc", "top", "total", "new_top", "new_total", "part_out", "part_lse")
        divisors = dict.fromkeys(ours, VECTOR_BYTES)
        divisors["out"] = alignment
        divisors |= dict.fromkeys(_STRIDES[:3], max(alignment // ELEMENT_BYTES[types["out"]], 1))
        return self._compile(kernels.fold, types, _fold_constants(self._problem, first, last), divisors)

    def _compile(
        self, kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], divisors: Mapping[str, int]
    ) -> Compiled:
        return compile_kernel(kernel, types, constants, divisors, self._arch, {"num_warps": NUM_WARPS})


def _fold_constants(problem: Problem, first: bool, last: bool) -> dict[str, int]:
    width = power_of_two(problem.v_head_dim)
    return {
        "FIRST": first,
        "LAST": last,
        "V_HEAD_DIM": problem.v_head_dim,
        "DV": width,
        "ROWS": max(FOLDED_AT_ONCE // width, 1),
    }
