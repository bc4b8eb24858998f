// A step's packed K and V in shared memory, and how they get there: by cp.async, STAGES - 1 steps ahead, never unpacked.
//
// A stage, for D = HEAD_DIM and Dv = V_HEAD_DIM; the 16 bytes behind each line put lines that are read together on distinct banks:
//
//   K codes    KEYS lines of  D / 2 + 16 bytes         line: a key, in the order of `token_of_line`
//   K scales   KEYS lines of  D / 16
//   V codes    KEYS lines of  Dv / 2 + 16              line: a token          along tokens:  Dv lines of KEYS / 2 (+ 16)
//   V scales   KEYS lines of  Dv / 16                                                        Dv lines of KEYS / 16
//
// Where V's blocks run along the tokens, a lane's operand of P @ V wants neighbours of a line, tokens TEAM_KEYS / 4 * t and on.
// The keys are put in the order that makes columns 2t, 2t + 1 of the scores those tokens, so that P need not be permuted.
//
// Given: what attend.cuh is, TEAMS, KEYS, THREADS.
#pragma once
#include "impls/cuda/kernels/attend.cuh"

constexpr int K_LINE = HEAD_DIM / 2, K_PITCH = K_LINE + 16, K_SCALE_LINE = HEAD_DIM / 16;
constexpr int V_LINES = V_ALONG_TOKENS ? V_HEAD_DIM : KEYS;
constexpr int V_LINE = V_ALONG_TOKENS ? KEYS / 2 : V_HEAD_DIM / 2;
constexpr int V_PITCH = V_ALONG_TOKENS && TEAMS == 1 ? V_LINE : V_LINE + 16;
constexpr int V_SCALE_LINE = V_LINE / 8;

constexpr int K_SCALES_AT = KEYS * K_PITCH;
constexpr int V_AT = K_SCALES_AT + KEYS * K_SCALE_LINE;
constexpr int V_SCALES_AT = V_AT + V_LINES * V_PITCH;
constexpr int STAGE_BYTES = V_SCALES_AT + V_LINES * V_SCALE_LINE;
static_assert(STAGE_BYTES % 16 == 0, "stages begin where cp.async may write 16 bytes");

constexpr int TEAM_KEYS = KEYS / TEAMS;
constexpr int LANE_TOKENS = TEAM_KEYS / 4;  // of V along tokens
static_assert(TEAM_KEYS % 16 == 0 && LANE_TOKENS <= 16, "a lane's tokens share a scale");

// The token, of those of a step, whose key is in line `line` of K: column line % 8 of the scores' block line / 8.
__device__ __forceinline__ constexpr int token_of_line(int line) {
  if (!V_ALONG_TOKENS) return line;
  const int in_team = line % TEAM_KEYS, block = in_team / 8, column = in_team % 8;
  return line - in_team + LANE_TOKENS * (column / 2) + 2 * block + column % 2;
}

// BYTES bytes to shared memory, of which the last BYTES - `valid` become zero and are not read.
template <int BYTES, int ALIGNMENT>
__device__ __forceinline__ void copy(u32 to, const u8* from, int valid) {
  if constexpr (BYTES == 16 && ALIGNMENT >= 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid) : "memory");
  } else if constexpr ((BYTES == 8 || BYTES == 4) && ALIGNMENT >= BYTES) {
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(valid) : "memory");
  } else if constexpr (BYTES > 4) {
    copy<BYTES / 2, ALIGNMENT>(to, from, min(valid, BYTES / 2));
    copy<BYTES / 2, ALIGNMENT>(to + BYTES / 2, from + BYTES / 2, max(valid - BYTES / 2, 0));
  } else {
    #pragma unroll
    for (int i = 0; i < BYTES; i++) {
      const u32 byte = i < valid ? from[i] : 0;
      asm volatile("st.shared.u8 [%0], %1;" ::"r"(to + i), "r"(byte) : "memory");
    }
  }
}

__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until all but the last PENDING groups of this thread are there.
template <int PENDING>
__device__ __forceinline__ void wait_for_groups() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }

// Bytes, at most 16, that divide a line: so much is copied at once.
__device__ constexpr int piece_of(int line) { return line % 16 == 0 ? 16 : line % 8 == 0 ? 8 : 4; }

// The block's threads do each of COUNT things.
template <int COUNT, typename Do>
__device__ __forceinline__ void share(Do one) {
  #pragma unroll
  for (int i = 0; i < (COUNT + THREADS - 1) / THREADS; i++) {
    const int number = i * THREADS + threadIdx.x;
    if (COUNT % THREADS == 0 || number < COUNT) one(number);
  }
}

// A line for each of the step's tokens: codes or scales of K, or of V along the head dim.
template <int LINE, int PITCH, int ALIGNMENT, bool KEY_ORDER>
__device__ __forceinline__ void copy_tokens(u32 to, const Cache& cache, const Lines& lines, int key) {
  constexpr int PIECE = piece_of(LINE), PIECES = LINE / PIECE;
  share<KEYS * PIECES>([&](int number) {
    const int line = number / PIECES, piece = number % PIECES;
    const int token = key + (KEY_ORDER ? token_of_line(line) : line), nearest = max(min(token, cache.last), cache.first);
    const u8* from = lines.base + cache.page(nearest) * lines.page_stride + Cache::slot(nearest) * lines.line_stride;
    copy<PIECE, ALIGNMENT>(to + line * PITCH + piece * PIECE, from + piece * PIECE, token == nearest ? PIECE : 0);
  });
}

// V along tokens. Blocks of 16 tokens are stored whole, and pages have whole ones; `last` may end one.
__device__ __forceinline__ void copy_lines(u32 codes, u32 scales, const Cache& cache, int key) {
  constexpr bool TOGETHER = PAGE_SIZE % KEYS == 0;  // a step's tokens are in one page
  constexpr int PIECE = TOGETHER && V_CODES_ALIGNMENT >= 16 ? 16 : 8, PIECES = V_LINE / PIECE;
  share<V_LINES * PIECES>([&](int number) {
    const int line = number / PIECES, piece = number % PIECES;
    const int token = key + 2 * PIECE * piece, begin = cache.first / (2 * PIECE) * (2 * PIECE);
    const int block = max(min(token, cache.last) / 16 * 16, begin);  // pages before a window may be gone
    const u8* from = cache.v.base + cache.page(block) * cache.v.page_stride + line * cache.v.line_stride + Cache::slot(block) / 2;
    const int valid = max(min(cache.last / 16 * 8 + 8 - token / 2, PIECE), 0);
    copy<PIECE, V_CODES_ALIGNMENT>(codes + line * V_PITCH + piece * PIECE, from, valid);
  });
  // The scales of what a window hides might be NaN, and zero times that is NaN: only whole steps are copied by the word.
  constexpr int WORD = TOGETHER && KEYS % 64 == 0 && V_SCALES_ALIGNMENT >= 4 ? 4 : 1, WORDS = V_SCALE_LINE / WORD;
  const bool whole = key >= cache.first / 16 * 16 && key + KEYS <= cache.last / 16 * 16 + 16;
  if (WORD > 1 && whole) {
    share<V_LINES * WORDS>([&](int number) {
      const int line = number / WORDS, word = number % WORDS;
      const u8* from = cache.v_scales.base + cache.page(key) * cache.v_scales.page_stride +
                       line * cache.v_scales.line_stride + Cache::slot(key) / 16;
      copy<WORD, V_SCALES_ALIGNMENT>(scales + line * V_SCALE_LINE + word * WORD, from + word * WORD, WORD);
    });
  } else {
    share<V_LINES * V_SCALE_LINE>([&](int number) {
      const int line = number / V_SCALE_LINE, token = key + number % V_SCALE_LINE * 16;
      const int nearest = max(min(token, cache.last / 16 * 16), cache.first / 16 * 16);
      const u8* from = cache.v_scales.base + cache.page(nearest) * cache.v_scales.page_stride +
                       line * cache.v_scales.line_stride + Cache::slot(nearest) / 16;
      copy<1, 1>(scales + number, from, token == nearest);
    });
  }
}

// The step that begins with token `key`, a multiple of KEYS, to the stage at `to`. Not waited for.
__device__ __forceinline__ void copy_step(u32 to, const Cache& cache, int key) {
  copy_tokens<K_LINE, K_PITCH, K_CODES_ALIGNMENT, true>(to, cache, cache.k, key);
  copy_tokens<K_SCALE_LINE, K_SCALE_LINE, K_SCALES_ALIGNMENT, true>(to + K_SCALES_AT, cache, cache.k_scales, key);
  if constexpr (V_ALONG_TOKENS) {
    copy_lines(to + V_AT, to + V_SCALES_AT, cache, key);
  } else {
    copy_tokens<V_LINE, V_PITCH, V_CODES_ALIGNMENT, false>(to + V_AT, cache, cache.v, key);
    copy_tokens<V_SCALE_LINE, V_SCALE_LINE, V_SCALES_ALIGNMENT, false>(to + V_SCALES_AT, cache, cache.v_scales, key);
  }
}
