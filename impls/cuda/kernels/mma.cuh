// Warp-level products of 16-bit floats, mma.sync.m16n8k16, with float32 sums (PTX ISA, "Warp-level matrix instructions").
//
// Lane 4 g + t of a warp (g = 0..7, t = 0..3) holds, two values in a register:
//
//        A [16, 16]                              B [16, 8]             C [16, 8], float32
//   a0  row g      columns 2t, 2t+1         b0  rows 2t, 2t+1      c0, c1  row g      columns 2t, 2t+1
//   a1  row g + 8  columns 2t, 2t+1             column g           c2, c3  row g + 8  columns 2t, 2t+1
//   a2  row g      columns 2t+8, 2t+9       b1  rows 2t+8, 2t+9
//   a3  row g + 8  columns 2t+8, 2t+9           column g
#pragma once
#include "impls/cuda/kernels/fp4.cuh"

namespace mma {

using fp4::u32;

// c += a @ b, operands of type T.
template <typename T>
__device__ __forceinline__ void add_product(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]);

#define ADD_PRODUCT(T, NAME)                                                                                              \
  template <>                                                                                                             \
  __device__ __forceinline__ void add_product<T>(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {                   \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." NAME "." NAME ".f32 "                                                    \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                                 \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                                  \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                              \
  }
ADD_PRODUCT(fp4::Float16, "f16")
ADD_PRODUCT(fp4::Bfloat16, "bf16")
#undef ADD_PRODUCT

// An 8 x 8 matrix of 16-bit values, row g at lanes 4 g + t, two values each, to its transpose.
__device__ __forceinline__ u32 transposed(u32 matrix) {
  u32 result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix));
  return result;
}

}  // namespace mma
