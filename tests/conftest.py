"""What all tests share: how hypothesis searches."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: a shared machine may stall any example. In CI the same examples every time, so that a failure is the change's.
settings.register_profile("nvfp4bench", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("nvfp4bench")
