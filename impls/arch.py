"""Facts of each GPU architecture: what one block and one SM may use, what it can execute, how fast its products may be.

Names are the targets kernels are compiled for. A fact that is not known is None, never guessed, and no peak is a measurement.

Sources: CUDA C++ Programming Guide 13.0, "Compute Capabilities" (registers, warps, blocks and shared memory per SM);
ptxas 13.0's own limit on `a` targets (shared memory per block: 232448 and 101376 bytes; `nvfp4bench isa` finds it anew).
Capabilities come from the committed result of `nvfp4bench isa`, by the target's exact name: a newer architecture has neither
everything that an older one has nor the reverse, so no comparison of numbers answers such a question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from impls.isa.result import Probe

KIB = 1024

PROBED_RELEASE = "13.0.88"
"""The ptxas release whose committed result answers for capabilities: the one that kernels are compiled with."""

CAPABILITIES: Mapping[str, tuple[str, str]] = {
    "nvfp4_mma_sync": ("mma.sync/mxf4nvf4/m16n8k64/scale_vec::4X/ue4m3/f32", "NVFP4 mma.sync"),
    "nvfp4_tcgen05": ("tcgen05.mma/block-scaled/cta_group::1/mxf4nvf4/shared/-/block16", "NVFP4 tcgen05.mma"),
    "tcgen05": ("tcgen05.mma/cta_group::1/f16/shared/-/-", "tcgen05.mma and tensor memory"),
    "wgmma": ("wgmma/64/f32.bf16.bf16/shared", "wgmma"),
    "bf16_mma_sync": ("mma.sync/bf16/m16n8k16", "bf16 mma.sync"),
    "fp8_mma_sync": ("mma.sync/fp8/m16n8k32/e4m3/e4m3/f32", "fp8 mma.sync"),
    "cvt_to_e2m1": ("cvt/f32-to-pair/e2m1x2/rn/satfinite/-", "conversion to E2M1"),
    "cvt_from_e2m1": ("cvt/pair-to-halves/e2m1x2/f16x2/-", "conversion from E2M1"),
    "cp_async": ("cp.async/cg/16/-/-", "cp.async"),
    "bulk_copy": ("cp.async.bulk/global-to-shared/shared::cluster/-", "bulk copies"),
    "tma": ("cp.async.bulk.tensor/load/2d/tile/shared::cluster/-", "copies through tensor maps (TMA)"),
    "tma_multicast": ("cp.async.bulk.tensor/multicast/2d/tile/shared::cluster/-", "TMA multicast"),
    "max_of_three": ("minmax/f32x3/max/-/-/-", "a maximum of three floats"),
    "f32x2_fma": ("f32x2/fma/rn/-", "fma on pairs of floats"),
}
"""{capability: (program of `impls.isa` that stands for it, how a sentence calls it)}."""


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
    blocks_per_sm: int
    registers_per_sm: int = 64 * KIB
    """32-bit registers."""
    registers_per_thread: int = 255
    rough_fp8_sums: bool = False
    """Whether mma.sync sums products of E4M3 with 13 fractional bits; others have 25 (by the published models of MMA-Sim)."""

    @property
    def per_clock(self) -> Mapping[str, int]:
        """What one SM does in a clock at most, by pipe; empty or lacking a pipe where it is not known. See `PER_CLOCK`."""
        return PER_CLOCK.get(self.name, {})

    @property
    def is_gpu(self) -> bool:
        return self.name != "cpu"

    def accepts(self, capability: str) -> bool:
        """Whether the assembler takes it for exactly this target. Raises KeyError for an unknown capability."""
        return self.is_gpu and _probe().accepts(self.name, CAPABILITIES[capability][0])

    def executes(self, capability: str) -> bool:
        """Whether it is accepted and becomes the opcode of a unit made for it, not a software emulation."""
        from impls.isa.catalogue import program
        from impls.isa.sass import lowering

        identity, _ = CAPABILITIES[capability]
        if not self.accepts(capability):
            return False
        counts = _probe().cells[identity][self.name].opcodes
        return counts is not None and lowering(program(identity).native, counts) == "native"

    def why_lacks(self, capability: str) -> str | None:
        """None if hardware of this target executes it, else one sentence that an implementation's `why_not` can give."""
        if self.executes(capability):
            return None
        _, called = CAPABILITIES[capability]
        if not self.is_gpu:
            return f"{self.name} has no {called}: it is no GPU."
        if self.accepts(capability):
            return f"{self.name} only emulates {called}: ptxas {PROBED_RELEASE} builds it from other instructions."
        return f"{self.name} has no {called}: ptxas {PROBED_RELEASE} refuses it for this target."

    @property
    def triton_capability(self) -> int:
        """Compute capability as Triton's GPUTarget takes it: 90 for 9.0."""
        major, minor = self.compute_capability
        return 10 * major + minor


CPU = Arch("cpu", "the host, no GPU", (0, 0), 0, 0, 0, 0, 0, 0)

ARCHES = {
    arch.name: arch
    for arch in (
        Arch("sm_80", "A100", (8, 0), 163 * KIB, 164 * KIB, 64, 32),
        Arch("sm_86", "A10, A40, RTX 30", (8, 6), 99 * KIB, 100 * KIB, 48, 16),
        Arch("sm_89", "L4, L40S, RTX 40", (8, 9), 99 * KIB, 100 * KIB, 48, 24, rough_fp8_sums=True),
        Arch("sm_90a", "H100, H200, GH200", (9, 0), 227 * KIB, 228 * KIB, 64, 32),
        Arch("sm_100a", "B200, GB200", (10, 0), 227 * KIB, 228 * KIB, 64, 32),
        Arch("sm_103a", "B300, GB300", (10, 3), 227 * KIB, 228 * KIB, 64, 32),
        Arch("sm_110a", "Jetson T5000, T4000 (Thor)", (11, 0), 227 * KIB, 228 * KIB, 48, 24),
        Arch("sm_120a", "GeForce RTX 50, RTX PRO Blackwell", (12, 0), 99 * KIB, 100 * KIB, 48, 24),
        Arch("sm_121a", "GB10 (DGX Spark)", (12, 1), 99 * KIB, 100 * KIB, 48, 24),
    )
}

_ANY_SM = {"issue": 128, "xu": 16, "lsu": 32, "shared": 128}
PER_CLOCK: Mapping[str, Mapping[str, int]] = {
    "sm_80": {**_ANY_SM, "fma": 64, "alu": 64, "fp16": 128, "fp64": 32, "tensor 16-bit": 1024, "tensor tf32": 512},
    "sm_90a": {**_ANY_SM, "fma": 128, "alu": 64, "fp16": 128, "fp64": 64}
    | {"tensor 16-bit": 2048, "tensor tf32": 1024, "tensor fp8": 4096},
    "sm_100a": {**_ANY_SM, "fma": 128, "alu": 128, "fp16": 64, "fp64": 64}
    | {"tensor 16-bit": 4096, "tensor tf32": 2048, "tensor fp8": 8192, "tensor mxfp4": 16384, "tensor nvfp4": 16384},
    "sm_120a": {**_ANY_SM, "fma": 128, "alu": 64, "fp16": 64, "fp64": 2}
    | {"tensor 16-bit": 512, "tensor tf32": 256, "tensor fp8": 1024, "tensor mxfp4": 2048, "tensor nvfp4": 2048},
    "sm_121a": {**_ANY_SM, "fma": 128, "alu": 64, "fp16": 64, "fp64": 2},
}
"""{target: {pipe: what one SM does in a clock at most}}, for bounds; what is not known is not there.

Lanes of instructions for "issue" (four schedulers, one warp each), "fma", "alu" (minimum and maximum of floats), "fp16" (pairs
count once), "fp64", "xu" (exp2 and the like), "lsu" (shuffles, as of all that goes that way); bytes for "shared" (32 banks of
4); multiply-accumulates for "tensor ...".
Sources, pipes: CUDA C++ Best Practices Guide 13.0 and 13.4, "Throughput of Native Arithmetic Instructions", and the table of
that name in the Programming Guide 12.9, as OpenXLA's cuda_core_info_table.cc and other readers of them quote it. Products:
A100 whitepaper (1024 of 16 bits, half as many of tf32); H100 whitepaper (twice that, fp8 twice 16-bit); sm_100a: 2250, 4500
and 9000 TFLOP/s over 148 SMs at 1.86 GHz; sm_120a: 503.8, 1010 and 2015 TFLOP/s of the RTX PRO 6000 over 188 SMs at 2.617 GHz,
of which GeForce has half with 16 and 8 bits where it accumulates in float32. The guides differ over "fp16" of sm_120a: 64 by
the later one and by the RTX Blackwell whitepaper, twice that by 12.9.
"""


@dataclass(frozen=True)
class Product:
    """Dense peak rates that a vendor or a table states of one product: bounds, at nominal clocks, never measurements."""

    name: str
    arch: str
    sms: int | None
    bf16_tflops: float | None
    """Dense, float32 accumulation."""
    fp8_tflops: float | None
    fp4_tflops: float | None
    dram_bytes_per_second: float
    source: str

    @property
    def clock_hz(self) -> float | None:
        """The clock at which its SMs reach the stated peak; None where that is not known."""
        per_clock = find(self.arch).per_clock
        peaks = {"tensor 16-bit": self.bf16_tflops, "tensor fp8": self.fp8_tflops, "tensor nvfp4": self.fp4_tflops}
        known = (1e12 * peak / (2 * per_clock[pipe]) for pipe, peak in peaks.items() if peak and pipe in per_clock)
        clocks_of_an_sm = next(known, None)
        return None if clocks_of_an_sm is None or self.sms is None else clocks_of_an_sm / self.sms


PRODUCTS = (
    Product("A100 80 GB SXM", "sm_80", 108, 312, None, None, 2.039e12, "NVIDIA A100 data sheet and whitepaper"),
    Product("H200 SXM", "sm_90a", 132, 989, 1979, None, 4.8e12, "NVIDIA H200 specification, itkb.uw.cz"),
    Product("B200", "sm_100a", 148, 2250, 4500, 9000, 8e12, "glennklockwood.com/garden/processors/B200"),
    Product("B300", "sm_103a", None, 2250, 4500, 13125, 8e12, "glennklockwood.com/garden/processors/B300"),
    Product("GeForce RTX 5090", "sm_120a", 170, None, None, 1676, 1.792e12, "half of the sparse 3352 that vendor pages state"),
    Product("RTX PRO 6000", "sm_120a", 188, 503.8, 1010, 2015, 1.792e12, "specification table of hmc-tech"),
    Product("GB10", "sm_121a", 48, None, None, 500, 0.273e12, "half of the sparse petaflop that NVIDIA states"),
)


def products(arch: Arch) -> tuple[Product, ...]:
    """The products of `arch` whose peaks are known."""
    return tuple(product for product in PRODUCTS if product.arch == arch.name)


@cache
def _probe() -> Probe:
    from impls.isa.result import load_committed

    return load_committed(PROBED_RELEASE)


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
