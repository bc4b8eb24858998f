from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from dashboards.publish import publish
from impls.errors import CommandError

FIRST = {"index.html": b"first", "data/old.js": b"old", "data/x.js": b"1"}
SECOND = {"index.html": b"second", "data/x.js": b"2"}


def content(out: Path) -> dict[str, bytes]:
    return {
        path.relative_to(out).as_posix(): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.name != "pages.json"
    }


def test_pages_are_replaced_and_those_no_longer_made_removed(tmp_path: Path) -> None:
    publish(FIRST, tmp_path)
    publish(SECOND, tmp_path)
    assert content(tmp_path) == SECOND


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"mine")
    publish(FIRST, tmp_path)
    publish(SECOND, tmp_path)
    assert (tmp_path / "notes.txt").read_bytes() == b"mine"


def test_a_file_of_others_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_bytes(b"mine")
    with pytest.raises(CommandError, match=r"index\.html is there and is none of these pages"):
        publish(FIRST, tmp_path)
    assert content(tmp_path) == {"index.html": b"mine"}


def test_a_full_disk_leaves_the_previous_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(FIRST, tmp_path)
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "x.js":
            raise OSError(28, "No space left on device")
        return write(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(CommandError, match="No space left on device"):
        publish(SECOND, tmp_path)
    monkeypatch.undo()
    published = content(tmp_path)
    assert {name: published[name] for name in FIRST} == FIRST


@pytest.mark.parametrize("renames", range(4))  # the manifest, a page, its data, the manifest
def test_an_interruption_between_renames_is_made_good_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    publish(FIRST, tmp_path)
    replace, left = Path.replace, [renames]

    def interrupted(path: Path, target: Path) -> Path:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(SECOND, tmp_path)
    monkeypatch.undo()
    assert (tmp_path / "index.html").read_bytes() in (b"first", b"second")
    publish(SECOND, tmp_path)
    assert content(tmp_path) == SECOND


def test_data_is_there_before_the_page_that_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda path, target: order.append(target.name) or replace(path, target))
    publish({"a.html": b"", "data/z.js": b""}, tmp_path)
    assert order.index("z.js") < order.index("a.html")


@pytest.mark.parametrize("name", ["../outside", "/outside", ".", "data/../../outside"])
def test_a_manifest_cannot_name_files_outside(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine")
    out = tmp_path / "out"
    publish(FIRST, out)
    (out / "pages.json").write_text(json.dumps([*FIRST, name.replace("/outside", str(outside)) if name[0] == "/" else name]))
    publish(SECOND, out)
    assert outside.read_bytes() == b"mine"
    assert content(out) == SECOND


@pytest.mark.parametrize("text", ["{", "{}", "[1]", '"index.html"'])
def test_a_manifest_that_is_none_is_said(tmp_path: Path, text: str) -> None:
    publish(FIRST, tmp_path)
    (tmp_path / "pages.json").write_text(text)
    with pytest.raises(CommandError, match=r"pages\.json is not a list of pages"):
        publish(SECOND, tmp_path)


def test_a_file_in_place_of_the_folder_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"mine")
    with pytest.raises(CommandError, match=r"cannot write the pages to .*out: File exists; name another folder"):
        publish(FIRST, tmp_path / "out")


def test_two_builds_at_once_do_not_mix(tmp_path: Path) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        with pytest.raises(CommandError, match="another process is writing pages"):
            publish(FIRST, tmp_path)
    finally:
        os.close(held)
    publish(FIRST, tmp_path)
    assert content(tmp_path) == FIRST
