// Barriers in shared memory (mbarrier), between warps that produce and warps that consume; named by their addresses there.
#pragma once
#include "impls/cuda/kernels/fp4.cuh"

namespace barrier {

using fp4::u32;

__device__ __forceinline__ void init(u32 at, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void arrive(u32 at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

// Until the phase of this parity is complete. The phase before the first, of parity 1, counts as complete.
__device__ __forceinline__ void wait(u32 at, u32 parity) {
  u32 complete;
  do {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(complete) : "r"(at), "r"(parity) : "memory");
  } while (!complete);
}

// What this thread has written to shared memory is seen by those that read it asynchronously, as wgmma does.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace barrier
