from __future__ import annotations

import json
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from benchmarks.commands import doctor
from benchmarks.environment import GpuState
from impls.arch import ARCHES, CPU
from impls.registry import implementations
from impls.torch_reference import TorchReference
from nvfp4bench import main

NO_GPU = GpuState(present=False, why_not="there is no NVIDIA driver here.")
H200 = GpuState(present=True, arch=ARCHES["sm_90a"], name="NVIDIA H200", driver="580.95.05", cuda="13.0")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpu(monkeypatch, NO_GPU)


def with_gpu(monkeypatch: pytest.MonkeyPatch, state: GpuState) -> None:
    monkeypatch.setattr(doctor, "gpu", lambda: state)
    monkeypatch.setattr("benchmarks.environment.gpu", lambda: state)


def answers(monkeypatch: pytest.MonkeyPatch, cpu: str | None, interpreted: str | None, gpus: str | None) -> None:
    """Every implementation gives these reasons: asked on a CPU, asked where Triton is interpreted, asked about GPUs."""

    def ask(env: dict[str, str], arches: list[str]) -> dict[str, dict[str, str | None]]:
        on_cpu = interpreted if env[doctor.INTERPRET] == "1" else cpu
        return {name: {arch: on_cpu if arch == "cpu" else gpus for arch in arches} for name in implementations()}

    monkeypatch.setattr(doctor, "_ask", ask)


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    status = main(["doctor", "--json", *arguments])
    return status, json.loads(capsys.readouterr().out)


def test_the_plain_torch_implementation_is_usable_on_any_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    status, found = told(capsys)
    (reference,) = [one for one in found["implementations"] if one["name"] == "torch-reference-bf16"]
    assert status == 0 and reference["here"] == "usable"


def test_every_implementation_answers_for_every_architecture(capsys: pytest.CaptureFixture[str]) -> None:
    _, found = told(capsys)
    assert [one["name"] for one in found["implementations"]] == list(implementations())
    for one in found["implementations"]:
        assert list(one["arches"]) == ["cpu", *ARCHES]


def test_what_only_an_interpreting_process_can_do_is_said_to_be_interpreted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, cpu="Triton must be interpreted here.", interpreted=None, gpus=None)
    status, found = told(capsys)
    assert status == 0 and {one["here"] for one in found["implementations"]} == {"interpreted"}
    assert main(["doctor"]) == 0
    assert "usable, interpreted in a child process (TRITON_INTERPRET=1)" in capsys.readouterr().out


def test_nothing_usable_is_exit_status_1_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers(monkeypatch, cpu="it needs a GPU.", interpreted="it needs a GPU.", gpus=None)
    assert main(["doctor"]) == 1
    assert "it needs a GPU." in capsys.readouterr().out


def test_here_is_the_gpu_where_it_can_be_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with_gpu(monkeypatch, H200)
    answers(monkeypatch, cpu=None, interpreted=None, gpus="this GPU is too old.")
    status, found = told(capsys)
    assert status == 1 and found["machine"] == "nvidia-h200"
    assert {one["here"] for one in found["implementations"]} == {"this GPU is too old."}


def test_a_gpu_that_cannot_be_used_has_its_reason_and_the_cpu_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with_gpu(monkeypatch, GpuState(present=True, why_not="this build of torch has no CUDA support.", name="NVIDIA H200"))
    answers(monkeypatch, cpu=None, interpreted=None, gpus=None)
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "NVIDIA H200: this build of torch has no CUDA support." in said and "(cpu)" in said


def test_the_tables_are_made_from_the_json_alone(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answers(monkeypatch, cpu="not on a CPU.", interpreted="not on a CPU.", gpus="not on this GPU.")
    _, found = told(capsys)
    main(["doctor"])
    said = capsys.readouterr().out
    assert said == "\n".join(doctor._lines(found)) + "\n"
    assert "(1) not on a CPU." in said and "(2) not on this GPU." in said


def test_a_package_below_its_bound_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(doctor, "package_version", lambda name: "2.9.1+cu128" if name == "torch" else None)
    (torch,) = [one for one in doctor.packages() if one["name"] == "torch"]
    assert torch == {"name": "torch", "oldest": "2.11", "group": "runtime", "version": "2.9.1+cu128", "ok": False}
    assert doctor._bound(torch) == ">= 2.11, which is not met"


@pytest.mark.parametrize(
    ("version", "oldest", "ok"),
    [
        ("2.13.0+cpu", "2.11", True),
        ("2.9", "2.11", False),
        ("2.11.0rc1", "2.11", True),
        ("3", "2.11", True),
        ("2.2.0", "2.11", False),
    ],
)
def test_versions_are_compared_as_numbers(version: str, oldest: str, ok: bool) -> None:
    assert (doctor._release(version) >= doctor._release(oldest)) is ok


def test_every_requirement_of_the_project_is_understood() -> None:
    oldest, groups = doctor._requirements()
    assert oldest == "3.11"
    assert all(doctor.REQUIREMENT.fullmatch(line) for lines in groups.values() for line in lines)
    assert {"torch", "triton", "numpy", "asv"} <= {one["name"] for one in doctor.packages()}


def test_extras_of_an_installed_package_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stated = Message()
    stated["Requires-Python"] = ">=3.11"
    for line in (
        "torch>=2.11",
        'triton>=3.6; sys_platform == "linux"',
        'flashinfer-python>=0.7.0; sys_platform == "linux" and extra == "peers"',
        'other>=1; extra == "peers"',
    ):
        stated["Requires-Dist"] = line
    monkeypatch.setattr(doctor, "ROOT", tmp_path)
    monkeypatch.setattr(doctor, "metadata", lambda name: stated)
    assert doctor._requirements()[1] == {
        "runtime": ["torch>=2.11", 'triton>=3.6; sys_platform == "linux"'],
        "peers": ['flashinfer-python>=0.7.0; sys_platform == "linux"', "other>=1"],
    }


def test_missing_torch_is_one_sentence_and_exit_status_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.environment.package_version", lambda name: None)
    assert main(["doctor"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "is not installed for" in said.err


def test_implementations_that_crash_when_asked_are_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "why_nots", None)  # the child has its own copy; the parent must not need it
    monkeypatch.setattr(doctor, "ANSWER_SECONDS", 0)
    assert main(["doctor"]) == 2
    assert "could not be asked what they can do: no answer" in capsys.readouterr().err


def test_asv_learns_the_machine_by_its_results_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".asv-machine.json").write_text(json.dumps({"other": {"machine": "other"}, "version": 1}))
    _, found = told(capsys, "--asv-machine")
    saved = json.loads((tmp_path / ".asv-machine.json").read_text())
    assert saved[found["machine"]] == found["asv_machine"]
    assert saved["other"] == {"machine": "other"}
    assert all(isinstance(value, str) for value in found["asv_machine"].values())  # asv's publish takes nothing else


def test_a_gpus_entry_for_asv_holds_nothing_that_an_update_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with_gpu(monkeypatch, H200)
    answers(monkeypatch, cpu=None, interpreted=None, gpus=None)
    _, found = told(capsys, "--asv-machine")
    assert found["asv_machine"]["machine"] == "nvidia-h200"
    assert not {"580.95.05", "13.0"} & set(found["asv_machine"].values())


def test_a_broken_machine_file_is_said_and_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".asv-machine.json").write_text("{")
    assert main(["doctor", "--asv-machine"]) == 2
    assert "is not a machine file that asv can read" in capsys.readouterr().err
    assert (tmp_path / ".asv-machine.json").read_text() == "{"


@pytest.mark.parametrize(("reason", "told"), [("True", "TypeError: why_not gives one line"), ("1 / 0", "ZeroDivisionError: ")])
def test_an_implementation_that_cannot_be_asked_does_not_hide_the_others(reason, told):
    class Broken(TorchReference):
        name = "broken"

        def why_not(self, problem, arch):
            return eval(reason)

    assert str(doctor._answer(Broken(), CPU)).startswith(f"broken cannot be asked: {told}")
    assert doctor._answer(TorchReference(), CPU) is None
