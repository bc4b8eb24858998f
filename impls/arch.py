"""Facts of each GPU architecture: what one block and one SM may use. No product peak is a measurement.

Names are the targets kernels are compiled for. A fact that is not known is None, never guessed.

Sources: CUDA C++ Programming Guide 13.0, "Compute Capabilities" (registers, warps and shared memory per SM);
ptxas 13.0's own limit on `a` targets (shared memory per block: 232448 and 101376 bytes).
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True)
class Arch:
    """One compile target and the chips it stands for."""

    name: str
    """Compile target, e.g. "sm_120a"; "cpu" where no GPU is meant."""
    chips: str
    """Products that report this compute capability."""
    compute_capability: tuple[int, int]
    shared_per_block: int
    """Bytes of shared memory one block may ask for."""
    shared_per_sm: int
    warps_per_sm: int
    registers_per_sm: int = 64 * KIB
    """32-bit registers."""
    registers_per_thread: int = 255

    @property
    def is_gpu(self) -> bool:
        return self.name != "cpu"

    @property
    def triton_capability(self) -> int:
        """Compute capability as Triton's GPUTarget takes it: 90 for 9.0."""
        major, minor = self.compute_capability
        return 10 * major + minor


CPU = Arch("cpu", "the host, no GPU", (0, 0), 0, 0, 0, 0, 0)

ARCHES = {
    arch.name: arch
    for arch in (
        Arch("sm_80", "A100", (8, 0), 163 * KIB, 164 * KIB, 64),
        Arch("sm_86", "A10, A40, RTX 30", (8, 6), 99 * KIB, 100 * KIB, 48),
        Arch("sm_89", "L4, L40S, RTX 40", (8, 9), 99 * KIB, 100 * KIB, 48),
        Arch("sm_90a", "H100, H200, GH200", (9, 0), 227 * KIB, 228 * KIB, 64),
        Arch("sm_100a", "B200, GB200", (10, 0), 227 * KIB, 228 * KIB, 64),
        Arch("sm_103a", "B300, GB300", (10, 3), 227 * KIB, 228 * KIB, 64),
        Arch("sm_110a", "Jetson T5000, T4000 (Thor)", (11, 0), 227 * KIB, 228 * KIB, 48),
        Arch("sm_120a", "GeForce RTX 50, RTX PRO Blackwell", (12, 0), 99 * KIB, 100 * KIB, 48),
        Arch("sm_121a", "GB10 (DGX Spark)", (12, 1), 99 * KIB, 100 * KIB, 48),
    )
}


def find(name: str) -> Arch:
    """The architecture called `name`: an exact target, or its number without the `a` ("sm_90", the chip of sm_90a).

    Raises ValueError that lists the known names.
    """
    if name == "cpu":
        return CPU
    known = ARCHES.get(name) or ARCHES.get(f"{name}a")
    if known is None:
        raise ValueError(f"unknown architecture {name!r}; known are cpu, {', '.join(ARCHES)}.")
    return known


def of_capability(major: int, minor: int) -> Arch | None:
    """The architecture of a GPU that reports this compute capability, None if it is not one of `ARCHES`."""
    return next((arch for arch in ARCHES.values() if arch.compute_capability == (major, minor)), None)
