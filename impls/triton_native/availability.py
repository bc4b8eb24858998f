"""Where tl.dot_scaled of NVFP4 by NVFP4 is the hardware's own product, found out without importing Triton.

Elsewhere Triton builds it from others: 3.9 multiplies in 16 bits on sm_90a without a word, and 3.6 ends its process.
"""

from __future__ import annotations

from impls.arch import Arch
from impls.triton import availability
from impls.triton.quantize import why_not_interpreted

SINCE = {"sm_100a": (3, 9), "sm_103a": (3, 9), "sm_110a": (3, 9), "sm_120a": (3, 6), "sm_121a": (3, 9)}
"""{architecture: the oldest Triton that was seen to make the block-scaled instruction of the kernel for it}.

3.6.0 and 3.7.1 fail on sm_121a; with tcgen05 they compile such a product alone, but not in a loop, where they complain that
an "uninitialized alloc must have a mutable memdesc type"."""
CAPABILITIES = ("nvfp4_tcgen05", "nvfp4_mma_sync")


def why_not(arch: Arch) -> str | None:
    """None if this process can run the kernel for `arch` (on a GPU: compile it), else one sentence."""
    if arch.is_gpu and not any(arch.executes(capability) for capability in CAPABILITIES):
        return arch.why_lacks("nvfp4_mma_sync")
    reason = availability.why_not(arch)
    if reason:
        return reason
    if not arch.is_gpu:
        return why_not_interpreted()
    version, needed = availability.installed_version(), SINCE.get(arch.name)
    if needed is None:
        return f"it is not known which Triton compiles a product of NVFP4 by NVFP4 for {arch.name}."
    if version is not None and version < needed:
        have, need = (".".join(map(str, each)) for each in (version, needed))
        return f"triton {have} cannot compile a product of NVFP4 by NVFP4 for {arch.name}; install triton {need} or newer."
    return None
