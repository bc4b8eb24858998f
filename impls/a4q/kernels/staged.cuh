// Whole steps by way of shared memory, for decode.cu, whose constants these are. They come packed as they are, STAGES rounds of
// all teams ahead. In global memory lines follow each other, so a round, a step of each team, is four runs of bytes: few long
// copies, because the copy engine takes 50 to 70 cycles for each, however short.
//
//   stage   | codes of K | codes of V | scales of K | scales of V |      TEAMS * KEYS lines each
#pragma once
#include "impls/cuda/kernels/attend.cuh"
#include "impls/cuda/kernels/bulk.cuh"

constexpr int ROUND = TEAMS * KEYS, K_CODES = 0, V_CODES = K_CODES + ROUND * HEAD_DIM / 2,
              K_SCALES = V_CODES + ROUND * V_HEAD_DIM / 2, V_SCALES = K_SCALES + ROUND * HEAD_DIM / 16,
              STAGE_BYTES = V_SCALES + ROUND * V_HEAD_DIM / 16;
static_assert(PAGE_SIZE == 0 && !V_ALONG_TOKENS && !WINDOWED, "rounds that are runs of bytes");

struct Ring {
  u8* stages;
  u32* done;    // for each stage: warps that have read it
  u32 arrived;  // a barrier for each stage
  u32 stage = 0, parity = 0;

  __device__ __forceinline__ const u8* round() const { return stages + stage * STAGE_BYTES; }
  __device__ __forceinline__ void wait() const { barrier::wait(arrived + 8 * stage, parity); }
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};

// Ask for the round that begins with step `first`, of steps before `stop`. Lane 0 of a warp does, whose part of a line is the
// beginning of the warp's.
__device__ __forceinline__ void fill(const Ring& ring, u32 stage, const Cache& cache, int first, int stop, int part) {
  if (first >= stop) return;
  const i64 key = first * KEYS;
  const u32 keys = min(stop - first, TEAMS) * KEYS;
  const u32 barrier = ring.arrived + 8 * stage, to = (u32)__cvta_generic_to_shared(ring.stages) + stage * STAGE_BYTES;
  bulk::expect(barrier, keys * ((HEAD_DIM + V_HEAD_DIM) * 9 / 16));
  bulk::copy(to + K_CODES, cache.k.base - part * (K_DIM / 2) + key * (HEAD_DIM / 2), keys * (HEAD_DIM / 2), barrier);
  bulk::copy(to + K_SCALES, cache.k_scales.base - part * (K_DIM / 16) + key * (HEAD_DIM / 16), keys * (HEAD_DIM / 16), barrier);
  bulk::copy(to + V_CODES, cache.v.base - part * (V_DIM / 2) + key * (V_HEAD_DIM / 2), keys * (V_HEAD_DIM / 2), barrier);
  bulk::copy(to + V_SCALES, cache.v_scales.base - part * (V_DIM / 16) + key * (V_HEAD_DIM / 16), keys * (V_HEAD_DIM / 16),
             barrier);
}

// A warp has read its stage. The last to say so asks for the round that begins with step `next`.
__device__ __forceinline__ void release(const Ring& ring, const Cache& cache, int next, int stop, int part, int lane) {
  __syncwarp();
  if (lane > 0) return;
  __threadfence_block();
  if (atomicInc(ring.done + ring.stage, WARPS - 1) == WARPS - 1) {
    __threadfence_block();
    fill(ring, ring.stage, cache, next, stop, part);
  }
}

// BYTES bytes of shared memory, a multiple of 4 or fewer, in words.
template <int BYTES>
__device__ __forceinline__ void read(u32* words, const u8* from) {
  if constexpr (BYTES == 16) {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
  } else if constexpr (BYTES == 8) {
    const uint2 all = *reinterpret_cast<const uint2*>(from);
    words[0] = all.x, words[1] = all.y;
  } else if constexpr (BYTES == 4) {
    words[0] = *reinterpret_cast<const u32*>(from);
  } else if constexpr (BYTES == 2) {
    words[0] = *reinterpret_cast<const unsigned short*>(from);
  } else {
    words[0] = *from;
  }
}

__device__ __forceinline__ void read_k(Step& step, const u8* round, int team, int part, int g, int t) {
  const int line = team * KEYS + token_of_row(0, g);
  const u8* codes = round + K_CODES + line * (HEAD_DIM / 2) + part * (K_DIM / 2) + t * K_VECTOR;
  const u8* scales = round + K_SCALES + line * (HEAD_DIM / 16) + part * (K_DIM / 16) + t * K_BLOCKS;
  #pragma unroll
  for (int tile = 0; tile < KEY_TILES; tile++)
    #pragma unroll
    for (int half = 0; half < 2; half++)
      #pragma unroll
      for (int c = 0; c < K_CHUNKS; c++) {
        const int token = token_of_row(tile, 8 * half);
        read<K_VECTOR>(step.k[tile][half][c], codes + token * (HEAD_DIM / 2) + c * 4 * K_VECTOR);
        read<K_BLOCKS>(&step.k_scales[tile][half][c], scales + token * (HEAD_DIM / 16) + c * 4 * K_BLOCKS);
      }
}

__device__ __forceinline__ void read_v(Step& step, int tile, const u8* round, int team, int part, int g, int t) {
  const int line = team * KEYS + t;
  const u8* codes = round + V_CODES + line * (V_HEAD_DIM / 2) + part * (V_DIM / 2) + g * V_VECTOR;
  const u8* scales = round + V_SCALES + line * (V_HEAD_DIM / 16) + part * (V_DIM / 16) + g * V_VECTOR / 8;
  #pragma unroll
  for (int i = 0; i < 4; i++)
    #pragma unroll
    for (int c = 0; c < V_CHUNKS; c++) {
      const int token = 16 * tile + 4 * i;
      read<V_VECTOR>(step.v[tile][i][c], codes + token * (V_HEAD_DIM / 2) + c * 8 * V_VECTOR);
      read<V_BLOCKS>(&step.v_scales[tile][i][c], scales + token * (V_HEAD_DIM / 16) + c * V_VECTOR);
    }
}
