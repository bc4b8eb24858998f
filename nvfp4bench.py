"""nvfp4bench: NVFP4 attention, its implementations, and the benchmarks of both.

    from nvfp4bench import attention, implementations, why_not, quantize, NVFP4Tensor

Names are imported when first used, so importing this module imports neither torch nor triton.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from typing import Any

from impls.errors import CommandError

_PUBLIC = {
    "attention": "impls.api",
    "linear": "impls.weights.api",
    "implementations": "impls.registry",
    "why_not": "impls.registry",
    "quantize": "impls.nvfp4",
    "dequantize": "impls.nvfp4",
    "NVFP4Tensor": "impls.nvfp4",
    "Unsupported": "impls.contract",
    "Dense": "impls.contract",
    "Paged": "impls.contract",
}
__all__ = list(_PUBLIC)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'nvfp4bench' has no attribute {name!r}")


OLDEST_PYTHON = (3, 11)

# Each command is a module with `configure(parser)` and `execute(arguments) -> exit status`.
COMMANDS = {
    "doctor": ("benchmarks.commands.doctor", "what is usable here, and why the rest is not"),
    "run": ("benchmarks.commands.run", "measure a plan of cells into a journal"),
    "cell": ("benchmarks.commands.cell", "one cell, alone"),
    "gate": ("impls.numerics.command", "numeric regressions: every implementation against the float64 reference"),
    "confirm": ("impls.cuda.confirm.command", "whether the GPU that is here agrees with the emulator, rule by rule"),
    "kernels": (
        "benchmarks.commands.kernels",
        "what each kernel became on an architecture: registers, spills, shared memory, opcodes",
    ),
    "emulate": ("impls.cuda.emulation.command", "anybody's PTX on the CPU: executed, checked and counted"),
    "isa": ("impls.isa.command", "which instructions each target's ptxas accepts, and what they become"),
    "results": ("benchmarks.commands.results", "check, adopt or thin published results"),
    "dashboard": ("dashboards.command", "results made into static HTML pages"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command. Exit status: 0 holds, 1 a regression or failed check, 2 the command could not do its job."""
    if sys.version_info < OLDEST_PYTHON:
        have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST_PYTHON))
        print(f"nvfp4bench: Python {need} or newer is needed, and {sys.executable} is {have}.", file=sys.stderr)
        return 2
    parser = argparse.ArgumentParser(prog="nvfp4bench", description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    given = sys.argv[1:] if argv is None else argv
    if any(word == "" or (word.startswith("--") and word.endswith("=")) for word in given):
        parser.error("an argument is empty; leave the option out, or check the variable that it was to come from.")
    chosen = next((word for word in given if not word.startswith("-")), None)
    for name, (place, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:  # a command's module is imported only when it is the one asked for
            module = importlib.import_module(place)
            module.configure(command)
            command.set_defaults(execute=module.execute)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.execute(arguments))
    except BrokenPipeError:  # whoever read our output has enough; what Python still holds goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (CommandError, ValueError) as error:
        return _failed(arguments.command, str(error))
    except OSError as error:  # without a file's name it is a stream of ours: a full disk behind a redirection
        return _failed(arguments.command, f"cannot read or write {error.filename or 'the output'}: {error.strerror}.")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "impls", "benchmarks", "dashboards"):  # not for a user to install
            raise
        remedy = "install it there, or let `make bench` set up .venv"
        return _failed(arguments.command, f"{package} is not installed for {sys.executable}; {remedy}.")
    except KeyboardInterrupt:
        print(f"nvfp4bench {arguments.command}: interrupted.", file=sys.stderr)
        return 130


def _failed(command: str, sentence: str) -> int:
    with contextlib.suppress(OSError):  # stderr may be what cannot be written; the status tells then
        print(f"nvfp4bench {command}: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
