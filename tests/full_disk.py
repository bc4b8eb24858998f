"""A disk that takes only a part of a file, without one: a limit on the size of files fails writes in the middle."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run_with_files_up_to(most_bytes: int, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """`command`, in the checkout, where no file can become larger."""
    return subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes)),
        check=False,
    )
