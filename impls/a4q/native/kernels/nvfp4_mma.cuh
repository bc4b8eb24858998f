// NVFP4 operands in registers, for sm_120a and sm_121a: products of packed codes and scales, and their conversions.
//
// mma.sync.m16n8k64 kind::mxf4nvf4 with scale_vec::4X (PTX ISA, "Warp-level matrix instructions"): 64 head dims of 16 query rows
// and 8 keys. Lane 4 g + t of a warp (g = 0..7, t = 0..3) holds eight codes a register, the first in the lowest bits:
//
//        A [16, 64]                                  B [64, 8]                              C [16, 8], float32
//   a0  row g      columns 8t      .. 8t + 7    b0  rows 8t      .. 8t + 7,  column g   c0, c1  row g      columns 2t, 2t+1
//   a1  row g + 8  columns 8t      .. 8t + 7    b1  rows 8t + 32 .. 8t + 39, column g   c2, c3  row g + 8  columns 2t, 2t+1
//   a2  row g      columns 8t + 32 .. 8t + 39
//   a3  row g + 8  columns 8t + 32 .. 8t + 39
//
// A row's or column's four scales, of 16 codes each, are the bytes of one register of one lane, and the instruction names the
// lane: of row m it is lane 4 (m % 8) + 2 THREAD_A + m / 8, of column n lane 4 n + THREAD_B. So the lanes of a quad need not hold
// the same scales: they hold those of different products.
//
// What C becomes is what A of m16n8k16 wants (mma.cuh): columns 2t, 2t + 1 of two neighbouring C are columns 2t, 2t + 1 and
// 2t + 8, 2t + 9 of an A.
#pragma once

namespace nvfp4 {

using u32 = unsigned int;

// c += a @ b. SCALES_A and SCALES_B are of the lanes that THREAD_A (0, 1) and THREAD_B (0 .. 3) name.
template <int THREAD_A, int THREAD_B>
__device__ __forceinline__ void add_product(float (&c)[4], const u32 (&a)[4], u32 scales_a, u32 b0, u32 b1, u32 scales_b) {
  asm("mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, {%10}, {0, %11}, {%12}, {0, %13};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(scales_a), "n"(THREAD_A), "r"(scales_b), "n"(THREAD_B));
}

// Four 8-row matrices of 16 bytes a row: lane 8 m + r names row r of matrix m, lane 4 g + t gets bytes 4t .. 4t + 3 of row g of
// each. With keys as rows that is B, above.
__device__ __forceinline__ void load_matrices(u32 (&words)[4], u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(row) : "memory");
}

// The codes of each byte as two float16, the low nibble in the low half. They still lack their scale.
__device__ __forceinline__ void decode(u32 word, u32 (&pairs)[4]) {
  asm("{ .reg .b8 a, b, c, d; mov.b32 {a, b, c, d}, %4; cvt.rn.f16x2.e2m1x2 %0, a; cvt.rn.f16x2.e2m1x2 %1, b; "
      "cvt.rn.f16x2.e2m1x2 %2, c; cvt.rn.f16x2.e2m1x2 %3, d; }"
      : "=r"(pairs[0]), "=r"(pairs[1]), "=r"(pairs[2]), "=r"(pairs[3]) : "r"(word));
}

// Two lines of eight codes as two words: byte i of the first has codes 2i of both lines, the second has codes 2i + 1, `low`'s
// in the low nibbles.
//
//   low    a7 a6 a5 a4 a3 a2 a1 a0     ->   even   b6 a6 b4 a4 b2 a2 b0 a0
//   high   b7 b6 b5 b4 b3 b2 b1 b0          odd    b7 a7 b5 a5 b3 a3 b1 a1
__device__ __forceinline__ void interleave(u32 low, u32 high, u32& even, u32& odd) {
  even = (low & 0x0F0F0F0F) | (high << 4 & 0xF0F0F0F0);
  odd = (low >> 4 & 0x0F0F0F0F) | (high & 0xF0F0F0F0);
}

// Eight floats to codes, to nearest, ties to even, saturating at 6; the first in the lowest bits.
__device__ __forceinline__ u32 codes_of(const float (&x)[8]) {
  u32 word;
  asm("{ .reg .b8 a, b, c, d; cvt.rn.satfinite.e2m1x2.f32 a, %2, %1; cvt.rn.satfinite.e2m1x2.f32 b, %4, %3; "
      "cvt.rn.satfinite.e2m1x2.f32 c, %6, %5; cvt.rn.satfinite.e2m1x2.f32 d, %8, %7; mov.b32 %0, {a, b, c, d}; }"
      : "=r"(word) : "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "f"(x[4]), "f"(x[5]), "f"(x[6]), "f"(x[7]));
  return word;
}

// The byte of an E4M3 number.
__device__ __forceinline__ unsigned char e4m3_byte(float number) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.f), "f"(number));
  return (unsigned char)pair;
}

}  // namespace nvfp4
