// Joins the results of splits:   out = sum_s exp(lse_s - lse) out_s,   lse = log sum_s exp(lse_s).
//
// A block has one row and 32 of its head dims, a lane each. Its warps share the splits, each with a sum relative to the largest
// lse that it has seen, so that lse and out are loaded together and waited for once; then the warps' sums are joined the same way.
// Launched while the last splits are still computed, where the GPU can; it waits for them itself.
#include "impls/cuda/kernels/fp4.cuh"

using i64 = long long;

// Given: V_HEAD_DIM (a multiple of 32), OUT_TYPE and OUT_FORMAT (unsigned short and Float16 or Bfloat16, float and Float32), WARPS
// (few where there are few splits: many rows with two splits each would otherwise be thousands of idle warps).
constexpr int AT_ONCE = 8;
constexpr float LOG2_E = 1.4426950408889634f, NO_KEY = __builtin_bit_cast(float, 0xFF800000u);

// exp(lse - top), and 0 for what saw no key.
__device__ __forceinline__ float weight(float lse, float top) { return lse == NO_KEY ? 0.f : exp2f((lse - top) * LOG2_E); }

extern "C" __global__ void __launch_bounds__(32 * WARPS) a4q_combine(
    const float* partial_out,  // [splits, B, Hq, Sq, Dv]
    const float* partial_lse,  // [splits, B, Hq, Sq]
    OUT_TYPE* out, float* lse, i64 out_batch_stride, i64 out_head_stride, i64 out_row_stride, i64 lse_batch_stride,
    i64 lse_head_stride, i64 lse_row_stride, int q_heads, int q_len, int splits) {
  __shared__ float tops[WARPS], totals[WARPS], sums[WARPS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const i64 row = blockIdx.x, rows = gridDim.x;
  const int dim = blockIdx.y * 32 + lane;
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  float top = NO_KEY, total = 0.f, sum = 0.f;
  for (int first = warp; first < splits; first += WARPS * AT_ONCE) {
    float part_lse[AT_ONCE], part_out[AT_ONCE], new_top = top;
    #pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const i64 split = first + i * WARPS;
      part_lse[i] = split < splits ? partial_lse[split * rows + row] : NO_KEY;
      part_out[i] = split < splits ? partial_out[(split * rows + row) * V_HEAD_DIM + dim] : 0.f;
    }
    #pragma unroll
    for (int i = 0; i < AT_ONCE; i++) new_top = fmaxf(new_top, part_lse[i]);
    const float keep = weight(top, new_top);
    top = new_top;
    total *= keep;
    sum *= keep;
    #pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const float part = weight(part_lse[i], top);
      total += part;
      sum += part * part_out[i];
    }
  }
  if (lane == 0) {
    tops[warp] = top;
    totals[warp] = total;
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0) return;

  top = NO_KEY, total = 0.f, sum = 0.f;
  #pragma unroll
  for (int i = 0; i < WARPS; i++) top = fmaxf(top, tops[i]);
  #pragma unroll
  for (int i = 0; i < WARPS; i++) {
    const float part = weight(tops[i], top);
    total += part * totals[i];
    sum += part * sums[i][lane];
  }
  const bool empty = total == 0.f;
  const i64 query = row % q_len, head = row / q_len % q_heads, batch = row / q_len / q_heads;
  out[batch * out_batch_stride + head * out_head_stride + query * out_row_stride + dim] =
      (OUT_TYPE)fp4::OUT_FORMAT::round(empty ? 0.f : sum / total, 0.f);
  if (lane == 0 && blockIdx.y == 0)
    lse[batch * lse_batch_stride + head * lse_head_stride + query * lse_row_stride] =
        empty ? NO_KEY : top + log2f(total) / LOG2_E;
}
