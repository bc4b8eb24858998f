"""Files that outlive a process: where they are kept between calls, and how one is replaced so that nobody sees half of it."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

DRAFT = ".new-"
FORGOTTEN_SECONDS = 3600.0
"""A draft older than this was left by a process that was ended while it wrote."""


def cache_folder(name: str) -> Path:
    """$XDG_CACHE_HOME/nvfp4bench/`name`, in ~/.cache where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "nvfp4bench" / name


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` at `path` in one step: whoever reads it meanwhile, or after a kill or a crash, sees the old or the new.

    Raises OSError that names `path` where it cannot be written; then what was there is there still, and no draft is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.parent / f"{DRAFT}{secrets.token_hex(8)}"  # nobody else's, and with the permissions of any new file
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        if isinstance(error, OSError):  # that of a full disk names no file, and others the draft
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def remove_forgotten_drafts(folder: Path) -> None:
    """Remove what processes left in `folder` that were ended in the middle of `replace_file`."""
    for draft in folder.glob(f"{DRAFT}*"):
        with contextlib.suppress(OSError):  # another process may be at it too
            if time.time() - draft.stat().st_mtime > FORGOTTEN_SECONDS:
                draft.unlink()
