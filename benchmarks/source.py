"""What was measured, as one hash: it stays the same when commits are squashed or the tree is copied without git.

Counted is every file below `impls/` and `benchmarks/`, by its path and its bytes. Not counted are `__pycache__` folders,
`*.pyc`, whatever has a name that begins with a dot (editors and operating systems leave such files), and what nothing
that is measured reads: documents (`*.md`) and the gate's baselines, which are made by the commit that they then belong to.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout, or the site-packages folder of an installed copy."""
COUNTED = ("impls", "benchmarks")
BASELINES = "impls/numerics/baselines/"


def source_hash(root: Path = ROOT) -> str:
    """SHA-256 over the lines "<path> <SHA-256 of its bytes>", sorted by path; paths are relative and use "/"."""
    lines = (f"{path} {hashlib.sha256((root / path).read_bytes()).hexdigest()}\n" for path in counted_files(root))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def counted_files(root: Path = ROOT) -> list[str]:
    """The relative paths that count, sorted."""
    found = []
    for package in COUNTED:
        for folder, subfolders, files in os.walk(root / package):
            subfolders[:] = [name for name in subfolders if name != "__pycache__" and not name.startswith(".")]
            found += [
                (Path(folder) / name).relative_to(root).as_posix()
                for name in files
                if not name.startswith(".") and not name.endswith((".pyc", ".md"))
            ]
    return sorted(path for path in found if not path.startswith(BASELINES))
