"""Install what a checkout needs, at the tested versions, into a virtual environment. Standard library only.

    python3 scripts/install.py --venv .venv --editable bench test lint cuda   the environment that make uses
    python scripts/install.py cuda                                            the one this Python belongs to (asv does this)

What is installed is named in pyproject.toml: the runtime dependencies and the dependency groups asked for. At which
versions, by one of two constraint sets:

    an NVIDIA driver is here                           constraints-gpu.txt
    none, and pip accepts constraints-cpu.txt          constraints-cpu.txt
    none, and it does not (see that file)              constraints-gpu.txt, whose torch runs on a CPU too

A stamp in the environment says what was installed; while it holds, nothing is done. It is written last, so an interrupted
installation leaves none and the next call repairs it. Two calls at once wait for each other.
Exit status: 0 installed, 2 not.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STAMP = "nvfp4bench-installed.json"
# What pip prints when versions exclude each other, or when a version has no build for this Python and platform.
REFUSALS = ("ResolutionImpossible", "No matching distribution found")
# What it prints besides when it reached no registry: then it has refused nothing.
NO_CONNECTION = "connection broken"


class InstallError(Exception):
    """One plain sentence: what could not be installed, and what to do."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="install.py", description="Install what a checkout needs, at the tested versions.")
    parser.add_argument("groups", nargs="*", help="dependency groups of pyproject.toml, besides the runtime dependencies")
    parser.add_argument("--venv", type=Path, help="virtual environment to make or reuse; left out: the one of this Python")
    parser.add_argument("--editable", action="store_true", help="add this checkout and its `nvfp4bench` command too")
    arguments = parser.parse_args(argv)
    try:
        environment = own_environment() if arguments.venv is None else arguments.venv.absolute()
        with locked(environment) as lock:
            install(environment, arguments.groups, editable=arguments.editable, lock=lock)
    except (InstallError, OSError) as error:
        print(f"install: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("install: interrupted; the next call goes on from here.", file=sys.stderr)
        return 130
    return 0


def own_environment() -> Path:
    """The virtual environment this Python runs in."""
    if sys.prefix == sys.base_prefix:
        raise InstallError(f"{sys.executable} is in no virtual environment; name one with --venv.")
    if importlib.util.find_spec("pip") is None:
        raise InstallError(f"{sys.prefix} has no pip; run `{sys.executable} -m ensurepip` first.")
    return Path(sys.prefix)


def install(environment: Path, groups: list[str], *, editable: bool, lock: int) -> None:
    """Bring `environment` to what the checkout asks for; nothing to do where its stamp says so.

    `lock` is the descriptor of the lock on it: pip holds it as well, so it outlives this process if that is killed.
    """
    wanted = requirements(groups)
    driver = has_nvidia_driver()
    key = digest(wanted, editable=editable, driver=driver)
    python = environment / "bin" / "python"
    stamp = environment / STAMP
    if python.exists() and stamped_key(stamp) == key:
        return
    stamp.unlink(missing_ok=True)
    make_environment(environment, python)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    run([*pip, "--quiet", "-c", str(ROOT / "constraints.txt"), "pip", *build_requirements()], lock)
    chosen, reason = choose_set(driver, lambda: refusal(python, lock))
    print(f"install: {chosen}: {reason}", flush=True)
    run([*pip, "-c", str(ROOT / chosen), *wanted], lock)
    if editable:
        run([*pip, "-qq", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)], lock)
    write_stamp(stamp, {"key": key, "constraints": chosen, "reason": reason})


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(groups: list[str]) -> list[str]:
    """The runtime dependencies and those of `groups`, as pyproject.toml states them."""
    data = pyproject()
    known = data["dependency-groups"]
    unknown = [group for group in groups if group not in known]
    if unknown:
        raise InstallError(f"there is no dependency group {unknown[0]!r}; pyproject.toml has {', '.join(known)}.")
    return [*data["project"]["dependencies"], *(name for group in groups for name in known[group])]


def build_requirements() -> list[str]:
    """What building this project's wheel needs."""
    return list(pyproject()["build-system"]["requires"])


def has_nvidia_driver() -> bool:
    """Whether the driver's library loads. CUDA_VISIBLE_DEVICES has no say: hiding a GPU must not change torch."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def choose_set(driver: bool, refused: Callable[[], str | None]) -> tuple[str, str]:
    """(constraint file, why that one). `refused()` says why pip refuses the CPU set here, None if it does not."""
    if driver:
        return "constraints-gpu.txt", "an NVIDIA driver is here."
    why = refused()
    if why is None:
        return "constraints-cpu.txt", "no NVIDIA driver is here."
    return (
        "constraints-gpu.txt",
        f"no NVIDIA driver is here, but pip refuses constraints-cpu.txt ({why}); this torch runs on a CPU too.",
    )


def refusal(python: Path, lock: int) -> str | None:
    """Why pip cannot satisfy the CPU set on this machine, None if it can. Installs nothing."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--dry-run", "--ignore-installed"]
    command += ["-c", str(ROOT / "constraints-cpu.txt"), *requirements([])]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, pass_fds=(lock,), check=False)
    if done.returncode == 0:
        return None
    errors = [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    if NO_CONNECTION in done.stderr or not any(word in done.stderr for word in REFUSALS):
        raise InstallError(f"pip could not try constraints-cpu.txt: {errors[-1] if errors else done.stderr.strip()[-300:]}")
    return errors[0].rstrip(".")


def digest(wanted: list[str], *, editable: bool, driver: bool) -> str:
    """Changes whenever the environment would come out differently."""
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("constraints*.txt"))}
    parts = [wanted, build_requirements(), files, driver, str(ROOT) if editable else None]
    if editable:
        parts.append(pyproject()["project"])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def stamped_key(stamp: Path) -> str | None:
    try:
        return str(json.loads(stamp.read_text(encoding="utf-8"))["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # no stamp, or half of one: not installed


def write_stamp(stamp: Path, content: dict[str, str]) -> None:
    """In one step, so that there is never half a stamp."""
    draft = stamp.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    draft.replace(stamp)


def make_environment(environment: Path, python: Path) -> None:
    """Make the virtual environment unless it is there and its Python and pip run."""
    empty = not any(environment.iterdir())
    if not empty and not (environment / "pyvenv.cfg").exists():
        raise InstallError(f"{environment} is there and is no virtual environment; remove it or name another one.")
    if not empty and python.exists():
        done = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False)
        if done.returncode == 0:
            return
    print(f"install: making {environment} with Python {sys.version.split()[0]}.", flush=True)
    try:
        venv.create(environment, clear=True, symlinks=True, with_pip=True)
    except subprocess.CalledProcessError as error:  # Debian splits ensurepip off into a package of its own
        raise InstallError(f"making {environment} failed ({error}); is the venv module complete (python3-venv)?") from error


def run(command: list[str], lock: int) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, pass_fds=(lock,), check=False)
    if done.returncode != 0:
        raise InstallError(f"`{' '.join(command)}` failed with status {done.returncode}; its own message stands above.")


@contextlib.contextmanager
def locked(environment: Path) -> Iterator[int]:
    """Hold the environment's folder; wait, and say so, while another installation has it. Yields the descriptor."""
    environment.mkdir(parents=True, exist_ok=True)
    folder = os.open(environment, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"install: waiting for another installation into {environment}.", file=sys.stderr, flush=True)
            fcntl.flock(folder, fcntl.LOCK_EX)
        yield folder
    finally:
        os.close(folder)


if __name__ == "__main__":
    sys.exit(main())
