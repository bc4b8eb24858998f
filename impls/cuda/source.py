"""A CUDA source with all it includes, in memory: what is compiled is what is hashed, and no path of this host gets into it.

A name in an #include is looked for in the folder of the file that has it, then from the root of this tree
(impls/cuda/kernels/fp4.cuh), then among CUDA's headers. What is found nowhere is left to the preprocessor: it may stand behind
an #if that does not hold.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED_ROOT = "/nvfp4bench/"
"""Stands for the folder of the tree in what the compiler writes: relative names would get the working directory before them."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """One source and its headers, each of which begins with its name as a #line."""

    name: str
    text: str
    headers: Mapping[str, str]
    """{name in #include: text}"""

    @property
    def digest(self) -> str:
        """SHA-256 over names and texts."""
        parts = [self.name, self.text, *(part for header in sorted(self.headers.items()) for part in header)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def line(self, name: str, number: int) -> str:
        """Line `number` of the file that the compiler calls `name`, empty if there is none."""
        texts = {_named(text): text for text in (self.text, *self.headers.values())}
        lines = texts.get(name, "").splitlines()
        return lines[number].strip() if number < len(lines) else ""  # line 0 is the #line


def read(path: Path, cuda_headers: Path) -> Source:
    """The source at `path`. Raises ValueError with one sentence where it or a header cannot be read."""
    text = _text(path)
    headers: dict[str, str] = {}
    waiting = [(path.parent, text)]
    while waiting:
        folder, including = waiting.pop()
        for name in _INCLUDE.findall(including):
            found = next((place for place in (folder, ROOT, cuda_headers) if (place / name).is_file()), None)
            if name in headers or found is None:
                continue
            header = _text(found / name)
            headers[name] = _labelled(f"/cuda/{name}" if found == cuda_headers else _name(found / name), header)
            waiting.append(((found / name).parent, header))
    return Source(_name(path), _labelled(_name(path), text), headers)


def readable(message: str) -> str:
    """What the compiler says, with names of files as they are in the tree."""
    return message.replace(NAMED_ROOT, "")


def _name(path: Path) -> str:
    """What the compiler calls a file: its place in this tree, or its name alone if it comes from outside."""
    path = path.resolve()
    return NAMED_ROOT + (path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name)


def _labelled(name: str, text: str) -> str:
    return f'#line 1 "{name}"\n{text}'


def _named(labelled: str) -> str:
    return labelled[: labelled.index("\n")].split('"')[1]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read the CUDA source {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"the CUDA source {path} is not UTF-8: {error.reason} at byte {error.start}.") from error
