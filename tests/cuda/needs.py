"""What a test needs that not every machine has."""

from __future__ import annotations

import pytest

from impls.arch import find
from impls.cuda import nvrtc

_WHY_NOT = nvrtc.why_not(find("sm_90a"))
needs_nvrtc = pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))
