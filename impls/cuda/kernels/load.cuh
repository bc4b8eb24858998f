// Loads of packed bytes, as wide as their addresses are aligned. They are read once, so they leave nothing in the L1.
#pragma once

namespace load {

using u8 = unsigned char;
using u32 = unsigned int;

// BYTES bytes, in words of 4, of which the last may be filled in part; `from` is a multiple of ALIGNMENT.
template <int BYTES, int ALIGNMENT>
__device__ __forceinline__ void bytes(u32 (&words)[(BYTES + 3) / 4], const u8* from) {
  if constexpr (BYTES % 16 == 0 && ALIGNMENT >= 16) {
    #pragma unroll
    for (int i = 0; i < BYTES / 4; i += 4)
      asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(words[i]), "=r"(words[i + 1]), "=r"(words[i + 2]), "=r"(words[i + 3]) : "l"(from + 4 * i));
  } else if constexpr (BYTES % 8 == 0 && ALIGNMENT >= 8) {
    #pragma unroll
    for (int i = 0; i < BYTES / 4; i += 2)
      asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];"
                   : "=r"(words[i]), "=r"(words[i + 1]) : "l"(from + 4 * i));
  } else if constexpr (BYTES % 4 == 0 && ALIGNMENT >= 4) {
    #pragma unroll
    for (int i = 0; i < BYTES / 4; i++)
      asm volatile("ld.global.nc.L1::no_allocate.L2::256B.u32 %0, [%1];" : "=r"(words[i]) : "l"(from + 4 * i));
  } else if constexpr (BYTES == 2 && ALIGNMENT >= 2) {
    unsigned short half;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(half) : "l"(from));
    words[0] = half;
  } else {
    #pragma unroll
    for (int i = 0; i < BYTES; i++) {
      u32 byte;
      asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(byte) : "l"(from + i));
      words[i / 4] = i % 4 ? words[i / 4] | byte << 8 * (i % 4) : byte;
    }
  }
}

}  // namespace load
