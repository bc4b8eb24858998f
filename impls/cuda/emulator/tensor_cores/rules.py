"""Rules of the tensor cores and of the matrix moves, and how far each is trusted."""

from __future__ import annotations

from impls.cuda.emulator.rules import Rule

_MODELS = "measured models of the MMA: arXiv 2511.10909 (mma.sync of each generation), tcgen05-model (B200)"

RULES: dict[str, Rule] = {
    "mma fragments": Rule("independent compiler", 'PTX ISA 9.1, "Matrix Fragments for mma.m16n8k16" and its neighbours'),
    "mma scale lanes and bytes, 4X": Rule("independent compiler", 'PTX ISA 9.1, "Block Scaling for mma.sync"'),
    "mma scale lanes and bytes, 1X and 2X": Rule("documented only", 'PTX ISA 9.1, "Block Scaling for mma.sync"'),
    "mma scale thread-ids": Rule("documented only", 'PTX ISA 9.1, "Block Scaling for mma.sync"'),
    "mma 25-bit window": Rule("documented only", f"{_MODELS}; Hopper and Blackwell, f16, bf16, tf32, fp8 and narrower"),
    "mma 24-bit window": Rule("documented only", f"{_MODELS}; Ampere and Ada, f16, bf16, tf32; K of 32 bytes in two halves"),
    "mma 13-bit window": Rule("documented only", f"{_MODELS}; Ada, fp8, D keeps 13 fraction bits; K of 32 in two halves"),
    "mma fp8 as two f16 MMAs": Rule("documented only", "SASS of ptxas 13.0 for sm_90a, sm_100a: F2FP, HMMA, F2FP, HMMA, FADD"),
    "mma 25-bit window with scales": Rule("documented only", f"{_MODELS}; mxf8f6f4"),
    "mma 35-bit window, blocks of 16": Rule("documented only", f"{_MODELS}; mxf4nvf4 with ue4m3"),
    "mma 35-bit window, blocks of 16, ue8m0": Rule(
        "documented only",
        f"{_MODELS}; mxf4, and mxf4nvf4 with ue8m0. The wider window and the floor of 2^-174 of tcgen05 are not here",
    ),
    "mma f16 result": Rule("documented only", f"{_MODELS}; to nearest even, NaN is 0x7fff"),
    "mma integers": Rule("documented only", 'PTX ISA 9.1, "mma": exact, .satfinite clamps, otherwise modulo 2^32'),
    "ldmatrix m8n8": Rule("independent compiler", 'PTX ISA 9.1, "ldmatrix"'),
    "ldmatrix m8n16": Rule("documented only", 'PTX ISA 9.1, "ldmatrix"; CUTLASS, copy_traits_sm100.hpp'),
    "ldmatrix m16n16": Rule("documented only", 'PTX ISA 9.1, "ldmatrix"; CUTLASS, copy_traits_sm100.hpp'),
    "stmatrix m8n8": Rule("independent compiler", 'PTX ISA 9.1, "stmatrix"'),
    "stmatrix m16n8": Rule("documented only", 'PTX ISA 9.1, "stmatrix"; CUTLASS, copy_traits_sm100.hpp'),
    "movmatrix": Rule("documented only", 'PTX ISA 9.1, "movmatrix"'),
}
"""By name: an instruction lists the names of the rules that it follows."""
