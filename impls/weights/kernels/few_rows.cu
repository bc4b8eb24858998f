// Up to 8 rows of x times packed NVFP4 weights, which go from memory to registers and are decoded there.
//
// A block has LINES lines of the weights and all of the sum over K, dealt to its warps: their sums meet once, in shared memory.
// 16 lines are the rows of mma.sync's first operand, rows of x its 8 columns:
//
//   out^T [16 lines, 8 rows] += W [16 lines, 16 elements] @ x^T [16 elements, 8 rows]
//
// Lane 4 g + t loads words 4t .. 4t + 3 of a tile (see `impls/weights/decode.py`) of lines g and g + 8: elements 16t .. 16t + 15
// of either half, which have one scale. It multiplies them by the same elements of row g of x: a sum may run in any order that
// both operands have. STAGES tiles of a warp are on their way at once, and lanes exchange nothing.
#include "impls/cuda/kernels/load.cuh"
#include "impls/cuda/kernels/mma.cuh"

using fp4::u32;
using load::u8;
using i64 = long long;
using u16 = unsigned short;

// Given: TYPE (Float16, Bfloat16), RAGGED (K is no multiple of 128), RAGGED_LINES (N is none of LINES), X_ALIGNED (rows of x
// start at multiples of 16 bytes), WARPS, STAGES, BLOCKS_PER_SM.
using T = fp4::TYPE;
constexpr int ROWS = 8, TILE = 128, LINES = 16;
constexpr int APART = LINES + 4;  // rows of sums in shared memory: lanes of a warp then write to 32 banks
constexpr float UNIT = 128.f;     // a decoded weight times this and the global scale is its value

// Pair PAIR of a word, its fields at the right of a 16-bit exponent: e2m1 * 2^-126 in bfloat16, e2m1 * 2^-14 in float16.
template <typename Type> constexpr u32 PLACES = 1;
template <> constexpr u32 PLACES<fp4::Float16> = 8;

template <int PAIR>
__device__ __forceinline__ u32 fields(u32 word) {
  u32 pair;
  if constexpr (PAIR < 3) pair = word << 3 * PAIR & 0x81C081C0;
  else pair = (word << 1 & 0x80008000) | (word >> 5 & 0x01000100) | (word >> 4 & 0x00C000C0);
  return pair + (pair & 0x01C001C0) * (PLACES<T> - 1);
}

// Pairs of e4m3 * 2^119 (bfloat16) or * 2^7 (float16): with codes' fields they make e2m1 * e4m3 * 2^-7. Of a tile's 8 scales,
// those of the lane's elements in the first half and in the second.
__device__ __forceinline__ u32 scale_pair(const u32 (&scales)[2], int t) {
  if constexpr (PLACES<T> == 1) {
    const u32 twice = __byte_perm(scales[0], scales[1], 0x4400 + 0x1111 * t);
    // E4M3's fields in a bfloat16 read as the value * 2^-120, subnormals included; 2^239 is no bfloat16
    return T::multiply(T::multiply(twice << 4 & 0x07F007F0, 0x7B807B80), 0x7B007B00);
  } else {
    const u32 pair = T::scales(__byte_perm(scales[0], scales[1], 0x40 + 0x11 * t));
    return T::UNIT == UNIT ? pair : T::multiply(pair, 0x58005800);  // 2^7 where the GPU converts E4M3
  }
}

// Weights of a tile.
struct Step {
  u32 codes[2][4];   // of lines g and g + 8
  u32 scales[2][2];  // all 8 of the tile
};

// Where a lane loads the next tile of its warp.
struct Next {
  const u8 *codes, *scales;  // of its first line
  int tile;

  __device__ __forceinline__ void load(Step& step, const int (&lines)[2], int n) {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      load::bytes<16, 16>(step.codes[i], codes + lines[i] * 64);
      load::bytes<8, 8>(step.scales[i], scales + lines[i] * 8);
    }
    tile++;
    codes += (i64)n * 64;
    scales += (i64)n * 8;
  }
};

// What a lane multiplies a tile by: of either half, elements 16t .. 16t + 15 of its row of x, which begins at `row`. They are
// loaded when they are needed, by all blocks the same and so out of the L1, and take no registers from weights on their way.
struct X {
  u32 half[2][8];

  __device__ __forceinline__ X(const u16* row, int tile, int tiles, int k, int t) {
    const u16* x = row + (i64)tile * TILE + 16 * t;
    if (X_ALIGNED && !(RAGGED && tile == tiles - 1)) {
      #pragma unroll
      for (int i = 0; i < 4; i++) {
        u32(&to)[8] = half[i / 2];
        const int at = i % 2 * 4;
        asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[at]), "=r"(to[at + 1]), "=r"(to[at + 2]), "=r"(to[at + 3])
                     : "l"(x + i / 2 * (TILE / 2) + i % 2 * 8));
      }
    } else {
      const int left = k - tile * TILE - 16 * t;
      #pragma unroll
      for (int i = 0; i < 16; i++) {
        const int at = i / 8 * (TILE / 2) + i % 8 * 2;
        const u32 low = at < left ? x[at] : 0, high = at + 1 < left ? x[at + 1] : 0;
        half[i / 8][i % 8] = low | high << 16;
      }
    }
  }
};

__device__ __forceinline__ void add_tile(float (&acc)[4], const Step& step, const X& x, int t) {
  u32 scale[2][2];  // [line g or g + 8][half of the tile]
  #pragma unroll
  for (int line = 0; line < 2; line++) {
    const u32 both = scale_pair(step.scales[line], t);
    scale[line][0] = __byte_perm(both, 0, 0x1010);
    scale[line][1] = __byte_perm(both, 0, 0x3232);
  }
  #pragma unroll
  for (int w = 0; w < 4; w++) {
    const u32 first = step.codes[0][w], second = step.codes[1][w];
    const u32 low[4] = {T::multiply(fields<0>(first), scale[0][0]), T::multiply(fields<0>(second), scale[1][0]),
                        T::multiply(fields<1>(first), scale[0][0]), T::multiply(fields<1>(second), scale[1][0])};
    const u32 high[4] = {T::multiply(fields<2>(first), scale[0][1]), T::multiply(fields<2>(second), scale[1][1]),
                         T::multiply(fields<3>(first), scale[0][1]), T::multiply(fields<3>(second), scale[1][1])};
    const u32 x_low[2] = {x.half[0][2 * w], x.half[0][2 * w + 1]}, x_high[2] = {x.half[1][2 * w], x.half[1][2 * w + 1]};
    mma::add_product<T>(acc, low, x_low);
    mma::add_product<T>(acc, high, x_high);
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS_PER_SM) w4a16_few_rows(
    const u16* x, const u8* codes /* [tiles, n, 64] */, const u8* scales /* [tiles, n, 8] */, const float* global_scale, u16* out,
    i64 x_row_stride, i64 out_row_stride, int rows, int n, int k, int tiles) {
  __shared__ float sums[WARPS][ROWS][APART];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;
  const int first_line = blockIdx.x * LINES;
  const int start = (i64)tiles * warp / WARPS, stop = (i64)tiles * (warp + 1) / WARPS;
  const i64 own = min(first_line + g, n - 1);  // lines beyond the last one are read as it is, and not stored
  int lines[2];                                // of the lane, from `own` on
  #pragma unroll
  for (int i = 0; i < 2; i++) lines[i] = RAGGED_LINES ? min(first_line + g + 8 * i, n - 1) - (int)own : 8 * i;
  const u16* row = x + min(g, rows - 1) * x_row_stride;  // beyond the last row, that one: its column is not stored
  Next next{codes + ((i64)start * n + own) * 64 + 16 * t, scales + ((i64)start * n + own) * 8, start};

  Step ring[STAGES];
  #pragma unroll
  for (int stage = 0; stage < STAGES; stage++)
    if (start + stage < stop) next.load(ring[stage], lines, n);
  const float scale = *global_scale * UNIT;

  float acc[4] = {};
  for (int tile = start; tile < stop; tile += STAGES) {
    #pragma unroll
    for (int stage = 0; stage < STAGES; stage++) {
      if (tile + stage >= stop) break;
      add_tile(acc, ring[stage], X(row, tile + stage, tiles, k, t), t);
      if (next.tile < stop) next.load(ring[stage], lines, n);
    }
  }

  #pragma unroll
  for (int c = 0; c < 4; c++) sums[warp][2 * t + c % 2][8 * (c / 2) + g] = acc[c];
  __syncthreads();
  for (int i = threadIdx.x; i < rows * LINES; i += 32 * WARPS) {
    const int row = i / LINES, line = i % LINES;
    float sum = 0.f;
    #pragma unroll
    for (int w = 0; w < WARPS; w++) sum += sums[w][row][line];
    if (first_line + line < n) out[row * out_row_stride + first_line + line] = (u16)T::round(sum * scale, 0.f);
  }
}
