// NVFP4 in registers: eight E2M1 codes of a 32-bit word, and their E4M3 block scales, become pairs of 16-bit floats.
//
// A byte holds an even element in its low nibble and an odd one in its high nibble:   s e e m | s e e m
// E2M1 is a part of E4M3: its fields at an E4M3 byte's low exponent bits and top mantissa bit, s 00ee m00, read as
// value * 2^-6. From sm_89 on one instruction converts two such bytes to float16. Elsewhere, and to bfloat16, the fields are
// moved into a 16-bit float, where they read as the value times a power of two, subnormals included:
//
//        float16   s 000ee m00...     value * 2^-14             bfloat16   s 000000ee m00...     value * 2^-126
//
// The block scale carries back what keeps 6 * 448 in range, and the rest is UNIT: a decoded element is
//
//                       element * scale / UNIT      exactly: E2M1 times E4M3 has 6 significant bits
//
// and whoever multiplies by the global scale multiplies by UNIT too.
#pragma once

namespace fp4 {

using u32 = unsigned int;

// Pairs of float16.
struct Float16 {
  static __device__ __forceinline__ float widen(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }

  static __device__ __forceinline__ u32 multiply(u32 a, u32 b) {
    u32 product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
  }

  static __device__ __forceinline__ u32 round(float low, float high) {
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }

#if __CUDA_ARCH__ >= 890
  static constexpr float UNIT = 64.f;

  // E4M3 bytes 0 and 1.
  static __device__ __forceinline__ u32 scales(u32 two_bytes) {
    u32 pair;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low; }" : "=r"(pair) : "r"(two_bytes));
    return pair;
  }

  // The even (or odd) elements of bytes 0 and 1 -> pairs[0], of bytes 2 and 3 -> pairs[1]; still without their scale.
  template <bool ODD>
  static __device__ __forceinline__ void decode(u32 word, u32 (&pairs)[2]) {
    const u32 fields = (ODD ? word >> 2 : word << 2) & 0x1C1C1C1C;
    const u32 bytes = ((ODD ? word : word << 4) & 0x80808080) | fields;
    asm("{ .reg .b16 low, high; mov.b32 {low, high}, %2; cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high; }"
        : "=r"(pairs[0]), "=r"(pairs[1]) : "r"(bytes));
  }
#else
  static constexpr float UNIT = 128.f;

  // E4M3's exponent bias is 7 and float16's 15: its fields in a float16 read as the value * 2^-8; 2^7 goes to the codes.
  static __device__ __forceinline__ u32 scales(u32 two_bytes) {
    return multiply((__byte_perm(two_bytes, 0, 0x1404) & 0x7F007F00) >> 1, 0x78007800);  // 2^15
  }

  template <bool ODD>
  static __device__ __forceinline__ void decode(u32 word, u32 (&pairs)[2]) {
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      const u32 lanes = __byte_perm(word, 0, half ? 0x3424 : 0x1404) << (ODD ? 0 : 4);
      pairs[half] = (lanes & 0x80008000) | (lanes & 0x70007000) >> 3;
    }
  }
#endif
};

// Pairs of bfloat16.
struct Bfloat16 {
  static constexpr float UNIT = 128.f;

  static __device__ __forceinline__ float widen(unsigned short bits) { return __uint_as_float((u32)bits << 16); }

  static __device__ __forceinline__ u32 multiply(u32 a, u32 b) {  // sm_80 multiplies only with an addition: of -0
    u32 product;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
    return product;
  }

  static __device__ __forceinline__ u32 round(float low, float high) {
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
  }

  // E4M3's fields in a float32 read as the value * 2^-120; 2^119 of the codes' 2^126 is carried here.
  static __device__ __forceinline__ u32 scales(u32 two_bytes) {
    const float low = __uint_as_float((two_bytes & 0x7F) << 20), high = __uint_as_float((two_bytes & 0x7F00) << 12);
    constexpr float HALFWAY = 0x1p120f;  // in two steps: 2^239 is no float
    return round(low * HALFWAY * 0x1p119f, high * HALFWAY * 0x1p119f);
  }

  template <bool ODD>
  static __device__ __forceinline__ void decode(u32 word, u32 (&pairs)[2]) {
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      const u32 lanes = __byte_perm(word, 0, half ? 0x3424 : 0x1404) << (ODD ? 0 : 4);
      pairs[half] = (lanes & 0x80008000) | (lanes & 0x70007000) >> 6;
    }
  }
};

// Results that stay as they are.
struct Float32 {
  static __device__ __forceinline__ float round(float value, float) { return value; }
};

}  // namespace fp4
