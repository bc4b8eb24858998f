// Bulk copies from global to shared memory (sm_90 and newer), which complete on a barrier of shared memory: see barrier.cuh.
#pragma once
#include "impls/cuda/kernels/barrier.cuh"

namespace bulk {

using fp4::u32;
using u8 = unsigned char;

// The arrival of a phase of `barrier`, of which there is one (init): it completes when as many bytes have come.
__device__ __forceinline__ void expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// `to`, `from` and `bytes` are multiples of 16.
__device__ __forceinline__ void copy(u32 to, const u8* from, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

}  // namespace bulk
