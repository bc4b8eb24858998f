// E4M3: rounding to it, unpacking NVFP4 to it, and its warp-level product (PTX ISA, "Warp-level matrix instructions").
//
// mma.sync.m16n8k32: lane 4 g + t of a warp (g = 0..7, t = 0..3) holds, four values in a register:
//
//        A [16, 32]                              B [32, 8]                  C [16, 8], float32
//   a0  row g      columns 4t..4t+3         b0  rows 4t..4t+3          c0, c1  row g      columns 2t, 2t+1
//   a1  row g + 8  columns 4t..4t+3             column g               c2, c3  row g + 8  columns 2t, 2t+1
//   a2  row g      columns 4t+16..4t+19     b1  rows 4t+16..4t+19
//   a3  row g + 8  columns 4t+16..4t+19         column g
//
// The 32 that are summed over may be taken in any order that A and B share. Here it is the one in which a lane's two registers
// of a row, or of a column, are 8 bytes side by side: bytes 8t..8t+7 of 32.
#pragma once
#include "impls/cuda/kernels/fp4.cuh"

namespace fp8 {

using fp4::u32;

constexpr float UNIT = 8.f;  // e2m1 * scale, at most 6 * 448, is rounded as a multiple of it: at most 336, of E4M3's 448

// Two float32 as E4M3 bytes, `low` first.
__device__ __forceinline__ unsigned short round(float low, float high) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

// Two pairs of float16 as E4M3 bytes, `low` first.
__device__ __forceinline__ u32 round(u32 low, u32 high) {
  u32 bytes;
  asm("{ .reg .b16 a, b; cvt.rn.satfinite.e4m3x2.f16x2 a, %1; cvt.rn.satfinite.e4m3x2.f16x2 b, %2; mov.b32 %0, {a, b}; }"
      : "=r"(bytes) : "r"(low), "r"(high));
  return bytes;
}

// The block scale of `unpack`, twice: what makes a decoded element, element / fp4's UNIT, one of element * scale / UNIT.
__device__ __forceinline__ u32 scale_of(u32 byte) {
  static_assert(fp4::Float16::UNIT == 8.f * UNIT, "the factor below");
  return fp4::Float16::multiply(fp4::Float16::scales(byte | byte << 8), 0x48004800);  // 8, 8
}

// Eight codes and their scale as E4M3, rounded once: bytes[0] elements 0, 2, 4, 6, bytes[1] elements 1, 3, 5, 7.
__device__ __forceinline__ void unpack(u32 (&bytes)[2], u32 word, u32 scale) {
  u32 even[2], odd[2];
  fp4::Float16::decode<false>(word, even);
  fp4::Float16::decode<true>(word, odd);
  bytes[0] = round(fp4::Float16::multiply(even[0], scale), fp4::Float16::multiply(even[1], scale));
  bytes[1] = round(fp4::Float16::multiply(odd[0], scale), fp4::Float16::multiply(odd[1], scale));
}

// c += a @ b, rows of A at `a_low` (row g) and `a_high` (row g + 8), a column of B at `b`: a lane's 8 bytes of each.
__device__ __forceinline__ void add_product(float (&c)[4], const uint2& a_low, const uint2& a_high, const uint2& b) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a_low.x), "r"(a_high.x), "r"(a_low.y), "r"(a_high.y), "r"(b.x), "r"(b.y));
}

}  // namespace fp8
