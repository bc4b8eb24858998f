"""Functions that worker processes run: with TRITON_INTERPRET=1 they interpret the kernels, without it they compile them."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from impls.arch import CPU as NO_GPU
from impls.arch import find
from impls.hybrid import conversion_kernels
from impls.hybrid.conversion import Converter
from impls.hybrid.formats import format_for
from impls.numerics.measure import plan_case
from impls.registry import implementation
from impls.triton.compiler import compile_kernel
from impls.triton.summary import problem_of
from tests.hybrid import conversions
from tests.hybrid.behaviours import BEHAVIOURS
from tests.triton.cases import CASES, Case, make_inputs, run

CPU = torch.device("cpu")


def run_case(request: dict[str, Any]) -> dict[str, float]:
    return run(CASES[request["case"]], CPU, implementation(request["impl"]))


def run_conversion(request: dict[str, Any]) -> None:
    conversions.run(conversions.CONVERSIONS[request["conversion"]], CPU)


def run_behaviour(request: dict[str, Any]) -> None:
    BEHAVIOURS[request["behaviour"]](CPU)


def run_conversion_by_ptx(request: dict[str, Any]) -> None:
    """As `run_conversion`, or `run_behaviour` where one is named."""
    from tests.hybrid.ptx import executed

    with executed(request["has_e4m3"]):
        (run_behaviour if "behaviour" in request else run_conversion)(request)


def bind_other(request: dict[str, Any]) -> None:
    """Bind to `hybrid-bf16` what another implementation has packed."""
    case = Case("other", {"kv_len": 20})
    inputs = make_inputs(case, CPU)
    plans = [implementation(name).plan(case.problem, NO_GPU) for name in ("hybrid-bf16", request["packed_by"])]
    plans[0].bind(inputs.q, plans[1].pack(inputs.k4, inputs.v4))


def conversion(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What converting a cache of `problem` launches on `arch`."""
    problem = problem_of(request["problem"])
    kernels = Converter(problem, find(request["arch"]), format_for(problem, request["kind"])).kernels()
    return [{"entry": one.entry, "ptx": one.ptx, "shared_bytes": one.shared_bytes} for one in kernels]


def listed(request: dict[str, Any]) -> list[str]:
    """The kernels of a decode step on `arch`, of tensors without memory."""
    case = Case("listed", {"q_len": 1, "kv_len": 4096})
    inputs = make_inputs(case, CPU)
    plan = implementation(request["impl"]).plan(case.problem, find(request["arch"]))
    runner = plan.bind(inputs.q.to("meta"), plan.pack(inputs.k4.to("meta"), inputs.v4.to("meta")))
    return [launch.entry for launch in runner.launches]


class SharedProgram:
    """Stands for the `Program` that calls of one converter share: notes the tensors that each launch finds.

    The first launch leaves time for another, as the driver does when a thread waits in it.
    """

    def __init__(self) -> None:
        self.tensors: dict[tuple[int, int], torch.Tensor] = {}
        self.launched: list[list[torch.Tensor]] = []
        self.first, self.second = threading.Event(), threading.Event()

    def point(self, launch: int, argument: int, tensor: torch.Tensor) -> None:
        self.tensors[launch, argument] = tensor

    def launch(self, stream: int) -> None:
        if not self.first.is_set():
            self.first.set()
            self.second.wait(0.5)
        self.launched.append(list(self.tensors.values()))
        self.second.set()


def convert_in_two_threads(request: dict[str, Any]) -> list[bool]:
    """Two caches that lie alike, without memory: whether each was what a launch converted."""
    case = Case("threads", {"kv_len": 64})
    inputs = make_inputs(case, CPU)
    caches = [(inputs.k4.to("meta"), inputs.v4.to("meta")) for _ in range(2)]
    converter = Converter(case.problem, find("sm_90a"), format_for(case.problem, "16-bit"))
    both, _ = converter._prepared(*caches[0])
    program = SharedProgram()
    stream = mock.patch.object(torch.cuda, "current_stream", return_value=SimpleNamespace(cuda_stream=0))
    with stream, mock.patch.object(converter, "_prepared", return_value=(both, program)):
        threads = [threading.Thread(target=converter, args=cache) for cache in caches]
        threads[0].start()
        program.first.wait()
        threads[1].start()
        for thread in threads:
            thread.join()
    return [
        any(all(any(given is t.codes for given in tensors) for t in cache) for tensors in program.launched) for cache in caches
    ]


def planned_case(request: dict[str, Any]) -> list[bool]:
    """Of each kernel of rows that the gate compiles ahead for a case: whether it is for packed ones."""
    with mock.patch.object(conversion_kernels, "compile_kernel", wraps=compile_kernel) as compiling:
        plan_case({"impl": request["impl"], "case": request["case"], "arch": "sm_90a"})
    constants = [call.args[2] for call in compiling.call_args_list if call.args[0].__name__ == "convert_rows"]
    return [one["PACKED"] for one in constants]
