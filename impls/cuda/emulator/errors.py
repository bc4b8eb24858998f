"""What goes wrong when PTX is executed."""


class EmulationError(Exception):
    """The kernel is at fault, unless it is a `NotExecuted`; the text is one sentence."""

    @property
    def sentence(self) -> str:
        """The text on one line, with a full stop."""
        return f"{' '.join(str(self).split()).rstrip('.;')}."


class NotExecuted(EmulationError):
    """The emulator could not do it, or not to the end: nothing is said of the kernel."""


class BadLaunch(NotExecuted):
    """The launch does not fit the kernel, or no GPU would take it: nothing was executed."""


class Unknown(NotExecuted):
    """An opcode, modifier or type that the emulator does not know: it never guesses."""


class TooLong(NotExecuted):
    """More instructions than the caller allows."""


class InternalError(NotExecuted):
    """The emulator is at fault, not the kernel: what it was raised from says how."""
