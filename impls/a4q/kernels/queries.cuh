// Loads of query rows. Given: what attend.cuh is, and Q_ALIGNMENT.
#pragma once
#include "impls/cuda/kernels/attend.cuh"

// 16 values of a row, from `from` on.
__device__ __forceinline__ void load_block(float (&values)[16], const unsigned short* from, bool exists) {
  unsigned short bits[16] = {};
  if (exists) {
    if constexpr (Q_ALIGNMENT >= 16) {
      reinterpret_cast<uint4*>(bits)[0] = reinterpret_cast<const uint4*>(from)[0];
      reinterpret_cast<uint4*>(bits)[1] = reinterpret_cast<const uint4*>(from)[1];
    } else {
      #pragma unroll
      for (int i = 0; i < 16; i++) bits[i] = from[i];
    }
  }
  #pragma unroll
  for (int i = 0; i < 16; i++) values[i] = Q::widen(bits[i]);
}
