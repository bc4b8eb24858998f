"""All probes there are."""

from __future__ import annotations

from impls.cuda.confirm import lanes, moves, scalar, tensor
from impls.cuda.confirm.probe import Probe

PROBES: tuple[Probe, ...] = (*scalar.PROBES, *tensor.PROBES, *moves.PROBES, *lanes.PROBES)
