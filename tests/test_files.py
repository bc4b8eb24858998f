"""Files that outlive a process: what is replaced, what is written to as it is, and who waits for whom."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from impls.files import cache_folder, one_at_a_time, replace_file, require_replaceable


@pytest.mark.parametrize(("base", "folder"), [("/c", "/c"), ("", "/h/.cache"), ("here", "/h/.cache"), ("./c", "/h/.cache")])
def test_a_cache_folder_is_the_same_from_everywhere(base, folder, monkeypatch):
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert cache_folder("x") == Path(folder) / "nvfp4bench" / "x"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("x") == Path("/h/.cache/nvfp4bench/x")


def test_links_are_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to("folder/target")
    replace_file(link, b"new")
    assert link.is_symlink() and target.read_bytes() == b"new"
    target.unlink()
    replace_file(link, b"anew")
    assert link.is_symlink() and target.read_bytes() == b"anew"


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_stays_a_pipe(tmp_path, linked):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        require_replaceable(link if linked else pipe)
        replace_file(link if linked else pipe, b"text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode) and sorted(tmp_path.iterdir()) == [link, pipe]


def test_a_device_stays_a_device(tmp_path):
    node = tmp_path / "node"
    try:
        os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(1, 7))  # it is always full
        require_replaceable(node)
    except OSError:
        pytest.skip("only the superuser makes devices, and not in every container")
    with pytest.raises(OSError, match="No space left on device") as caught:
        replace_file(node, b"text")
    assert caught.value.filename == str(node) and stat.S_ISCHR(node.stat().st_mode)


def test_an_error_without_a_number_keeps_its_reason(tmp_path, monkeypatch):
    def torn(descriptor: int) -> None:
        raise OSError("300 requested and 100 written")

    (tmp_path / "kept").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", torn)
    with pytest.raises(OSError) as caught:
        replace_file(tmp_path / "kept", b"new")
    assert caught.value.strerror == "300 requested and 100 written"
    assert (tmp_path / "kept").read_bytes() == b"old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("place", "reason"), [("", "Is a directory"), ("no/file", "No such file"), ("file/a", "Not a directory")]
)
def test_what_cannot_be_written_is_known_before(tmp_path, place, reason):
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as caught:
        require_replaceable(tmp_path / place)
    assert reason in caught.value.strerror and caught.value.filename == str(tmp_path / place)


def test_a_place_that_can_be_written_is_left_as_it_is(tmp_path):
    (tmp_path / "there").write_bytes(b"old")
    for name in ("there", "new"):
        require_replaceable(tmp_path / name)
    assert [each.name for each in tmp_path.iterdir()] == ["there"]


def test_a_lock_leaves_nothing_and_no_folder_is_no_error(tmp_path):
    with one_at_a_time(tmp_path / "file"):
        assert list(tmp_path.iterdir()) == []
    with one_at_a_time(Path(tmp_path / "no" / "file")):
        pass
