"""Files that outlive a process: where they are kept between calls, and how one is replaced so that nobody sees half of it."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # no such locks on this system
    fcntl = None  # type: ignore[assignment]

DRAFT = ".new-"
FORGOTTEN_SECONDS = 3600.0
"""A draft older than this was left by a process that was ended while it wrote."""


def cache_folder(name: str) -> Path:
    """$XDG_CACHE_HOME/nvfp4bench/`name`, in ~/.cache where that is not set or, as the standard says, not absolute."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "nvfp4bench" / name


def replace_file(path: Path, content: bytes | memoryview) -> None:
    """Put `content` at `path` in one step: whoever reads it meanwhile, or after a kill or a crash, sees the old or the new.

    Links are followed. What is no regular file, such as a device or a pipe, is written to and stays what it is.
    Raises OSError that names `path` where it cannot be written; then what was there is there still, and no draft is left.
    """
    try:
        if _is_special(path):
            with os.fdopen(os.open(path, os.O_WRONLY), "wb") as file:
                file.write(content)
        else:
            _replace_regular(Path(os.path.realpath(path)), content)
    except OSError as error:  # that of a full disk names no file, and others the draft
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def require_replaceable(path: Path) -> None:
    """Raises the OSError, which names `path`, that `replace_file` would end with, as far as that can be known before."""
    if _is_special(path):
        number = errno.EISDIR if path.is_dir() else 0 if os.access(path, os.W_OK) else errno.EACCES
        if number:
            raise OSError(number, os.strerror(number), str(path))
        return
    try:
        with contextlib.suppress(FileNotFoundError):
            path.lstat()  # a name may be too long
        with tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent):
            pass
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


@contextlib.contextmanager
def one_at_a_time(path: Path) -> Iterator[None]:
    """Other processes wait here while one reads `path` and replaces it, where the system has such locks.

    The lock is the folder's: a file is replaced by another, which a lock on it would not hold, and nothing is left behind.
    """
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # no folder yet, or a file system without locks
                folder = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY)
                stack.callback(os.close, folder)
                fcntl.flock(folder, fcntl.LOCK_EX)
        yield


def remove_forgotten_drafts(folder: Path) -> None:
    """Remove what processes left in `folder` that were ended in the middle of `replace_file`."""
    for draft in folder.glob(f"{DRAFT}*"):
        with contextlib.suppress(OSError):  # another process may be at it too
            if time.time() - draft.stat().st_mtime > FORGOTTEN_SECONDS:
                draft.unlink()


def _is_special(path: Path) -> bool:
    """Whether `path` leads to something that is no regular file."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:  # nothing is there, or what is wrong shows when it is written
        return False


def _replace_regular(path: Path, content: bytes | memoryview) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f"{DRAFT}{secrets.token_hex(8)}"  # nobody else's, and with the permissions of any new file
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
