"""What was compiled before, one file a kernel, named by a hash over everything that decides what a compilation gives.

A file is a SHA-256 over its name and what follows, and that: one that was cut, is damaged, or was stored by another name counts
as absent. Files are replaced whole, so processes may share the folder and may be ended at any moment. Where the folder cannot
be written, that is said once, on stderr, and every process compiles anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from impls.cuda.nvrtc import Outcome
from impls.files import cache_folder, remove_forgotten_drafts, replace_file

LIKE_A_KERNEL = 1 << 16
"""Bytes that must find room, since an empty file fits on a full disk."""
_complained: set[Path] = set()


def default_folder() -> Path:
    """Where compiled kernels are kept."""
    return cache_folder("cuda")


def key(parts: Sequence[str]) -> str:
    """The name of what `parts` decide."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def load(folder: Path, name: str) -> Outcome | None:
    """What is stored as `name`; None if nothing is, or nothing that is whole."""
    try:
        path = _path(folder, name)
        if not path.is_file():  # a device or a pipe may never end
            return None
        digest, _, body = path.read_bytes().partition(b"\n")
        if _digest(name, body) != digest:
            return None
        fields = json.loads(body)
        return Outcome(**{**fields, "cubin": base64.b64decode(fields["cubin"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store(folder: Path, name: str, outcome: Outcome) -> None:
    """Keep `outcome` as `name`, if the folder can be written."""
    body = json.dumps({**asdict(outcome), "cubin": base64.b64encode(outcome.cubin).decode()}).encode()
    try:
        replace_file(_path(folder, name), _digest(name, body) + b"\n" + body)
        remove_forgotten_drafts(folder)
    except OSError as error:
        if folder not in _complained:
            _complained.add(folder)
            print(_not_kept(folder, error), file=sys.stderr)


def why_not_kept(folder: Path) -> str | None:
    """None where `store` can keep kernels, else what it would say: for who compiles in processes whose stderr nobody reads."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(LIKE_A_KERNEL))
            file.flush()
    except OSError as error:
        return _not_kept(folder, error)
    return None


def _not_kept(folder: Path, error: OSError) -> str:
    return f"compiled kernels are not kept for the next call: {folder} cannot be written ({error.strerror})."


def _digest(name: str, body: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + body).hexdigest().encode()


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.kernel"
