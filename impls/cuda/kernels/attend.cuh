// What the attention kernels share: their parameters, where the cache is, which keys a tile of rows sees, constants of softmax,
// where results go.
//
// Given: HEAD_DIM, V_HEAD_DIM, GROUP, CAUSAL, WINDOWED, PAGE_SIZE (0: a dense cache), RAGGED, V_ALONG_TOKENS, Q_TYPE and K_TYPE
// (Float16, Bfloat16), OUT_TYPE (float, or unsigned short and OUT_FORMAT), SPLIT, ALIGNMENT of each packed tensor,
// K_CODES_TOKEN, K_SCALES_TOKEN, V_CODES_LINE, V_SCALES_LINE (bytes from line to line, or 0 where the argument counts).
#pragma once
#include "impls/cuda/kernels/fp4.cuh"
#include "impls/cuda/kernels/load.cuh"

using fp4::u32;
using load::u8;
using i64 = long long;

using Q = fp4::Q_TYPE;
using K = fp4::K_TYPE;
using V = fp4::Float16;
constexpr float P_BIAS = 15.f;  // the largest of P is 2^15: float16 keeps all of its 11 bits down to 2^-29 of it
constexpr float NO_KEY = __builtin_bit_cast(float, 0xFF800000u);
constexpr float LN_2 = 0.6931471805599453f;
constexpr u32 ALL = 0xFFFFFFFF;

__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A tensor of packed bytes of one head: where a lane's part of its lines begins.
struct Lines {
  const u8* base;
  i64 page_stride, line_stride;
};

// The K and V of one head of a sequence, and where its tokens are: in the pages of its block table, or in one.
struct Cache {
  Lines k, k_scales, v, v_scales;
  const int* table;
  i64 table_stride;
  int first, last;  // tokens that any row sees

  // Unsigned, which divides and widens in fewer instructions.
  __device__ __forceinline__ u32 page(u32 token) const {
    if constexpr (PAGE_SIZE == 0) return 0;
    return table[token / (PAGE_SIZE ? PAGE_SIZE : 1) * table_stride];
  }
  static __device__ __forceinline__ u32 slot(u32 token) { return PAGE_SIZE ? token % (PAGE_SIZE ? PAGE_SIZE : 1) : token; }
};

// The line of token `start` + `lane` + `number`. `lane` is the lane's own, `number` is known when compiling.
//
// In whole steps (not MASKED) it is looked up with `start`, the beginning of tokens that share a page, and is a constant from
// there. Elsewhere each token is looked up, and those that no row sees are read as their nearest neighbour that one does.
template <bool MASKED>
__device__ __forceinline__ const u8* line(const Cache& cache, const Lines& lines, int start, int lane, int number) {
  if constexpr (MASKED) {
    const int token = max(min(start + lane + number, cache.last), cache.first);
    return lines.base + cache.page(token) * lines.page_stride + Cache::slot(token) * lines.line_stride;
  }
  return lines.base + cache.page(start) * lines.page_stride + (Cache::slot(start) + lane) * lines.line_stride +
         number * lines.line_stride;
}

template <int BYTES, int ALIGNMENT>
__device__ __forceinline__ u32 load_scales(const u8* from) {
  u32 word[1];
  load::bytes<BYTES, ALIGNMENT>(word, from);
  return word[0];
}

// Keys of one tile of rows: some row sees begin <= key < end, all rows see all_from <= key < all_to.
struct Range {
  int begin, end, all_from, all_to;
};

template <int ROWS>
__device__ __forceinline__ Range range_of(int row_tile, int tokens, int q_len, int window) {
  const int first_query = row_tile * ROWS / GROUP, last_query = (min((row_tile + 1) * ROWS, q_len * GROUP) - 1) / GROUP;
  const int shift = tokens - q_len;
  const int all_to = CAUSAL ? first_query + shift + 1 : tokens;
  const int last_to = CAUSAL ? last_query + shift + 1 : tokens;
  return {WINDOWED ? max(all_to - window, 0) : 0, max(last_to, 0), WINDOWED ? last_to - window : 0, all_to};
}

// What the scores of a row are multiplied by. In double, where no order of the factors over- or underflows.
__device__ __forceinline__ float score_scale_of(float scale_log2, float k_global, float row_factor) {
  return (float)((double)scale_log2 * k_global * row_factor * K::UNIT);
}

template <typename T>
__device__ __forceinline__ void store(T* to, float value) { *to = value; }
template <>
__device__ __forceinline__ void store<unsigned short>(unsigned short* to, float value) {
  *to = (unsigned short)fp4::OUT_FORMAT::round(value, 0.f);
}

// A packed row of head `head`, as the results have it, of this block's split.
struct ResultRow {
  i64 split, q_head, query;

  __device__ __forceinline__ ResultRow(int head, int row)
      : split(blockIdx.y), q_head(head * GROUP + row % GROUP), query(row / GROUP) {}
};

// What the sums of a row are multiplied by: its reciprocal, and 0 for a row that saw no key.
__device__ __forceinline__ float reciprocal_of(float total) { return total == 0.f ? 0.f : __frcp_rn(total); }

// Of numerators relative to 2^(top - bias).
__device__ __forceinline__ float lse_of(float total, float top, float bias) {
  return total == 0.f ? NO_KEY : (top + log2f(total) - bias) * LN_2;
}

#define PARAMETERS                                                                                                          \
  const unsigned short* q, const u8* k_codes, const u8* k_scales, const float* k_global, const u8* v_codes,                 \
  const u8* v_scales, const float* v_global, OUT_TYPE* out, float* lse, const int* kv_lens, const int* block_table,         \
  float scale_log2, i64 q_batch_stride, i64 q_head_stride, i64 q_row_stride, i64 k_codes_page_stride, i64 k_codes_head_stride,\
  i64 k_codes_token_stride, i64 k_scales_page_stride, i64 k_scales_head_stride, i64 k_scales_token_stride,                  \
  i64 v_codes_page_stride, i64 v_codes_head_stride, i64 v_codes_line_stride, i64 v_scales_page_stride,                      \
  i64 v_scales_head_stride, i64 v_scales_line_stride, i64 out_split_stride, i64 out_batch_stride, i64 out_head_stride,      \
  i64 out_row_stride, i64 lse_split_stride, i64 lse_batch_stride, i64 lse_head_stride, i64 lse_row_stride,                  \
  i64 kv_lens_batch_stride, i64 block_table_batch_stride, i64 block_table_page_stride, int kv_heads, int q_len, int kv_len, \
  int window, int splits

// The Cache of head `head` of sequence `batch`, by the PARAMETERS, with tokens from `first` to `last`. The page of a dense one
// is a sequence.
#define CACHE_OF(batch, head, first, last)                                                                                  \
  {{k_codes + (PAGE_SIZE ? 0 : (i64)batch) * k_codes_page_stride + head * k_codes_head_stride, k_codes_page_stride,         \
    K_CODES_TOKEN ? K_CODES_TOKEN : k_codes_token_stride},                                                                  \
   {k_scales + (PAGE_SIZE ? 0 : (i64)batch) * k_scales_page_stride + head * k_scales_head_stride, k_scales_page_stride,     \
    K_SCALES_TOKEN ? K_SCALES_TOKEN : k_scales_token_stride},                                                               \
   {v_codes + (PAGE_SIZE ? 0 : (i64)batch) * v_codes_page_stride + head * v_codes_head_stride, v_codes_page_stride,         \
    V_CODES_LINE ? V_CODES_LINE : v_codes_line_stride},                                                                     \
   {v_scales + (PAGE_SIZE ? 0 : (i64)batch) * v_scales_page_stride + head * v_scales_head_stride, v_scales_page_stride,     \
    V_SCALES_LINE ? V_SCALES_LINE : v_scales_line_stride},                                                                  \
   PAGE_SIZE ? block_table + batch * block_table_batch_stride : nullptr, block_table_page_stride, first, last}

// Where the results of a ResultRow of sequence `batch` go, by the PARAMETERS: its head dims begin at OUT_OF, its lse is LSE_OF.
#define OUT_OF(batch, row)                                                                                                  \
  (out + row.split * out_split_stride + batch * out_batch_stride + row.q_head * out_head_stride + row.query * out_row_stride)
#define LSE_OF(batch, row)                                                                                                  \
  lse[row.split * lse_split_stride + batch * lse_batch_stride + row.q_head * lse_head_stride + row.query * lse_row_stride]

// Two neighbouring values of float results: a word of 8 bytes where splits have room of their own for them, or where OUT_ALIGNMENT,
// which is then given, says so.
#if SPLIT || OUT_ALIGNMENT >= 8
using Float2 = float2;
#else
struct Float2 {
  float x, y;

  __device__ __forceinline__ void operator=(float2 from) { x = from.x, y = from.y; }
};
#endif
