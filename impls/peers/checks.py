"""What every `bind` of a peer checks besides the contract."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from impls.arch import Arch
from impls.contract import Cache
from impls.host import arch_of


def require_gpu(arch: Arch, q: torch.Tensor) -> None:
    """Raises ValueError unless `q` is on a GPU of `arch`."""
    here = arch_of(q.device)
    if here != arch:
        raise ValueError(f"the tensors are on {here.name} and the plan is for {arch.name}; plan for where they are.")


def require_packed(cache: Cache, names: Iterable[str]) -> None:
    """Raises ValueError unless `cache` holds the tensors that `pack` adds."""
    if not set(names) <= cache.extra.keys():
        raise ValueError("the cache is not one that this plan packed; bind what plan.pack(k4, v4) returns.")
