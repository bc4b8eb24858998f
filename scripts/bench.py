"""`make bench`: measure quickly, draw the pages, say what works here and what to type next. Standard library only.

Runs with the interpreter it is started with and installs nothing. A step that fails does not hide the ones after it.
Exit status: the worst of the commands it ran (0 holds, 1 a failed check, 2 a command could not do its job).
"""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "dashboard" / "index.html"


def main() -> int:
    statuses = [nvfp4bench("run", "--quick"), nvfp4bench("run", "--quick", "--suite", "static")]
    measured = min(statuses) < 2
    if not measured:
        page = "no pages: there are no new results to draw; the sentence above says why."
    elif importlib.util.find_spec("plotly") is None:
        page = f"no pages: {sys.executable} has no plotly, which they draw with."
    else:
        statuses.append(nvfp4bench("dashboard"))
        page = f"page: {PAGE.as_uri()}" if statuses[-1] < 2 else "no pages: the sentence above says why."
    statuses.append(nvfp4bench("doctor"))
    print(f"\n{page}")
    if measured:
        print(f"next: {next_command()}")
    return max(statuses)


def nvfp4bench(*arguments: str) -> int:
    """Run one command of this checkout, named before its output; its exit status."""
    print(f"\n$ nvfp4bench {' '.join(arguments)}", flush=True)
    status = subprocess.run([sys.executable, str(ROOT / "nvfp4bench.py"), *arguments], cwd=ROOT, check=False).returncode
    return 2 if status < 0 else status  # negative: died by a signal


def next_command() -> str:
    """What to type after this, for the interpreter in use."""
    own = Path(sys.prefix) == ROOT / ".venv"
    return "make gate" if own else f"make gate PYTHON={shlex.quote(sys.executable)}"


if __name__ == "__main__":
    sys.exit(main())
