"""`nvfp4bench confirm` where something fails, on a GPU that gives the emulator's own bits: there is none here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from impls.arch import find
from impls.cuda.confirm import command, tiles, vectors
from impls.cuda.confirm.execute import in_emulator
from impls.cuda.confirm.probes import PROBES
from impls.cuda.emulator import rules
from impls.cuda.emulator.errors import InternalError
from nvfp4bench import main
from tests.cuda.needs import needs_nvrtc

GPU, OTHER = "Some GPU (sm_90a)", "Other GPU (sm_90a)"
pytestmark = needs_nvrtc


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = next(probe for probe in PROBES if probe.name == "narrow")
    monkeypatch.setattr(command, "PROBES", (narrow,))
    monkeypatch.setattr(command, "_place", lambda on: (find("sm_90a"), GPU))
    monkeypatch.setattr(command, "on_gpu", in_emulator)
    monkeypatch.setattr(tiles, "tiles", lambda arch, on_gpu: [])


def test_vectors_bear_the_name_of_their_gpu(tmp_path: Path) -> None:
    assert main(["confirm", "--record", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"silicon.json", "some-gpu-sm_90a.npz"}
    assert vectors.read(tmp_path / "some-gpu-sm_90a.npz")[0] == GPU


def test_a_second_gpu_takes_nothing_from_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["confirm", "--record", str(tmp_path)]) == 0
    monkeypatch.setattr(command, "_place", lambda on: (find("sm_90a"), OTHER))
    assert main(["confirm", "--record", str(tmp_path)]) == 0
    assert {GPU, OTHER} <= set(json.loads((tmp_path / "silicon.json").read_text())["cvt narrow"])
    assert len(list(tmp_path.glob("*.npz"))) == 2


def test_vectors_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies there stays as it is until the new ones are."""
    seen = []
    monkeypatch.setattr(vectors, "replace_file", lambda path, content: seen.append((path.name, len(content) > 0)))
    assert main(["confirm", "--record", str(tmp_path)]) == 0
    assert seen == [("some-gpu-sm_90a.npz", True), ("silicon.json", True)]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--json", "{}/silicon.json", "--record", "{}"], "--json and --record both write"),
        (["--json", "{}/some-gpu-sm_90a.npz", "--record", "{}"], "--json and --record both write"),
        (["--json", "{}/" + 300 * "a"], "File name too long"),
    ],
)
def test_a_place_that_will_not_do_is_told_before_the_work(
    options: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "on_gpu", lambda program, inputs: pytest.fail("nothing is to be run"))
    assert main(["confirm", *(option.format(tmp_path) for option in options)]) == 2
    assert sentence in capsys.readouterr().err


def test_a_folder_in_the_place_of_vectors_is_told_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some-gpu-sm_90a.npz").mkdir()
    monkeypatch.setattr(command, "on_gpu", lambda program, inputs: pytest.fail("nothing is to be run"))
    assert main(["confirm", "--record", str(tmp_path)]) == 2


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: launch failed\nlog"), InternalError("it gave up.")])
def test_a_probe_that_cannot_be_run_is_no_contradiction(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(program: object, inputs: object) -> None:
        raise error

    monkeypatch.setattr(command, "on_gpu", fails)
    assert main(["confirm"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("nvfp4bench confirm: the probe 'narrow' cannot be run: ") and told.count("\n") == 1


def test_tiles_that_cannot_be_run_are_no_contradiction(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(arch: object, on_gpu: bool) -> None:
        raise RuntimeError("CUDA error: out of memory\nlog")

    monkeypatch.setattr(tiles, "tiles", fails)
    assert main(["confirm"]) == 2
    assert capsys.readouterr().err == "nvfp4bench confirm: the tiles of a4q cannot be run: CUDA error: out of memory\n"


@pytest.mark.parametrize("text", ["", "[]", "null", '{"a": 1}', '{"a": "GPU"}', '{"a": [null]}', "\0"])
def test_a_damaged_silicon_json_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "silicon.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"silicon\.json .* install it anew"):
        rules.confirmed_in(path)
