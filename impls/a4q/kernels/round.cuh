// Rounding query rows to NVFP4 on the fly, bit by bit as `impls.nvfp4.quantize` defines it with one global scale for each row.
//
//   factor = max|row| / (6 * 448)                    1 where the row is zero
//   scale  = e4m3(max|block| / (6 * factor))
//   value  = e2m1(q / (scale * factor))              0 where scale * factor is 0
//
// Divisions are rounded to nearest, and nothing saturates but what `quantize` saturates. Dividing by one step 16 times is
// replaced by products with its reciprocal, each corrected once, which is division rounded to nearest for dividends of up to 11
// significant bits: see `impls.triton.rounding`.
#pragma once

namespace rounding {

constexpr float E2M1_MAX = 6.f, E4M3_MAX = 448.f, GLOBAL_SCALE_MIN = 0x1p-126f;

__device__ __forceinline__ float row_factor(float amax) {
  return amax == 0.f ? 1.f : fmaxf(__fdiv_rn(amax, E2M1_MAX * E4M3_MAX), GLOBAL_SCALE_MIN);
}

// float32 >= 0 to E4M3, ties to even. From 2^e on, e >= -6, its numbers are multiples of 2^(e-3).
__device__ __forceinline__ float to_e4m3(float x) {
  x = fminf(x, E4M3_MAX);
  const int exponent = max(__float_as_int(x) >> 23, 121);  // biased; 121 stands for 2^-6
  const float magic = __int_as_float(exponent + 20 << 23);
  return __fsub_rn(__fadd_rn(x, magic), magic);
}

// float32 to E2M1, ties to even. Its numbers are multiples of 2^(e-1) from 2^e on, e = 0, 1, 2, and below 1 of 1/2.
__device__ __forceinline__ float to_e2m1(float x) {
  const float magnitude = fminf(fabsf(x), E2M1_MAX);
  const int exponent = max(__float_as_int(magnitude) >> 23, 127);  // biased; 127 stands for 1
  const float magic = __int_as_float(exponent + 22 << 23);
  return copysignf(__fsub_rn(__fadd_rn(magnitude, magic), magic), x);
}

// A block of 16 in place, to e2m1 * scale without the row factor: exact in float16. Its values are those of 16-bit floats.
__device__ __forceinline__ void round_block(float (&block)[16], float factor) {
  float amax = 0.f;
  #pragma unroll
  for (int i = 0; i < 16; i++) amax = fmaxf(amax, fabsf(block[i]));
  const float scale = to_e4m3(__fdiv_rn(amax, __fmul_rn(E2M1_MAX, factor)));
  const float step = __fmul_rn(scale, factor);
  // A power of two brings the step near 1, so that nothing near a boundary of E2M1 over- or underflows on its way.
  const float unit = __int_as_float(254 - (__float_as_int(step) >> 23) << 23);
  const float divisor = step == 0.f ? 1.f : __fmul_rn(step, unit), reciprocal = __frcp_rn(divisor);
  #pragma unroll
  for (int i = 0; i < 16; i++) {
    const float dividend = __fmul_rn(block[i], unit), quotient = __fmul_rn(dividend, reciprocal);
    const float corrected = __fmaf_rn(__fmaf_rn(quotient, -divisor, dividend), reciprocal, quotient);
    block[i] = step == 0.f ? 0.f : to_e2m1(corrected) * scale;
  }
}

}  // namespace rounding
