"""What goes wrong when PTX is executed."""


class EmulationError(Exception):
    """The kernel, or its launch, is at fault, or the emulator cannot go on; the text is one sentence."""


class BadLaunch(EmulationError):
    """The launch does not fit the kernel, or no GPU would take it: nothing was executed."""


class Unknown(EmulationError):
    """An opcode, modifier or type that the emulator does not know: it never guesses."""
