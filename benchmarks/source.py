"""What was measured, as one hash: it stays the same when commits are squashed or the tree is copied without git.

Counted is every file below `impls/` and `benchmarks/`, by its path and its bytes. Not counted are `__pycache__` folders,
`*.pyc`, whatever has a name that begins with a dot (editors and operating systems leave such files), and what nothing
that is measured reads: documents (`*.md`) and the gate's baselines, which are made by the commit that they then belong to.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout, or the site-packages folder of an installed copy."""
COUNTED = ("impls", "benchmarks")
BASELINES = "impls/numerics/baselines/"


def source_hash(root: Path = ROOT) -> str:
    """`hash_of` the files below `root`."""
    return hash_of({path: (root / path).read_bytes() for path in counted_files(root)})


def hash_of(files: Mapping[str, bytes]) -> str:
    """SHA-256 over the lines "<path> <SHA-256 of its bytes>", sorted by path, of those that count.

    Paths are relative and use "/".
    """
    lines = (f"{path} {hashlib.sha256(files[path]).hexdigest()}\n" for path in sorted(files) if counts(path))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def counted_files(root: Path = ROOT) -> list[str]:
    """The relative paths that count, sorted."""
    below = (walked for package in COUNTED for walked in os.walk(root / package))
    found = ((Path(folder) / name).relative_to(root).as_posix() for folder, _, names in below for name in names)
    return sorted(filter(counts, found))


def counts(path: str) -> bool:
    """Whether the file at this relative path counts."""
    *folders, name = path.split("/")
    return (
        folders[:1] in [[package] for package in COUNTED]
        and not any(folder == "__pycache__" or folder.startswith(".") for folder in folders)
        and not name.startswith(".")
        and not name.endswith((".pyc", ".md"))
        and not path.startswith(BASELINES)
    )
