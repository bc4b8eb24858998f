"""The gate on a CPU that executes the PTX of a GPU's kernels: what it refuses, what it says of faults, what it reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import nvfp4bench
from impls.contract import Unsupported
from impls.cuda.emulator.errors import BadLaunch, InternalError, NotExecuted, TooLong
from impls.numerics import report
from impls.numerics.baselines import METRICS, Baselines, default_path, read
from impls.numerics.cases import CASES
from impls.numerics.emulation import schedules
from impls.numerics.gate import _environment, judge, newly_refused
from impls.numerics.measure import examine
from impls.worker import Reply, Worker
from tests.cuda.needs import needs_nvrtc
from tests.numerics import kernel_faults
from tests.numerics.test_gate import OTHER_CPUS, measured

FILE = Path(kernel_faults.__file__)
SMALL = "head-dim-64"


def source(fault: type) -> str:
    return f"{FILE}:{fault.__name__}"


def examined(fault: type, arch: str = "sm_120a", case: str = SMALL) -> dict[str, Any]:
    return examine({"impl": source(fault), "case": case, "on": f"emulated:{arch}"})


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_120a"])
def test_the_real_kernel_passes_and_says_what_it_rests_on(arch: str) -> None:
    found = examined(kernel_faults.Unedited, arch)
    assert found["numerics"]["verdict"] == "pass"
    assert found["schedules"] == ["forward", "reverse", "seeded"]
    assert found["rules"]["mma fragments"] == "independent compiler"
    assert ("mma 35-bit window, blocks of 16" in found["rules"]) == (arch == "sm_120a")


@needs_nvrtc
@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (kernel_faults.NoBarriers, "PTX line"),
        (kernel_faults.SwappedRows, "times its bound"),
        (kernel_faults.MissingBlock, "it left elements unwritten"),
    ],
)
def test_a_fault_of_a_kernel_is_a_failed_case(fault: type, told: str) -> None:
    verdict = judge("a", "x", Reply("ok", examined(fault, case="group-1")), 1.0, Baselines())
    assert (verdict.status, verdict.breaks_bound) == ("fail", True)
    sentence = str(verdict.sentence)
    assert told in sentence and sentence.endswith(".") and "\n" not in sentence


@needs_nvrtc
@pytest.mark.parametrize(
    ("fault", "named"),
    [(kernel_faults.ForeignInstruction, "frobnicate"), (kernel_faults.InClusters, r"a cluster of \(2, 1, 1\)")],
)
def test_what_is_not_known_is_unsupported_and_fails_where_there_is_a_baseline(fault: type, named: str) -> None:
    with pytest.raises(Unsupported, match=f"the emulator does not execute all that it launches: .*{named}") as caught:
        examined(fault)
    known = Baselines({"a": {"x": dict.fromkeys(METRICS, 1e-3)}})
    refused = judge("a", "x", Reply("unsupported", sentence=str(caught.value)), 1.0, known)
    other = judge("a", "y", Reply("ok", measured()), 1.0, known)
    assert [verdict.holds for verdict in newly_refused([refused, other], known)] == [False, True]


@needs_nvrtc
@pytest.mark.parametrize("cause", [InternalError, TooLong, BadLaunch])
def test_what_the_emulator_could_not_execute_though_it_knows_it_is_no_refusal(
    cause: type[NotExecuted], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gives_up(*given: object, **options: object) -> None:
        raise cause("it gave up")

    monkeypatch.setattr("impls.numerics.emulation.run_emulated", gives_up)
    with pytest.raises(cause, match="it gave up"):
        examined(kernel_faults.SwappedRows)


@needs_nvrtc
def test_what_lists_no_launch_when_bound_is_refused() -> None:
    with pytest.raises(Unsupported, match="no kernels that it lists"):
        examined(kernel_faults.NoKernels)


@pytest.mark.parametrize(
    ("impl", "case", "sentence"),
    [
        ("torch-reference-bf16", "decode", "torch-reference-bf16 lists no launches of kernels, so there is no PTX to emulate."),
        ("sdpa-flash", "decode", "sdpa-flash lists no launches"),
        ("hybrid-bf16", "decode", "hybrid-bf16 converts the cache by kernels that are no part of a call"),
        ("a4q", "paged-far", "paged-far reserves gigabytes"),
        ("a4q", "long-decode", "long-decode is a case for GPUs"),
    ],
)
def test_what_cannot_be_emulated_is_refused_before_anything_is_made(impl: str, case: str, sentence: str) -> None:
    with pytest.raises(Unsupported, match=sentence):
        examine({"impl": impl, "case": case, "on": "emulated:sm_120a"})


def test_command_that_could_emulate_nothing_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["gate", "--on", "emulated:sm_80", "--impl", "torch-reference-bf16", "--case", "decode"]
    assert nvfp4bench.main(arguments) == 2
    assert "nothing was run: torch-reference-bf16 lists no launches of kernels" in capsys.readouterr().err


def test_only_the_longest_case_runs_in_one_order() -> None:
    alone = [name for name, case in CASES.items() if not case.gpu_only and len(schedules(case)) == 1]
    assert alone == ["same-sign-v-131072"]


def test_a_worker_compiles_triton_and_keeps_to_one_core() -> None:
    environment = _environment("emulated:sm_80")
    assert environment["TRITON_INTERPRET"] == "0"
    assert environment.keys() == _environment("cpu").keys()


def verdict_of(case: str, orders: list[str], rules: dict[str, str]) -> Any:
    return judge("a", case, Reply("ok", {**measured(), "schedules": orders, "rules": rules}), 1.0, Baselines())


def test_report_says_which_rules_are_only_documented_and_which_orders_were_left_out() -> None:
    verdicts = [
        verdict_of("x", ["forward", "reverse", "seeded"], {"prmt": "documented only", "shift": "silicon"}),
        verdict_of("y", ["forward"], {"ex2": "documented only"}),
    ]
    told = report.summary(verdicts, holds=True, named=()).splitlines()[-1]
    assert told == "PTX executed, SASS not; rests on 2 of 3 rules that are only documented: ex2; prmt."
    x, y = report.table(verdicts).splitlines()[1:]
    assert "schedule" not in x and y.endswith("in the schedule forward alone")
    data = json.loads(report.as_json(verdicts, on="emulated:sm_80", arch="sm_80", baseline="b", holds=True, named=()))
    assert data["rules"] == {"ex2": "documented only", "prmt": "documented only", "shift": "silicon"}
    assert [cell["schedules"] for cell in data["cells"]] == [["forward", "reverse", "seeded"], ["forward"]]
    assert data["cells"][1]["rules"] == {"ex2": "documented only"}


def test_report_of_no_emulator_claims_nothing_about_one() -> None:
    verdicts = [judge("a", "x", Reply("ok", measured()), 1.0, Baselines())]
    assert "PTX" not in report.summary(verdicts, holds=True, named=())
    assert "schedule" not in report.table(verdicts)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_120a"])
def test_baselines_are_of_what_can_be_emulated(arch: str) -> None:
    known = read(default_path(f"emulated:{arch}", arch))
    assert known.toolchain.keys() == {"torch", "triton", "numpy", "nvrtc"}
    assert {"decode", "window-decode", "paged-hnd-1"} <= known.entries["a4q"].keys()
    assert all(cases.keys() <= CASES.keys() - {"paged-far"} for cases in known.entries.values())


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("cpu", OTHER_CPUS)
def test_the_bits_do_not_depend_on_the_cpu(cpu: str) -> None:
    """Baselines are made on one machine and hold on all: no sum is left to a library that orders it as it likes."""
    needs_one_of, environment = OTHER_CPUS[cpu]
    here = torch.backends.cpu.get_cpu_capability()
    if needs_one_of and here not in needs_one_of:
        pytest.skip(f"needs a CPU with {' or '.join(sorted(needs_one_of))}; this one has {here}.")
    requests = [
        {"impl": "a4q", "case": case, "arch": arch} for arch in ("sm_80", "sm_120a") for case in ("prefill", "empty-splits")
    ]
    requests.append({"impl": "triton", "case": "prefill", "arch": "sm_80"})
    found = []
    for changes in ({}, environment):
        with Worker("tests.numerics.children:emulated_bits", env={**_environment("emulated:sm_80"), **changes}) as worker:
            found.append([worker.call(request, timeout=60) for request in requests])
    assert all(reply.status == "ok" for reply in found[0]), found[0]
    assert found[1] == found[0]


@needs_nvrtc
@pytest.mark.slow
def test_command_fails_on_a_fault_and_writes_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gate.json"
    both = f"{source(kernel_faults.Unedited)},{source(kernel_faults.NoBarriers)}"
    arguments = ["gate", "--on", "emulated:sm_120", "--impl", both, "--case", SMALL, "--json", str(file)]
    assert nvfp4bench.main(arguments) == 1
    data = json.loads(file.read_text())
    assert (data["on"], data["arch"], data["baseline"]) == ("emulated:sm_120a", "sm_120a", "emulated-sm_120a.json")
    assert [cell["status"] for cell in data["cells"]] == ["pass", "fail"]
    assert "PTX executed, SASS not" in capsys.readouterr().out
