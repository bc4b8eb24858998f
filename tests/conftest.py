"""What all tests share: how hypothesis searches, and how many threads a test has when others run beside it."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: a shared machine may stall any example. In CI the same examples every time, so that a failure is the change's.
settings.register_profile("nvfp4bench", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("nvfp4bench")

if "PYTEST_XDIST_WORKER" in os.environ:  # as many workers as cores: more threads than that would wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")
