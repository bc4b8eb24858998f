"""The gate's verdicts, reports and exit statuses."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock
from xml.etree import ElementTree

import pytest
import torch

import nvfp4bench
from impls.arch import CPU
from impls.contract import Unsupported
from impls.numerics import command, measure, report
from impls.numerics.baselines import METRICS, Baselines, default_path, read
from impls.numerics.cases import CASES
from impls.numerics.data import build
from impls.numerics.gate import Chosen, Verdict, judge, newly_refused
from impls.numerics.gate import run as run_gate
from impls.numerics.measure import plan_case
from impls.peers.refusals import NO_GPU
from impls.registry import BUILT_IN, implementation
from impls.worker import ROOT, Reply
from tests.numerics import faults

FAULTS = Path(faults.__file__)
RIGHT = f"{FAULTS}:Unfaulted"


def measured(*, verdict: str = "pass", **numerics: float) -> dict[str, Any]:
    """What `examine` answers, with all errors 0.1 and all bounds 1 unless given."""
    errors = {"error_over_bound": 0.1, "magnitude_ratio": 1.0, "cosine": 1.0, **dict.fromkeys(METRICS, 0.1), **numerics}
    return {
        "numerics": {**errors, "quantisation_relative_l2": None, "nan_count": 0, "inf_count": 0, "verdict": verdict},
        "over_bound": {"out": 0.1, "lse": 0.1},
        "bounds": dict.fromkeys(METRICS, 1.0),
        "positions": [],
        "plan": {},
        "schedules": [],
        "rules": {},
    }


def baselines(value: float) -> Baselines:
    return Baselines({"a": {"x": dict.fromkeys(METRICS, value)}})


def test_answer_within_bound_and_baseline_passes() -> None:
    verdict = judge("a", "x", Reply("ok", measured()), 1.0, baselines(0.1))
    assert (verdict.status, verdict.sentence, verdict.baseline_ratio) == ("pass", None, 1.0)


def test_answer_without_a_baseline_passes_and_is_told() -> None:
    verdict = judge("a", "y", Reply("ok", measured()), 1.0, baselines(0.1))
    assert verdict.status == "pass"
    assert "1 had no baseline" in report.summary([verdict], holds=True, named=())
    assert "none" in report.table([verdict])


def test_answer_worse_than_its_baseline_fails_but_breaks_no_bound() -> None:
    verdict = judge("a", "x", Reply("ok", measured(relative_l2=0.2)), 1.0, baselines(0.1))
    assert verdict.status == "fail"
    assert "relative_l2 is 0.2 where the baseline is 0.1" in str(verdict.sentence)
    assert not verdict.breaks_bound


def test_answer_over_its_bound_fails_whatever_the_baseline() -> None:
    verdict = judge("a", "x", Reply("ok", measured(verdict="out is wrong.")), 1.0, baselines(9.0))
    assert (verdict.status, verdict.sentence, verdict.breaks_bound) == ("fail", "out is wrong.", True)


@pytest.mark.parametrize("status", ["oom", "timeout", "failed", "crashed"])
def test_no_answer_fails_with_its_sentence(status: Any) -> None:
    verdict = judge("a", "x", Reply(status, sentence="why."), 1.0, Baselines())
    assert (verdict.status, verdict.sentence, verdict.holds, verdict.breaks_bound) == (status, "why.", False, True)


def test_unsupported_holds() -> None:
    assert judge("a", "x", Reply("unsupported", sentence="why."), 1.0, Baselines()).holds


def test_case_that_was_measured_before_and_is_now_refused_fails() -> None:
    known = Baselines(entries={"one": {"window": dict.fromkeys(METRICS, 1e-3)}})
    refused, ran = (Verdict("one", case, status, 0.1, None) for case, status in (("window", "unsupported"), ("decode", "pass")))
    window, decode = newly_refused([replace(refused, sentence="one takes no window."), ran], known)
    assert not window.holds
    assert window.sentence == "it refuses a case it has a baseline for: one takes no window."
    assert decode is ran
    assert newly_refused([refused, ran], Baselines())[0].holds  # never measured: it may say no
    assert newly_refused([refused], known)[0].holds  # refused as a whole: something is missing on this machine


def test_json_has_every_cell_and_no_infinity() -> None:
    broken = measured(verdict="out and lse hold 1 NaN.", relative_l2=math.inf, cosine=math.nan)
    verdicts = [
        judge("a", "x", Reply("ok", broken), 1.0, Baselines()),
        judge("a", "y", Reply("crashed", sentence="died."), 1.0, Baselines()),
    ]
    text = report.as_json(verdicts, on="cpu", arch="cpu", baseline="cpu.json", holds=False, named=())
    data = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert [cell["case"] for cell in data["cells"]] == ["x", "y"]
    assert data["cells"][0]["numerics"]["relative_l2"] == "inf"
    assert data["cells"][0].keys() == data["cells"][1].keys()
    assert data["cells"][1]["numerics"] is None


def test_junit_counts_and_survives_any_sentence() -> None:
    verdicts = [
        judge("a", "x", Reply("ok", measured()), 1.0, Baselines()),
        judge("a", "y", Reply("failed", sentence='\x00<"&\ud800'), 1.0, Baselines()),
        judge("a", "z", Reply("unsupported", sentence="no."), 1.0, Baselines()),
    ]
    suite = ElementTree.fromstring(report.as_junit(verdicts, named=()).encode())[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [[child.tag for child in test] for test in suite] == [[], ["failure"], ["skipped"]]


def test_table_shows_an_implementation_that_cannot_run_at_all_once() -> None:
    verdicts = [judge("a", case, Reply("unsupported", sentence="no GPU."), 0.1, Baselines()) for case in ("x", "y")]
    assert report.table(verdicts).count("no GPU.") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--on", "tpu"), "--on is gpu, cpu or emulated:ARCH, not 'tpu'"),
        (("--on", "emulated"), "--on emulated:ARCH wants one of sm_80, "),
        (("--on", "emulated:"), "--on emulated:ARCH wants one of sm_80, "),
        (("--on", "emulated:cpu"), "sm_121a, not 'cpu'."),
        (("--on", "emulated:sm_70"), "sm_121a, not 'sm_70'."),
        (("--on", "cpu", "--impl", "nobody"), "unknown implementation 'nobody'"),
        (("--on", "cpu", "--impl", ","), "--impl names no implementation"),
        (("--on", "cpu", "--impl", "nowhere.py:Nobody"), "there is no file nowhere.py"),
        (("--on", "cpu", "--impl", f"{FAULTS}:Nobody"), "there is no Nobody in it"),
        (("--on", "cpu", "--case", "nothing-*"), "no case matches 'nothing-*'"),
        (("--on", "cpu", "--timeout", "0"), "--timeout must be a positive number of seconds"),
        (("--on", "cpu", "--json", "/nowhere/gate.json"), "cannot write /nowhere/gate.json"),
        (("--on", "cpu", "--junit", "/"), "cannot write /"),
        (("--on", "cpu", "--json", "report", "--junit", "./report"), "--json and --junit are both report; name two files."),
        (("--on", "cpu", "--baseline", "/nowhere.json"), "there are no baselines /nowhere.json"),
        (("--on", "cpu", "--baseline", "/nowhere/a.json", "--update"), "cannot write /nowhere/a.json"),
    ],
)
def test_bad_usage_is_one_sentence_and_status_2(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert nvfp4bench.main(["gate", *arguments]) == 2
    told = capsys.readouterr().err.strip()
    assert sentence in told
    assert "\n" not in told


@pytest.mark.parametrize("option", ["--json", "--junit"])
@pytest.mark.parametrize("update", [(), ("--update",)])
def test_a_report_does_not_take_the_place_of_the_baselines(
    option: str, update: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, hard, soft = (tmp_path / name for name in ("cpu.json", "hard.json", "soft.json"))
    baselines(0.1).write(file)
    before = file.read_bytes()
    hard.hardlink_to(file)
    soft.symlink_to(file)
    monkeypatch.setattr(command, "default_path", lambda on, arch: file)
    for given in ((), ("--baseline", str(file))):
        for report_file in (file, hard, soft):
            arguments = ["gate", "--on", "cpu", "--impl", "torch-reference-bf16", "--case", "decode", *given, *update]
            assert nvfp4bench.main([*arguments, option, str(report_file)]) == 2
            told = capsys.readouterr().err
            assert f"{option} {report_file} is the file of the baselines, which it would destroy" in told
    assert file.read_bytes() == before


def test_an_update_keeps_what_another_made_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "cpu.json"
    read_at_the_start = baselines(0.1)
    Baselines({"b": {"x": dict.fromkeys(METRICS, 0.3)}}).write(file)
    command._update(read_at_the_start, [judge("a", "y", Reply("ok", measured()), 1.0, Baselines())], file, "cpu")
    assert {name: list(cases) for name, cases in read(file).entries.items()} == {"a": ["y"], "b": ["x"]}


def test_updates_that_end_together_keep_each_others_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits, once it has read, for the other to have read too, which a lock keeps from happening."""
    file, both_have_read = tmp_path / "cpu.json", threading.Barrier(2)
    Baselines().write(file)

    def read_and_wait(path: Path) -> Baselines:
        found = read(path)
        with contextlib.suppress(threading.BrokenBarrierError):
            both_have_read.wait(timeout=1)
        return found

    monkeypatch.setattr(command, "read", read_and_wait)
    verdicts = [judge(name, "x", Reply("ok", measured()), 1.0, Baselines()) for name in ("a", "b")]
    updates = [threading.Thread(target=command._update, args=(Baselines(), [each], file, "cpu")) for each in verdicts]
    for update in updates:
        update.start()
    for update in updates:
        update.join(timeout=60)
    assert {name: list(cases) for name, cases in read(file).entries.items()} == {"a": ["x"], "b": ["x"]}


def test_gpu_is_asked_for_by_name_where_there_is_none(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("impls.host.gpu_here", lambda: (None, "torch sees no CUDA GPU here."))
    assert nvfp4bench.main(["gate"]) == 2
    assert "Say --on cpu" in capsys.readouterr().err


def test_gate_that_ran_nothing_is_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["gate", "--on", "cpu", "--impl", f"{FAULTS}:CannotBePlanned", "--case", "decode"]
    assert nvfp4bench.main(arguments) == 2
    assert "nothing was run: CannotBePlanned needs hardware that is not here." in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("option", ["--json", "--junit"])
def test_report_on_a_full_disk_is_one_sentence_and_status_2(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert nvfp4bench.main(["gate", "--on", "cpu", "--impl", RIGHT, "--case", "decode", option, "/dev/full"]) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    wanted = "nvfp4bench gate: cannot write /dev/full: No space left on device; what it says there is not whole."
    assert told == wanted


def test_named_implementation_that_cannot_run_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = f"{RIGHT},{FAULTS}:CannotBePlanned"
    file = tmp_path / "gate.json"
    assert nvfp4bench.main(["gate", "--on", "cpu", "--impl", both, "--case", "decode", "--json", str(file)]) == 1
    assert json.loads(file.read_text())["refused"] == {"CannotBePlanned": "CannotBePlanned needs hardware that is not here."}
    assert "CannotBePlanned was asked for and cannot run here" in capsys.readouterr().out


@pytest.mark.slow
def test_update_writes_what_holds_refuses_what_breaks_a_bound_and_then_catches_a_regression(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cpu.json"
    both = f"{RIGHT},{FAULTS}:ZeroOutput"
    common = ["gate", "--on", "cpu", "--case", "decode", "--baseline", str(file)]
    assert nvfp4bench.main([*common, "--impl", both, "--update"]) == 1
    told = capsys.readouterr().out
    assert "baseline of Unfaulted/decode: relative_l2 none ->" in told
    assert "baseline of ZeroOutput/decode kept" in told
    assert set(read(file).entries) == {"Unfaulted"}

    assert nvfp4bench.main([*common, "--impl", RIGHT]) == 0
    data = json.loads(file.read_text())
    data["entries"]["Unfaulted"]["decode"]["relative_l2"] = 1e-5  # as if it had been far better
    file.write_text(json.dumps(data))
    assert nvfp4bench.main([*common, "--impl", RIGHT]) == 1
    assert "where the baseline is 1e-05" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_interrupt_ends_the_command_and_its_workers() -> None:
    command = [sys.executable, str(ROOT / "nvfp4bench.py"), "gate", "--on", "cpu", "--impl", f"{FAULTS}:Hangs"]
    child = subprocess.Popen([*command, "--case", "paged-hnd-1"], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not _workers(child.pid):
        time.sleep(0.1)
    workers = _workers(child.pid)
    assert workers
    child.send_signal(signal.SIGINT)
    _, told = child.communicate(timeout=30)
    assert child.returncode == 130
    assert told.strip().splitlines()[-1] == "nvfp4bench gate: interrupted."
    time.sleep(0.5)
    assert not any(_alive(pid) for pid in workers)


def _workers(pid: int) -> list[int]:
    """Children of a process, of all its threads, that serve examine."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            if b"impls.numerics.measure:examine" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


# What this CPU has to have, as torch names it, and the environment in which libraries take it for the other one.
OTHER_CPUS: dict[str, tuple[set[str], Mapping[str, str]]] = {
    "avx2-haswell": (
        {"AVX2", "AVX512"},
        {
            "ATEN_CPU_CAPABILITY": "avx2",
            "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
            "OPENBLAS_CORETYPE": "Haswell",
        },
    ),
    "no-simd-sandybridge": (
        {"AVX2", "AVX512"},
        {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Sandybridge", "MKL_CBWR": "COMPATIBLE"},
    ),
    "skylake": ({"AVX512"}, {"OPENBLAS_CORETYPE": "SkylakeX"}),
    "2-threads": (set(), {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}),
}


@pytest.mark.slow
@pytest.mark.parametrize("cpu", OTHER_CPUS)
def test_one_baseline_holds_on_every_cpu(cpu: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_one_of, environment = OTHER_CPUS[cpu]
    here = torch.backends.cpu.get_cpu_capability()
    if needs_one_of and here not in needs_one_of:  # a library told so would run instructions that this CPU does not have
        pytest.skip(f"needs a CPU with {' or '.join(sorted(needs_one_of))}; this one has {here}.")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)  # for the workers, which are started with this environment
    short = [name for name, case in CASES.items() if case.problem.kv_len < 100_000]  # the longest takes a minute interpreted
    quick = [name for name in short if CASES[name].quick]
    parts = ["triton-native", "dual-chunk:triton"]  # which differ from triton in the scores, or in how ranges are merged
    others = [name for name in BUILT_IN if name not in parts]
    verdicts = [
        verdict
        for impls, cases in ((others, short), (parts, quick))
        for verdict in run_gate(
            [Chosen(name, name) for name in impls],
            cases,
            on="cpu",
            baselines=read(default_path("cpu", "cpu")),
            timeout=300,
            report=lambda verdict, number, count: None,
        )
    ]
    assert {verdict.case: verdict.sentence for verdict in verdicts if not verdict.holds} == {}
    assert all(verdict.baseline is not None for verdict in verdicts if verdict.status == "pass")


def test_every_built_in_case_that_runs_has_a_baseline() -> None:
    entries = read(default_path("cpu", "cpu")).entries
    refusals = {name: implementation(name).why_not(CASES["decode"].problem, CPU) or "" for name in BUILT_IN}
    assert set(entries) == {
        name for name, said in refusals.items() if not said.endswith(("there is no GPU.", "there is none."))
    }
    assert set(entries["triton"]) == {name for name, case in CASES.items() if not case.gpu_only}


def test_progress_tells_a_refusal_once(capsys: pytest.CaptureFixture[str]) -> None:
    told = command._Progress()
    for number, (name, sentence) in enumerate(
        [("one", "no GPU."), ("one", "no GPU."), ("two", "no GPU."), ("one", "no pages.")]
    ):
        told(Verdict(name, f"case-{number}", "unsupported", 0.1, sentence), number, 4)
    told(Verdict("one", "decode", "pass", 0.1), 4, 4)
    assert [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "one/case-0 unsupported (0.1 s): no GPU.",
        "two/case-2 unsupported (0.1 s): no GPU.",
        "one/case-3 unsupported (0.1 s): no pages.",
        "one/decode pass (0.1 s)",
    ]


def test_verdict_of_a_skipped_case_is_a_failure() -> None:
    assert not Verdict("a", "x", "skipped", 0.0, "given up.").holds


def test_plans_of_cases_are_made_for_an_architecture_that_is_not_here() -> None:
    plan_case({"impl": RIGHT, "case": "decode", "arch": "sm_90a"})
    with pytest.raises(Unsupported, match=NO_GPU):
        plan_case({"impl": "sdpa-flash", "case": "v-tokens", "arch": "cpu"})


@pytest.mark.parametrize("case", ["strided", "paged-fused", "decode"])
def test_plans_of_cases_with_gaps_see_how_their_tensors_lie(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    """What is not packed has kernels of its own, which would be compiled one by one while the cases run."""
    chosen = MagicMock(**{"why_not.return_value": None})
    monkeypatch.setattr(measure, "implementation", lambda _: chosen)
    plan_case({"impl": "noting", "case": case, "arch": "sm_90a"})
    packed = chosen.plan.return_value.pack.call_args_list
    if case == "decode":
        assert not packed
        return
    ((k4, v4),) = (call.args for call in packed)
    real = build(CASES[case]).inputs
    for t, wanted in ((k4, real.k4), (v4, real.v4)):
        assert t.codes.is_meta
        assert (t.codes.stride(), t.scales.stride()) == (wanted.codes.stride(), wanted.scales.stride())
    bound = chosen.plan.return_value.bind.call_args
    assert bound.args[0].stride() == real.q.stride()
    assert (bound.kwargs["block_table"] is None) == (real.block_table is None)
