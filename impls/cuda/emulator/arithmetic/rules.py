"""Which rules the arithmetic follows, and how far each is trusted."""

from __future__ import annotations

from impls.cuda.emulator.rules import Rule, Status

_D: Status = "documented only"
_C: Status = "independent compiler"

RULES: dict[str, Rule] = {
    "bits": Rule(_C, "PTX ISA 9.1, 9.7.9 (mov) and 9.7.6 (selp, slct)"),
    "integer": Rule(_C, "PTX ISA 9.1, 9.7.1: wraps around"),
    "integer saturation": Rule(_D, "PTX ISA 9.1, 9.7.1: .sat clamps to MININT..MAXINT"),
    "integer 24 bits": Rule(_D, "PTX ISA 9.1, 9.7.1.5 and 9.7.1.6"),
    "integer division": Rule(_D, "PTX ISA 9.1, 9.7.1.8 and 9.7.1.9; by zero it is unspecified: all ones and the dividend here"),
    "dot product of bytes": Rule(_D, "PTX ISA 9.1, 9.7.1 (dp4a, dp2a)"),
    "integer comparison": Rule(_C, "PTX ISA 9.1, 9.7.6"),
    "logic": Rule(_C, "PTX ISA 9.1, 9.7.8"),
    "lop3": Rule(_C, "PTX ISA 9.1, 9.7.8 (lop3): table of 0xF0, 0xCC, 0xAA"),
    "shift": Rule(_C, "PTX ISA 9.1, 9.7.8 (shl, shr): amounts from the width on are clamped to it"),
    "funnel shift": Rule(_D, "PTX ISA 9.1, 9.7.8 (shf)"),
    "bit field": Rule(_D, "PTX ISA 9.1, 9.7.1 (bfe, bfi, bmsk, szext)"),
    "bit count": Rule(_D, "PTX ISA 9.1, 9.7.1 (popc, clz, bfind, brev)"),
    "prmt": Rule(_C, "PTX ISA 9.1, 9.7.9 (prmt)"),
    "float f32": Rule(_C, "PTX ISA 9.1, 9.7.3: IEEE 754; NaN 0x7fffffff, which PTX leaves open"),
    "float f64": Rule(_D, "PTX ISA 9.1, 9.7.3: IEEE 754; NaN is the second operand, else the first, else negative"),
    "float f16": Rule(_D, "PTX ISA 9.1, 9.7.4: IEEE 754; NaN 0x7fff"),
    "float bf16": Rule(_D, "PTX ISA 9.1, 9.7.4: IEEE 754; NaN 0x7fff"),
    "fma f32": Rule(_C, "PTX ISA 9.1, 9.7.3 (fma): one rounding; NaN 0x7fffffff, which PTX leaves open"),
    "fma f64": Rule(_D, "PTX ISA 9.1, 9.7.3 (fma): one rounding; NaN is the second, third or first operand, in this order"),
    "fma f16": Rule(_D, "PTX ISA 9.1, 9.7.4 (fma): one rounding; NaN 0x7fff"),
    "fma bf16": Rule(_D, "PTX ISA 9.1, 9.7.4 (fma): one rounding; NaN 0x7fff"),
    "mixed precision": Rule(_D, "PTX ISA 9.1, 9.7.5: the 16-bit operand is widened exactly"),
    "IEEE division and root": Rule(_D, "PTX ISA 9.1, 9.7.3 (div, rcp, sqrt with a rounding); NaN of f64: the first operand"),
    "float sign": Rule(_C, "PTX ISA 9.1, 9.7.3 and 9.7.4 (abs, neg, copysign): the sign bit; NaN as of add"),
    "float min and max": Rule(_C, "PTX ISA 9.1, 9.7.3 and 9.7.4 (min, max): +0 above -0, NaN counts as missing"),
    "float comparison": Rule(_C, "PTX ISA 9.1, 9.7.6 and 9.7.7"),
    "testp": Rule(_D, "PTX ISA 9.1, 9.7.3 (testp)"),
    "approximation": Rule(_D, "PTX ISA 9.1, 9.7.3: one result within the documented error, not the bits of a GPU"),
    "approximation f64": Rule(_D, "PTX ISA 9.1, 9.7.3.14, 9.7.3.16 and 9.7.3.17: one legal result, not the bits of a GPU"),
    "approximation 16 bits": Rule(_D, "PTX ISA 9.1, 9.7.4: one result within the documented error, not the bits of a GPU"),
    "cvt integer": Rule(_C, "PTX ISA 9.1, 9.7.9.21"),
    "cvt float to integer": Rule(_D, "PTX ISA 9.1, 9.7.9.21: clamps; NaN is 0, or 1 << (width - 1) from f64 or to 64 bits"),
    "cvt integer to float": Rule(_D, "PTX ISA 9.1, 9.7.9.21"),
    "cvt float": Rule(_C, "PTX ISA 9.1, 9.7.9.21; NaN canonical, which PTX leaves open; kept from f64, bf16 or to f64"),
    "cvt tf32": Rule(_D, "PTX ISA 9.1, 9.7.9.21; NaN 0x7fffe000, of .rna its upper bits, which PTX leaves open"),
    "cvt packed 16 bits": Rule(_C, "PTX ISA 9.1, 9.7.9.21: the first operand goes to the upper half"),
    "cvt narrow": Rule(_C, "PTX ISA 9.1, 9.7.9.21: the first operand goes to the upper bits; NaN stays, or becomes +largest"),
    "cvt ue8m0": Rule(_D, "PTX ISA 9.1, 9.7.9.21: the sign is ignored"),
    "cvt.pack": Rule(_D, "PTX ISA 9.1, 9.7.9 (cvt.pack)"),
}
