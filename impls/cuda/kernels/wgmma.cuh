// Products of a warp group, wgmma (sm_90a): 64 rows, 16-bit operands, float32 sums (PTX ISA, "Asynchronous warpgroup level
// matrix instructions").
//
// In registers, sums or a first operand: lane 4 g + t of warp w of the group holds of rows 16 w to 16 w + 15 what a lane of
// mma.sync does (see mma.cuh), for each 8 columns of the sums and each 16 of the operand in turn.
//
// In shared memory, operands are lines of 128 bytes, 64 values. Eight lines repeat a pattern, from a multiple of 1024 bytes on:
//
//        16 bytes c of line l are at   128 l + 16 (c ^ l % 8)
//
//   along the sum     a line is a row (a column of the second operand) and has 64 terms; 16 terms further: 32 bytes
//   across the sum    a line is a term and has 64 columns; 16 terms further: 2048 bytes; 64 columns further: `leading` bytes
#pragma once
#include "impls/cuda/kernels/fp4.cuh"

namespace wgmma {

using fp4::u32;
using u64 = unsigned long long;

constexpr u32 LINE = 128, EIGHT_LINES = 8 * LINE;

// Of 16 bytes `chunk` of line `line`.
__device__ __forceinline__ u32 offset(u32 line, u32 chunk) { return line * LINE + ((chunk ^ line % 8) << 4); }

// The descriptor of a matrix that begins at `address` of shared memory.
__device__ __forceinline__ u64 matrix(u32 address, u32 leading = 16) {
  constexpr u32 PATTERN_OF_128_BYTES = 1u << 30;
  const u32 low = (address & 0x3FFFF) >> 4 | leading >> 4 << 16, high = EIGHT_LINES >> 4 | PATTERN_OF_128_BYTES;
  return (u64)high << 32 | low;
}

// The same, `bytes` further.
__device__ __forceinline__ u64 further(u64 matrix, u32 bytes) {
  return matrix & 0xFFFFFFFF00000000 | (u32)matrix + (bytes >> 4);
}

// 64 columns of sums: [column / 8][row / 8 of a warp's 16][column % 2].
using Sums = float[32];

// Keeps accesses to sums on their side of it: the compiler does not know that products are asynchronous.
template <int COUNT>
__device__ __forceinline__ void hold(Sums (&d)[COUNT]) {
  #pragma unroll
  for (int i = 0; i < 32 * COUNT; i++) asm volatile("" : "+f"(d[i / 32][i % 32])::"memory");
}

__device__ __forceinline__ void begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Until all groups of products but the last PENDING are done.
template <int PENDING>
__device__ __forceinline__ void wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory"); }

#define PLACES_0 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_1 \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PLACES_2 \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define PLACES_3 \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define EIGHT(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS(d) EIGHT(d, 0), EIGHT(d, 8), EIGHT(d, 16), EIGHT(d, 24)
#define PLACES_OF_1 PLACES_0
#define PLACES_OF_2 PLACES_OF_1 ", " PLACES_1
#define PLACES_OF_3 PLACES_OF_2 ", " PLACES_2
#define PLACES_OF_4 PLACES_OF_3 ", " PLACES_3
#define SUMS_OF_1(d) SUMS(d[0])
#define SUMS_OF_2(d) SUMS_OF_1(d), SUMS(d[1])
#define SUMS_OF_3(d) SUMS_OF_2(d), SUMS(d[2])
#define SUMS_OF_4(d) SUMS_OF_3(d), SUMS(d[3])

// d += a @ b, or d = a @ b where not `add`: [64, 16] @ [16, 64 * COUNT], both along the sum in shared memory.
template <typename T, int COUNT>
__device__ __forceinline__ void add_product(Sums (&d)[COUNT], u64 a, u64 b, bool add);

#define ADD_PRODUCT(T, NAME, COUNT, N, A, B, ADD)                                                             \
  template <>                                                                                                 \
  __device__ __forceinline__ void add_product<T, COUNT>(Sums (&d)[COUNT], u64 a, u64 b, bool add) {           \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADD ", 0; "                                                \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." NAME "." NAME                               \
                 " {" PLACES_OF_##COUNT "}, " A ", " B ", p, 1, 1, 0, 0; }"                                   \
                 : SUMS_OF_##COUNT(d) : "l"(a), "l"(b), "r"((u32)add));                                       \
  }
ADD_PRODUCT(fp4::Float16, "f16", 1, "64", "%32", "%33", "%34")
ADD_PRODUCT(fp4::Float16, "f16", 2, "128", "%64", "%65", "%66")
ADD_PRODUCT(fp4::Bfloat16, "bf16", 1, "64", "%32", "%33", "%34")
ADD_PRODUCT(fp4::Bfloat16, "bf16", 2, "128", "%64", "%65", "%66")
#undef ADD_PRODUCT

// d += a @ b in float16: [64, 16] in registers @ [16, 64 * COUNT] in shared memory, across the sum if ACROSS.
template <bool ACROSS, int COUNT>
__device__ __forceinline__ void add_product(Sums (&d)[COUNT], const u32 (&a)[4], u64 b);

#define ADD_PRODUCT(COUNT, N, A, B, ADD, ACROSS)                                                              \
  template <>                                                                                                 \
  __device__ __forceinline__ void add_product<ACROSS, COUNT>(Sums (&d)[COUNT], const u32 (&a)[4], u64 b) {    \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, " ADD ", 0; "                                                \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32.f16.f16 "                                     \
                 "{" PLACES_OF_##COUNT "}, {" A "}, " B ", p, 1, 1, " #ACROSS "; }"                           \
                 : SUMS_OF_##COUNT(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(1));          \
  }
#define BOTH_WAYS(...) ADD_PRODUCT(__VA_ARGS__, 0) ADD_PRODUCT(__VA_ARGS__, 1)
BOTH_WAYS(1, "64", "%32, %33, %34, %35", "%36", "%37")
BOTH_WAYS(2, "128", "%64, %65, %66, %67", "%68", "%69")
BOTH_WAYS(3, "192", "%96, %97, %98, %99", "%100", "%101")
BOTH_WAYS(4, "256", "%128, %129, %130, %131", "%132", "%133")
#undef BOTH_WAYS
#undef ADD_PRODUCT

}  // namespace wgmma
