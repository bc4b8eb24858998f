"""The one exception that a command turns into a sentence and exit status 2."""


class CommandError(Exception):
    """A command could not do its job: one plain sentence that says why and what to do next."""
