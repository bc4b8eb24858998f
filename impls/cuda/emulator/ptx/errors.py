"""What is wrong with PTX as text. Each sentence begins with the line."""

from __future__ import annotations

from impls.cuda.emulator.errors import EmulationError, Unknown

_LONGEST = 60


class BadPTX(EmulationError):
    """The text breaks PTX's grammar, or names what it does not declare."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(f"PTX line {line}: {sentence}")
        self.line = line


def unknown(line: int, sentence: str) -> Unknown:
    """For what may well be PTX."""
    return Unknown(f"PTX line {line}: {sentence}")


def quoted(text: str) -> str:
    """On one line, and short enough for a sentence."""
    words = " ".join(text[: 4 * _LONGEST].split())
    return repr(words if len(words) <= _LONGEST else words[: _LONGEST - 3] + "...")
