"""Exit status 2 and a sentence unless this Python is new enough. Written so that an old one can say so."""

import sys

OLDEST = (3, 11)

if sys.version_info < OLDEST:
    have, need = (".".join(map(str, version[:2])) for version in (sys.version_info, OLDEST))
    sys.stderr.write(
        f"Python {need} or newer is needed, and {sys.executable} is {have}; "
        "name another one, as in `make bench PYTHON3=python3.12`.\n"
    )
    sys.exit(2)
