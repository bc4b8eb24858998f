"""Write a site into a folder so that whoever looks meanwhile, or after an interruption, finds whole pages.

All files are first written beside their places, and then renamed one after the other: what pages need before the pages.
A manifest lists them. Only what it lists is ever replaced or removed; whatever else lies in the folder stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from impls.errors import CommandError

MANIFEST = "pages.json"
STAGE = ".pages-being-written"


def publish(files: Mapping[str, bytes], out: Path) -> None:
    """Replace the site in `out` by `files` {relative name: content}.

    Raises CommandError where that cannot be done, where another call does it now, and where a file stands in the way
    that no earlier call wrote.
    """
    try:
        with _locked(out):
            earlier = _listed(out)
            for name in sorted(set(files) - earlier):
                if (out / name).exists():
                    raise CommandError(f"{out / name} is there and is none of these pages; name another folder by --out.")
            _replace_all(files, earlier, out)
    except OSError as error:
        raise CommandError(f"cannot write the pages to {out}: {error.strerror}; name another folder by --out.") from error


def _replace_all(files: Mapping[str, bytes], earlier: set[str], out: Path) -> None:
    """At every moment the manifest lists all that is ours, so an interrupted call is made good by the next one."""
    stage = out / STAGE
    shutil.rmtree(stage, ignore_errors=True)  # left by a call that was killed
    for name, content in files.items():
        _write(stage / name, content)
    _put_manifest(earlier | set(files), out)
    for name in sorted(files, key=lambda name: (name.endswith(".html"), name)):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).replace(out / name)
    for name in earlier - set(files):
        (out / name).unlink(missing_ok=True)
    _put_manifest(set(files), out)
    shutil.rmtree(stage)


def _put_manifest(names: set[str], out: Path) -> None:
    draft = out / STAGE / MANIFEST
    _write(draft, (json.dumps(sorted(names), indent=1) + "\n").encode())
    draft.replace(out / MANIFEST)


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _listed(out: Path) -> set[str]:
    """The files that earlier calls wrote, none where there is no manifest. Names that lead out of `out` are not ours."""
    manifest = out / MANIFEST
    if not manifest.exists():
        return set()
    try:
        names = json.loads(manifest.read_text(encoding="utf-8"))
    except ValueError:
        names = None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CommandError(f"{manifest} is not a list of pages; remove it, or name another folder by --out.")
    return {name for name in names if _is_below(out / name, out)}


def _is_below(path: Path, folder: Path) -> bool:
    inside = path.resolve()
    return inside != folder.resolve() and inside.is_relative_to(folder.resolve())


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the folder, made if need be."""
    out.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise CommandError(
            f"another process is writing pages to {out}; wait for it, or name another folder by --out."
        ) from None
    finally:
        os.close(descriptor)
