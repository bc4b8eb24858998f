"""Verdicts: a bit that differs contradicts its rules, an approximation may differ within its bound, and records come back."""

from __future__ import annotations

import errno
import json
import os
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import nvfp4bench
from impls.arch import find
from impls.cuda.confirm import command, tiles
from impls.cuda.confirm.compare import by_rule, findings
from impls.cuda.confirm.probe import BLOCK, Program, Words
from impls.cuda.confirm.probes import PROBES
from impls.cuda.confirm.vectors import Outdated, read, write, write_confirmed
from impls.cuda.emulator.errors import EmulationError, Unknown
from tests.cuda.needs import needs_nvrtc

ARCH = find("sm_90a")


@cache
def predicted(name: str) -> tuple[Program, Words, Words]:
    program = next(each for each in PROBES if each.name == name).on(ARCH)
    assert program is not None
    inputs = program.probe.given[: 4 * BLOCK]
    return program, inputs, program.predict(inputs)


def column(program: Program, instruction: str) -> slice:
    names = [each.name for each in program.instructions]
    return program.columns()[names.index(instruction)]


def found(name: str, instruction: str, change) -> tuple[dict[str, str], float | None]:
    program, inputs, expected = predicted(name)
    observed = expected.copy()
    observed[:, column(program, instruction)] = change(inputs, observed[:, column(program, instruction)])
    all_of_them = findings(program, inputs, observed, expected)
    mine = next(each for each in all_of_them if each.instruction == instruction)
    return by_rule(all_of_them), mine.largest_error


def test_what_is_equal_is_confirmed():
    rules, _ = found("single", "fma.rn.f32", lambda inputs, outputs: outputs)
    assert set(rules.values()) == {"confirmed"}


def test_one_bit_of_one_thread_contradicts_its_rule_alone():
    def flip(inputs, outputs):
        outputs[7] ^= 1
        return outputs

    rules, _ = found("single", "fma.rn.f32", flip)
    assert rules["fma f32"].startswith("contradicted: fma.rn.f32, thread 7 of inputs")
    assert {rule for rule, verdict in rules.items() if verdict != "confirmed"} == {"fma f32"}


def _ordinary(outputs):
    """Results that have no power of two next to them, where steps differ, nor the end of the range."""
    field, fraction = outputs >> 23 & 0xFF, outputs & 0x7FFFFF
    return (field > 30) & (field < 250) & (fraction < 0x7FFFF0)


@pytest.mark.parametrize(("steps", "verdict"), [(2, "confirmed"), (3, "contradicted")])
def test_an_approximation_may_be_off_by_its_bound(steps, verdict):
    rules, error = found("single", "ex2.approx.f32", lambda inputs, out: np.where(_ordinary(out), out + np.uint32(steps), out))
    assert rules["approximation"].startswith(verdict)
    assert error == steps


def test_a_wrong_infinity_of_an_approximation_is_seen():
    rules, _ = found("single", "ex2.approx.f32", lambda inputs, out: np.where(out == 0x7F800000, np.uint32(0x7F7FFFFF), out))
    assert rules["approximation"].startswith("contradicted")


def test_sines_of_large_numbers_have_no_bound():
    def zero(inputs, outputs):
        x = np.abs(inputs[:, :1].view(np.float32))
        return np.where(np.isfinite(x) & (x > 7), np.uint32(0), outputs)

    rules, _ = found("single", "sin.approx.f32", zero)
    assert rules["approximation"] == "confirmed"


def test_records_come_back(tmp_path):
    program, inputs, expected = predicted("half")
    path = tmp_path / "sm_90a.npz"
    write(path, "Some GPU (sm_90a)", ARCH, {program: (inputs, expected)})
    gpu, (recorded,) = read(path)
    assert gpu == "Some GPU (sm_90a)"
    assert len(recorded.inputs) >= BLOCK
    assert (recorded.inputs == inputs[: len(recorded.inputs)]).all()
    assert (recorded.program.predict(recorded.inputs) == recorded.outputs).all()


def test_records_of_what_is_no_more_are_refused(tmp_path, monkeypatch):
    program, inputs, expected = predicted("half")
    path = tmp_path / "sm_90a.npz"
    write(path, "Some GPU (sm_90a)", ARCH, {program: (inputs, expected)})
    monkeypatch.setattr("impls.cuda.confirm.vectors.PROBES", ())
    with pytest.raises(Outdated, match="half"):
        read(path)


def test_silicon_gains_what_is_confirmed_and_loses_what_is_contradicted(tmp_path, monkeypatch):
    monkeypatch.setattr("impls.cuda.confirm.vectors.confirmed", lambda: {"shift": ("A", "B"), "lop3": ("A",)})
    path = tmp_path / "silicon.json"
    write_confirmed(
        path, "A", {"shift": "confirmed", "prmt": "confirmed", "lop3": "contradicted: ...", "logic": "not on this arch"}
    )
    assert json.loads(path.read_text()) == {"prmt": ["A"], "shift": ["A", "B"]}


@needs_nvrtc
def test_the_command_in_the_emulator(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "PROBES", tuple(each for each in PROBES if each.name in ("lanes", "narrow")))
    monkeypatch.setattr(tiles, "SHAPES", {"decode": (1, 80), "prefill": (16, 16)})
    monkeypatch.setattr(tiles, "HEAD_DIMS", (64,))
    path = tmp_path / "confirmed.json"
    assert nvfp4bench.main(["confirm", "--on", "emulated:sm_90a", "--json", str(path)]) == 0
    document = json.loads(path.read_text())
    assert document["rules"]["shfl"] == "confirmed"
    assert document["rules"]["mma fragments"] == "not on this arch"
    assert "rules confirmed" in capsys.readouterr().out


@needs_nvrtc
def test_the_command_tells_a_contradiction(monkeypatch, capsys):
    monkeypatch.setattr(command, "PROBES", tuple(each for each in PROBES if each.name == "narrow"))
    monkeypatch.setattr(tiles, "SHAPES", {})
    monkeypatch.setattr(command, "in_emulator", lambda program, inputs: program.predict(inputs) ^ np.uint32(1))
    assert nvfp4bench.main(["confirm", "--on", "emulated:sm_90a"]) == 1
    assert "cvt narrow: contradicted" in capsys.readouterr().out


def test_without_a_gpu_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr("impls.host.gpu_here", lambda: (None, "torch sees no CUDA GPU here."))
    assert nvfp4bench.main(["confirm"]) == 2
    assert "no GPU can be used: torch sees no CUDA GPU here." in capsys.readouterr().err


@pytest.mark.parametrize("arch", ["cpu", "sm_90a"])
def test_where_nothing_is_probed_nothing_is_confirmed(arch, monkeypatch, capsys):
    if arch != "cpu":
        monkeypatch.setattr(command, "PROBES", ())
    assert nvfp4bench.main(["confirm", "--on", f"emulated:{arch}"]) == 2
    output, errors = capsys.readouterr()
    assert not output and f"no instruction is probed on {arch}" in errors and errors.count("\n") == 1


@pytest.fixture
def one_probe(monkeypatch):
    """Whose results are right, and no tiles."""
    monkeypatch.setattr(command, "PROBES", tuple(each for each in PROBES if each.name == "narrow"))
    monkeypatch.setattr(command, "in_emulator", lambda program, inputs: program.predict(inputs))
    monkeypatch.setattr(tiles, "SHAPES", {})


def test_tiles_that_could_not_run_are_told_and_not_counted(one_probe, monkeypatch, capsys):
    some = [tiles.Tile("decode d64", 0.0), tiles.Tile("prefill d64", None, why_not="wgmma is not known.")]
    monkeypatch.setattr(tiles, "tiles", lambda arch, on_gpu: some)
    assert nvfp4bench.main(["confirm", "--on", "emulated:sm_90a"]) == 0
    output = capsys.readouterr().out
    assert "ok    a4q decode d64: differs by 0.0e+00\n" in output
    assert "not run  a4q prefill d64: wgmma is not known.\n" in output
    assert output.endswith("1 of 2 tiles run\n")


@pytest.mark.parametrize(("error", "status", "line"), [(Unknown, 0, "not run  a4q"), (EmulationError, 1, "FAIL  a4q")])
def test_a_fault_of_a_tile_is_not_what_the_emulator_cannot_do(one_probe, monkeypatch, capsys, error, status, line):
    def raises(*_, **__):
        raise error("said in\none sentence")

    monkeypatch.setattr(tiles, "SHAPES", {"decode": (1, 80)})
    monkeypatch.setattr(tiles, "HEAD_DIMS", (64,))
    monkeypatch.setattr(tiles, "implementation", lambda name: SimpleNamespace(plan=raises))
    assert nvfp4bench.main(["confirm", "--on", "emulated:sm_90a"]) == status
    assert f"{line} decode d64: said in one sentence.\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "place", "reason"),
    [("--json", ".", "Is a directory"), ("--json", "file/a.json", "Not a directory"), ("--record", "file", "Not a directory")],
)
def test_a_place_that_cannot_be_written_is_told_before_the_work(
    one_probe, monkeypatch, capsys, tmp_path, option, place, reason
):
    monkeypatch.setattr(command, "in_emulator", lambda *_: pytest.fail("it was run"))
    monkeypatch.setattr(command, "_place", lambda on: (ARCH, "Some GPU (sm_90a)"))
    (tmp_path / "file").touch()
    assert nvfp4bench.main(["confirm", option, str(tmp_path / place)]) == 2
    file = tmp_path / place / ("some-gpu-sm_90a.npz" if option == "--record" else "")
    assert f"cannot write {file}: {reason}." in capsys.readouterr().err


def test_the_verdict_replaces_the_last_one_in_one_step(one_probe, monkeypatch, capsys, tmp_path):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "new" / "confirmed.json"
    assert nvfp4bench.main(["confirm", "--on", "emulated:sm_90a", "--json", str(path)]) == 0
    before = path.read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    assert nvfp4bench.main(["confirm", "--on", "emulated:sm_90a", "--json", str(path)]) == 2
    assert f"cannot write {path}: No space left on device." in capsys.readouterr().err
    assert path.read_bytes() == before
