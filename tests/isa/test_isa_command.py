"""What a user types wrong, or what is missing, is one sentence and exit status 2; never a traceback, never a lost result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import nvfp4bench
from impls.isa import command, result, toolchain
from tests.isa.fake_tools import fake_ptxas

FAMILY = "mma.sync/bf16/*"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The one ptxas that is here is a fake that takes everything; there is no disassembler."""
    path = fake_ptxas(tmp_path)
    monkeypatch.setattr(toolchain, "_candidates", lambda *names: iter([path] if "ptxas" in names else []))
    return path


def test_json_of_two_targets(ptxas: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert nvfp4bench.main(["isa", "--arch", "sm_100a,sm_90a", "--family", FAMILY, "--json"]) == 0
    out, err = capsys.readouterr()
    made = json.loads(out)
    assert made["targets"] == ["sm_100a", "sm_90a"]
    assert set(made["programs"]) == {"mma.sync/bf16/m16n8k8", "mma.sync/bf16/m16n8k16"}
    for program in made["programs"].values():
        for cell in program["cells"].values():
            assert {"accepted", "error", "opcodes"} <= cell.keys()
            assert cell["accepted"] is True
            assert cell["opcodes"] is None
            assert cell["verdict"] == "accepted"
    assert "there is no nvdisasm here" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--arch", "sm_120a,sm_90a"], "ptxas 13.0.88 has no target 'sm_120a'; it has sm_90, sm_90a, sm_100"),
        (["--release", "12.0"], "there is no ptxas of release 12.0 here; found are 13.0.88"),
        (["--release", "/nowhere/ptxas"], "cannot run /nowhere/ptxas"),
        (["--family", "nonesuch"], "no program's id matches 'nonesuch'"),
        (["--jobs", "0"], "--jobs must be at least 1, not 0"),
        (["--update", "--arch", "sm_90"], "--update commits all programs on all targets"),
        (["--diff", "13.0", "13.4", "--release", "13.0"], "--diff names its two releases itself"),
        (["--diff", "13.0", "13.0"], "13.0 and 13.0 are the same, 13.0."),
        (["--diff", "13.0", "12.0"], "no ptxas of release 12.0 here"),
    ],
)
def test_bad_usage_is_a_sentence(ptxas: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str) -> None:
    extra = [] if "--family" in arguments or "--update" in arguments else ["--family", FAMILY]
    assert nvfp4bench.main(["isa", *arguments, *extra]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err


def test_difference_to_an_unknown_release_is_refused_before_the_other_is_probed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "_probe", lambda *_: pytest.fail("it began to probe"))
    assert nvfp4bench.main(["isa", "--diff", "13.0.88", "1.2"]) == 2
    assert "no ptxas of release 1.2 here" in capsys.readouterr().err


def test_no_ptxas_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(toolchain, "_candidates", lambda *names: iter([]))
    assert nvfp4bench.main(["isa"]) == 2
    assert "there is no ptxas here; install one with: pip install" in capsys.readouterr().err


def test_the_committed_results_can_be_compared_without_any_ptxas(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toolchain, "_candidates", lambda *names: iter([]))
    assert nvfp4bench.main(["isa", "--diff", "13.0", "13.4", "--arch", "sm_120a"]) == 0
    out = capsys.readouterr().out
    # NVFP4 with UE8M0 scales at 4X needs PTX 9.1: 13.0 refuses it, 13.4 takes it
    assert "gained mma.sync/mxf4nvf4/m16n8k64/scale_vec::4X/ue8m0/f32 on sm_120a" in out


def test_an_incomplete_probe_is_not_committed(
    ptxas: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(result, "PROBES", tmp_path)
    monkeypatch.setattr("impls.isa.command.groups", dict)
    assert nvfp4bench.main(["isa", "--update"]) == 2
    assert "the result is not committed: there is no nvdisasm here" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.json"))


def test_a_cache_that_cannot_be_written_costs_no_result(
    ptxas: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("a file where the folder would be")
    assert nvfp4bench.main(["isa", "--arch", "sm_90a", "--family", FAMILY]) == 0
    out, err = capsys.readouterr()
    assert "sm_90a: accepted" in out
    assert "results are not kept for the next call" in err
