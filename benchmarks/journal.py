"""The journal: one line of JSON per record, appended as it happens and never changed. Everything else is made from it.

    <results>/<machine>/<commit8>-<env>.cells.jsonl

It begins with a `Run`, and the cells of that run follow. A later call appends its own `Run` and cells. As long as runs
have the same origin (commit, source, protocol, environment) their cells belong together, and of two cells with the same
id and `how` the later one counts. A run of another origin starts over: what stands before it is history. So are the cells of
an implementation in somebody's file (`Run.outside`) once a later run has found that file changed.

A line is whole when it ends in a newline. Only the last one may be broken off (a process was killed, a disk was full):
readers report it, and the next writer cuts it. Anything else that is not a record is an error that names file and line.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.records import Cell, Environment, Run, from_json, to_json
from impls.files import replace_file

SUFFIX = ".cells.jsonl"
MAX_LINE = 1 << 20
"""Bytes. A record with thousands of samples is far below it; a longer line is not one of ours."""
DRIFT = 0.02
"""Of a ceiling, from one call of a run to the next, from which on it is said: two runs agree within that."""
Record = Run | Cell


class JournalError(ValueError):
    """A journal cannot be read or written: one sentence that names the file, and the line where there is one."""


@dataclass(frozen=True)
class Journal:
    """What a journal says now."""

    path: Path
    run: Run
    """The newest one; where it measured no ceilings, with those of the run of its origin that last did, and with what all of
    them say of implementations from outside."""
    cells: tuple[Cell, ...]
    """The cells of its origin, the latest of each (id, how), in the order they were first measured."""
    problems: tuple[str, ...] = ()
    """Sentences about what a reader had to leave out."""


def journal_path(results: Path, run: Run) -> Path:
    commit = run.commit if run.commit == "unknown" else run.commit[:8]
    return results / run.machine / f"{commit}-{environment_slug(run.environment)}{SUFFIX}"


def environment_slug(environment: Environment) -> str:
    """The part of a journal's name that says which toolchain was measured: py3.11-torch2.13.0+cpu-triton3.9.0."""
    python = ".".join(environment.python.split(".")[:2])
    triton = f"-triton{environment.triton}" if environment.triton else ""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", f"py{python}-torch{environment.torch}{triton}")


def same_origin(a: Run, b: Run) -> bool:
    """Whether cells of the two runs measure the same thing, in the same way, on the same machine and toolchain."""
    names = ("machine", "commit", "source", "protocol", "environment")
    return all(getattr(a, name) == getattr(b, name) for name in names)


def read_results(results: Path) -> tuple[list[Journal], list[str]]:
    """(the journals below `results`, the sentences about those that cannot be read), by machine and start.

    Raises JournalError where there is no such folder.
    """
    if not results.is_dir():
        raise JournalError(f"{results} is not a folder; `nvfp4bench run` writes results, `--results` says where.")
    journals, problems = [], []
    for path in sorted(results.glob(f"*/*{SUFFIX}")):
        try:
            if not path.resolve().is_relative_to(results.resolve()):
                raise JournalError(f"{path} is a link that leads out of {results}.")
            journal = read_journal(path)
            if path != journal_path(results, journal.run):
                raise JournalError(f"{path} holds a run that belongs into {journal_path(results, journal.run)}.")
            journals.append(journal)
        except JournalError as error:
            problems.append(str(error))
    journals.sort(key=lambda journal: (journal.run.machine, journal.run.started, str(journal.path)))
    return journals, problems


def read_journal(path: Path) -> Journal:
    """Raises JournalError on a file that cannot be read, has no run, or is corrupt before its last line."""
    records, torn = read_records(path)
    if not records:
        raise JournalError(f"{path} holds no run; it was broken off before its first line was whole.")
    problems = (f"{path}:{len(records) + 1}: the last line is broken off and left out.",) if torn else ()
    return Journal(path, *what_counts(records), problems)


def what_counts(records: Sequence[Record]) -> tuple[Run, tuple[Cell, ...]]:
    """(`Journal.run`, the cells of its origin, the latest of each id and `how`). The first record is a run."""
    run = records[0]
    assert isinstance(run, Run)
    cells: dict[tuple[str, str], Cell] = {}
    for record in records:
        if isinstance(record, Cell):
            cells[record.id, record.how] = record
        else:
            if same_origin(run, record):
                edited = {name for name, digest in record.outside.items() if run.outside.get(name) != digest}
                cells = {key: cell for key, cell in cells.items() if cell.impl not in edited}
                known = {**run.outside, **record.outside}
                record = dataclasses.replace(record, ceilings=record.ceilings or run.ceilings, outside=known)
            else:
                cells.clear()
            run = record
    return run, tuple(cells.values())


def read_records(path: Path) -> tuple[list[Record], bool]:
    """(every whole record in order, whether a broken line follows them). Raises JournalError."""
    records: list[Record] = []
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise JournalError(f"{path} is not a file.")
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE + 1):
                where = f"{path}:{len(records) + 1}"
                if len(line) > MAX_LINE:
                    raise JournalError(f"{where}: the line is longer than {MAX_LINE} bytes.")
                if not line.endswith(b"\n"):
                    return records, True
                record = _parse(line, where)
                if not records and not isinstance(record, Run):
                    raise JournalError(f"{where}: a journal begins with its run, not with a cell.")
                records.append(record)
    except OSError as error:
        raise JournalError(f"cannot read {path}: {error.strerror}.") from error
    return records, False


def encode(record: Record) -> bytes:
    """The line of `record`. Raises JournalError if it is longer than a reader takes."""
    line = json.dumps(to_json(record), allow_nan=False).encode() + b"\n"
    if len(line) > MAX_LINE:
        raise JournalError(f"a record of {len(line)} bytes is longer than a journal's line may be ({MAX_LINE}).")
    return line


class JournalWriter:
    """Appends to one journal, which no other process can write meanwhile.

    with JournalWriter(results, run, resume=False) as journal:
        journal.append(cell)
    """

    def __init__(self, results: Path, run: Run, *, resume: bool) -> None:
        """Open or make the journal of `run`; `resume` goes on with the cells that are there and count.

        Raises JournalError if it cannot be written, another process writes it, it is corrupt, or what it has is of another
        origin and so nothing to go on with.
        """
        self.path = journal_path(results, run)
        self.cut: str | None = None
        """A sentence about a broken last line that was cut, if there was one."""
        self.edited: list[str] = []
        """Implementations whose cells do not count any more, since their files were edited."""
        self.drifted: list[str] = []
        """A sentence for each ceiling that is no more what it was for the cells that are there."""
        self._file = -1
        try:
            if not self.path.parent.resolve().is_relative_to(results.resolve()):
                raise JournalError(f"{self.path.parent} is a link that leads out of {results}.")
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = _open_locked(self.path)
            earlier = self._mend()
            self.recorded: dict[tuple[str, str], Cell] = {}
            if earlier and resume:
                self._check_origin(earlier.run, run)
                _, cells = what_counts([earlier.run, *earlier.cells, run])
                self.recorded = {(cell.id, cell.how): cell for cell in cells}
                self.drifted = _drifted(earlier.run, run)
                self.edited = sorted({cell.impl for cell in earlier.cells} - {cell.impl for cell in cells})
            self._write(run)
            _sync_folder(self.path.parent)
        except OSError as error:
            self.close()
            raise JournalError(f"cannot write {self.path}: {error.strerror}.") from error
        except JournalError:
            self.close()
            raise

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def append(self, cell: Cell) -> None:
        """Write one cell, and return when it is on the disk. Raises JournalError if it is not; the rest is kept."""
        self._write(cell)
        self.recorded[cell.id, cell.how] = cell

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _mend(self) -> Journal | None:
        """Cut a broken last line; what the journal then says, None if nothing is left."""
        records, torn = read_records(self.path)
        if torn:
            self.cut = f"{self.path}:{len(records) + 1}: the last line was broken off, and is cut."
            os.ftruncate(self._file, _end_of_last_line(self._file))
        return read_journal(self.path) if records else None

    def _check_origin(self, earlier: Run, run: Run) -> None:
        if not same_origin(earlier, run):
            raise JournalError(
                f"{self.path} was measured from other sources or with another toolchain; run without --resume to start over."
            )

    def _write(self, record: Record) -> None:
        """The line at once or not at all: a disk that fills up in the middle of it is cut back to where it began."""
        line = encode(record)
        before = os.fstat(self._file).st_size
        try:
            written = os.write(self._file, line)
            if written != len(line):
                raise OSError(None, "the disk took only a part of the line, so it is full or at its limit")
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):  # the torn line then stays, and the next writer cuts it
                os.ftruncate(self._file, before)
            kept = "what was measured before is kept, and --resume goes on from there"
            raise JournalError(f"cannot write {self.path}: {error.strerror}; {kept}.") from error


def _drifted(earlier: Run, now: Run) -> list[str]:
    return [
        f"{name} was {before:.4g} for the cells that are there, and is {now.ceilings[name]:.4g}, which pages now rate them by."
        for name, before in earlier.ceilings.items()
        if name in now.ceilings and abs(now.ceilings[name] - before) > DRIFT * before
    ]


def rewrite(path: Path, change: Callable[[list[Record]], list[Record]], target: Path) -> None:
    """Replace the journal at `path` by its changed records at `target`, in one step.

    For the two things that are not measuring: giving a journal another commit, and leaving out old samples.
    Raises JournalError, and then nothing has changed.
    """
    try:
        with _locked(path):
            if target != path and target.exists():
                raise JournalError(f"{target} is there already; remove one of the two journals.")
            records, torn = read_records(path)
            if torn:
                raise JournalError(f"{path}:{len(records) + 1}: the last line is broken off; `run --resume` mends it.")
            replace_file(target, b"".join(map(encode, change(records))))
            if target != path:
                path.unlink()
            _sync_folder(target.parent)
    except OSError as error:
        raise JournalError(f"cannot write {target}: {error.strerror}.") from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = _open_locked(path)
    try:
        yield
    finally:
        os.close(file)


def _open_locked(path: Path) -> int:
    """A descriptor that appends to `path` and holds its lock, which ends with the descriptor, also by kill -9."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file), path.stat()):  # replaced by `rewrite` between the two calls above
            raise BlockingIOError
    except OSError as error:
        os.close(file)
        if isinstance(error, BlockingIOError):
            other = "wait for it, or name another folder by --results"
            raise JournalError(f"another process is writing {path}; {other}.") from None
        raise
    return file


def _end_of_last_line(file: int) -> int:
    """Offset just behind the last newline; 0 if there is none."""
    end = os.fstat(file).st_size
    start = max(0, end - MAX_LINE - 1)
    return start + os.pread(file, end - start, start).rfind(b"\n") + 1


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk only when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _parse(line: bytes, where: str) -> Record:
    try:
        return from_json(json.loads(line, parse_constant=_refuse_constant))
    except UnicodeDecodeError:
        raise JournalError(f"{where}: the line is not UTF-8 text.") from None
    except json.JSONDecodeError as error:
        raise JournalError(f"{where}: the line is not JSON ({error.msg}, column {error.colno}).") from None
    except RecursionError:
        raise JournalError(f"{where}: the line is nested too deeply for a record.") from None
    except (ValueError, OverflowError) as error:  # a whole number can be too large for a float
        raise JournalError(f"{where}: {str(error).rstrip('.')}.") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON.")
