// A4Q for few query rows: packed NVFP4 K and V go from global memory to registers and are dequantised there, in the loop.
//
// 8 query rows of one key-value head (q_len * GROUP of them, packed: row r is query r / GROUP of head r % GROUP) are the 8
// columns of every product; keys and head dims fill the 16 rows of mma.sync's first operand:
//
//   S^T [16 keys, 8 rows]  = K [16 keys, D] @ Q^T            A: K, decoded where it was loaded.  B: Q^T, from shared memory.
//   O^T [16 dims, 8 rows] += V^T [16 dims, 16 keys] @ P^T    A: V^T, likewise.  B: P^T, the fragment of S^T transposed.
//
// A warp walks keys of its own, 16 * KEY_TILES at a time; beyond 256 head dims two warps, a team, share a walk and each has
// half of the dims. Nothing else is exchanged until the teams' results are merged. When K is multiplied its registers take the
// next step's K, which arrives while V is multiplied, and the same the other way round. Steps that every row sees whole come
// first, with addresses a constant apart and no mask; then, once more, the few that need one.
//
// K. A sum over head dims may run in any order that Q has too. Lane 4 g + t loads K_VECTOR bytes of tokens g and g + 8 of a
// tile from byte (4 c + t) * K_VECTOR on, for each chunk c of a row: 4 lanes read 64 bytes, a warp 8 rows at once.
//
//   a row's codes     | t = 0 | t = 1 | t = 2 | t = 3 | next chunk ...          K_VECTOR bytes each
//   8 codes a word      7 6 5 4 3 2 1 0   ->  even: columns (0, 2), (4, 6) of one product, odd: (1, 3), (5, 7) of the next
//
// V. Lane 4 g + t loads V_VECTOR bytes of four tokens of a tile from byte (8 c + g) * V_VECTOR on. Bytes of two tokens are put
// side by side, so that what is decoded together belongs to one head dim:
//
//   token     t   | b3 b2 b1 b0 |           | b1' b1 b0' b0 |  | b3' b3 b2' b2 |     even dim: row g,  odd dim: row g + 8
//   token 4 + t   | b3'b2'b1'b0'|     ->
//
// V along tokens. A line of codes is a head dim. Lane 4 g + t loads the bytes of 4 * KEY_TILES tokens on the lines of dims g
// and g + 8 of each tile of dims; a word's even and odd codes are the columns as they are for K.
//
// Which token a row of S^T stands for is free, too, as long as V's columns agree: see `token_of_row`.
#include "round.cuh"
#include "impls/cuda/kernels/attend.cuh"
#include "impls/cuda/kernels/mma.cuh"

// Given: what attend.cuh is, and Q_NVFP4, KEY_TILES, WARPS, BLOCKS_PER_SM, PREFETCH, SHARED_BYTES (dynamic ones of a block, as
// planned).
constexpr int ROWS = 8;
constexpr int KEYS = 16 * KEY_TILES;
constexpr int PARTS = HEAD_DIM > 256 || V_HEAD_DIM > 256 ? 2 : 1;
constexpr int TEAMS = WARPS / PARTS;
constexpr int K_DIM = HEAD_DIM / PARTS, V_DIM = V_HEAD_DIM / PARTS;  // of one warp

constexpr int K_VECTOR = K_DIM % 128 == 0 ? 16 : 8;
constexpr int K_CHUNKS = K_DIM / (8 * K_VECTOR);
constexpr int K_WORDS = K_VECTOR / 4;
constexpr int K_BLOCKS = K_VECTOR / 8;  // of 16 elements in a lane's chunk

constexpr int V_VECTOR = V_DIM % 256 == 0 ? 16 : V_DIM % 128 == 0 ? 8 : 4;
constexpr int V_CHUNKS = V_DIM / (16 * V_VECTOR);
constexpr int V_WORDS = V_VECTOR / 4;
constexpr int V_BLOCKS = V_VECTOR == 16 ? 2 : 1;
constexpr int DIM_TILES = V_DIM / 16;
constexpr int LANE_TOKENS = 4 * KEY_TILES;  // of a step, where V runs along tokens

static_assert(K_DIM % 64 == 0 && V_DIM % 64 == 0, "a warp's head dims are whole chunks");

// The token, of those of a step, that row r of tile `tile` of S^T stands for: lanes of one t then load neighbours of V.
__device__ __forceinline__ constexpr int token_of_row(int tile, int r) {
  const int pair = (r & 7) / 2, second = r & 1, upper = r / 8;
  return V_ALONG_TOKENS ? LANE_TOKENS * pair + 4 * tile + 2 * second + upper : 16 * tile + 8 * upper + 4 * second + pair;
}

// What comes from memory for a step.
struct Step {
  u32 k[KEY_TILES][2][K_CHUNKS][K_WORDS];
  u32 k_scales[KEY_TILES][2][K_CHUNKS];
#if V_ALONG_TOKENS
  u32 v[DIM_TILES][2][(LANE_TOKENS + 7) / 8];
  u32 v_scales[DIM_TILES][2];
#else
  u32 v[KEY_TILES][4][V_CHUNKS][V_WORDS];
  u32 v_scales[KEY_TILES][4][V_CHUNKS];
#endif
};

// Tokens of a step that share a page: pages have whole blocks of 16.
constexpr int TOGETHER = PAGE_SIZE % KEYS == 0 ? KEYS : 16;

template <bool MASKED>
__device__ __forceinline__ void load_k(Step& step, const Cache& cache, int key, int g) {
  #pragma unroll
  for (int tile = 0; tile < KEY_TILES; tile++) {
    // where V runs along tokens a lane's are neighbours, and otherwise a tile's
    const int of_lane = token_of_row(0, g);
    const int apart = V_ALONG_TOKENS ? of_lane / TOGETHER * TOGETHER : 16 * tile / TOGETHER * TOGETHER;
    const int lane = V_ALONG_TOKENS ? of_lane % TOGETHER : of_lane;
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      const int number = token_of_row(tile, 8 * half) - (V_ALONG_TOKENS ? 0 : apart);
      const u8* code = line<MASKED>(cache, cache.k, key + apart, lane, number);
      const u8* scale = line<MASKED>(cache, cache.k_scales, key + apart, lane, number);
      #pragma unroll
      for (int c = 0; c < K_CHUNKS; c++) {
        load::bytes<K_VECTOR, K_CODES_ALIGNMENT>(step.k[tile][half][c], code + c * 4 * K_VECTOR);
        step.k_scales[tile][half][c] = load_scales<K_BLOCKS, K_SCALES_ALIGNMENT>(scale + c * 4 * K_BLOCKS);
      }
    }
  }
}

template <bool MASKED>
__device__ __forceinline__ void load_v(Step& step, const Cache& cache, int key, int t) {
#if V_ALONG_TOKENS
  int token = key + LANE_TOKENS * t;
  if constexpr (MASKED) {  // blocks of 16 tokens are stored whole: only whole ones are not to be read
    const int in_block = LANE_TOKENS * t % 16;
    token = max(min(token, cache.last / 16 * 16 + in_block), cache.first / 16 * 16 + in_block);
  }
  const u32 page = cache.page(token), slot = Cache::slot(token);
  const u8* code = cache.v.base + page * cache.v.page_stride + slot / 2;
  const u8* scale = cache.v_scales.base + page * cache.v_scales.page_stride + slot / 16;
  #pragma unroll
  for (int tile = 0; tile < DIM_TILES; tile++) {
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      load::bytes<LANE_TOKENS / 2, V_CODES_ALIGNMENT>(step.v[tile][half], code);
      step.v_scales[tile][half] = load_scales<1, 1>(scale);
      code += 8 * cache.v.line_stride;
      scale += 8 * cache.v_scales.line_stride;
    }
  }
#else
  #pragma unroll
  for (int tile = 0; tile < KEY_TILES; tile++) {
    const int apart = 16 * tile / TOGETHER * TOGETHER;
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const int number = 16 * tile + 4 * i - apart;
      const u8* code = line<MASKED>(cache, cache.v, key + apart, t, number);
      const u8* scale = line<MASKED>(cache, cache.v_scales, key + apart, t, number);
      #pragma unroll
      for (int c = 0; c < V_CHUNKS; c++) {
        load::bytes<V_VECTOR, V_CODES_ALIGNMENT>(step.v[tile][i][c], code + c * 8 * V_VECTOR);
        step.v_scales[tile][i][c] = load_scales<V_BLOCKS, V_SCALES_ALIGNMENT>(scale + c * V_VECTOR);
      }
    }
  }
#endif
}

#if PREFETCH && PAGE_SIZE == 0 && !V_ALONG_TOKENS && __CUDA_ARCH__ >= 900
constexpr bool PREFETCHES = K_CODES_TOKEN && K_SCALES_TOKEN && V_CODES_LINE && V_SCALES_LINE;
#else
constexpr bool PREFETCHES = false;
#endif

// Ask for KEYS lines of BYTES bytes to be in the L2 before they are loaded, from 16 bytes to 16 bytes.
template <int BYTES>
__device__ __forceinline__ void prefetch(const u8* from) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"((i64)from & -16), "n"(KEYS * BYTES / 16 * 16) : "memory");
#endif
}

// A step of whole lines. One lane asks, the one whose part of a line is its beginning.
__device__ __forceinline__ void prefetch(const Cache& cache, int key) {
  prefetch<K_CODES_TOKEN>(cache.k.base + (i64)key * K_CODES_TOKEN);
  prefetch<K_SCALES_TOKEN>(cache.k_scales.base + (i64)key * K_SCALES_TOKEN);
  prefetch<V_CODES_LINE>(cache.v.base + (i64)key * V_CODES_LINE);
  prefetch<V_SCALES_LINE>(cache.v_scales.base + (i64)key * V_SCALES_LINE);
}

// Q^T of one part of the head dims, as each lane multiplies it: words [even, odd][pair]. It waits in shared memory, for all
// teams, and leaves its registers to others.
using Fragments = uint4[K_CHUNKS][K_WORDS][32];

// Volatile: or the compiler would load them once, before the loop, and keep them.
__device__ __forceinline__ void load_q(u32 (&even)[2], u32 (&odd)[2], const uint4& from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(even[0]), "=r"(even[1]), "=r"(odd[0]), "=r"(odd[1]) : "r"((u32)__cvta_generic_to_shared(&from)));
}

// s += K @ Q^T of the tiles.
__device__ __forceinline__ void add_scores(float (&s)[KEY_TILES][4], const Step& step, const Fragments& q, int lane) {
  #pragma unroll
  for (int c = 0; c < K_CHUNKS; c++) {
    u32 scale[KEY_TILES][2][2];  // [half of the keys][block of the chunk]
    #pragma unroll
    for (int tile = 0; tile < KEY_TILES; tile++)
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        const u32 both = K::scales(step.k_scales[tile][half][c]);
        scale[tile][half][0] = __byte_perm(both, 0, 0x1010);
        scale[tile][half][1] = __byte_perm(both, 0, 0x3232);
      }
    #pragma unroll
    for (int w = 0; w < K_WORDS; w++) {
      u32 q_even[2], q_odd[2];
      load_q(q_even, q_odd, q[c][w][lane]);
      #pragma unroll
      for (int tile = 0; tile < KEY_TILES; tile++) {
        u32 even[2][2], odd[2][2];  // [half of the keys][pair]
        #pragma unroll
        for (int half = 0; half < 2; half++) {
          K::decode<false>(step.k[tile][half][c][w], even[half]);
          K::decode<true>(step.k[tile][half][c][w], odd[half]);
        }
        const u32 low = scale[tile][0][w / 2], high = scale[tile][1][w / 2];
        const u32 a[4] = {K::multiply(even[0][0], low), K::multiply(even[1][0], high), K::multiply(even[0][1], low),
                          K::multiply(even[1][1], high)};
        mma::add_product<K>(s[tile], a, q_even);
        const u32 b[4] = {K::multiply(odd[0][0], low), K::multiply(odd[1][0], high), K::multiply(odd[0][1], low),
                          K::multiply(odd[1][1], high)};
        mma::add_product<K>(s[tile], b, q_odd);
      }
    }
  }
}

// acc[i] += V^T @ P^T of tile i of the dims, 16 keys.
__device__ __forceinline__ void add_values(float (&acc)[DIM_TILES][4], const Step& step, int tile, const u32 (&p)[2]) {
#if V_ALONG_TOKENS
  #pragma unroll
  for (int i = 0; i < DIM_TILES; i++) {
    u32 even[2], odd[2], scale[2];  // [half of the dims]: the tile's two bytes
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      const u32 bytes = step.v[i][half][tile / 2] >> 16 * (tile % 2);
      u32 pairs[2];
      V::decode<false>(bytes, pairs);
      even[half] = pairs[0];
      V::decode<true>(bytes, pairs);
      odd[half] = pairs[0];
      scale[half] = V::scales(step.v_scales[i][half] * 0x0101);
    }
    const u32 a[4] = {V::multiply(even[0], scale[0]), V::multiply(even[1], scale[1]), V::multiply(odd[0], scale[0]),
                      V::multiply(odd[1], scale[1])};
    mma::add_product<V>(acc[i], a, p);
  }
#else
  #pragma unroll
  for (int c = 0; c < V_CHUNKS; c++) {
    u32 scale[2][V_BLOCKS];  // [pair of tokens][block of the chunk]
    #pragma unroll
    for (int pair = 0; pair < 2; pair++)
      #pragma unroll
      for (int b = 0; b < V_BLOCKS; b++)
        scale[pair][b] = V::scales(
            __byte_perm(step.v_scales[tile][2 * pair][c], step.v_scales[tile][2 * pair + 1][c], b ? 0x0051 : 0x0040));
    #pragma unroll
    for (int w = 0; w < V_WORDS; w++) {
      #pragma unroll
      for (int half = 0; half < 2; half++) {  // bytes 0 and 1, then 2 and 3
        u32 even[2][2], odd[2][2];  // [pair of tokens][byte]
        #pragma unroll
        for (int pair = 0; pair < 2; pair++) {
          const u32 bytes =
              __byte_perm(step.v[tile][2 * pair][c][w], step.v[tile][2 * pair + 1][c][w], half ? 0x7362 : 0x5140);
          V::decode<false>(bytes, even[pair]);
          V::decode<true>(bytes, odd[pair]);
        }
        const u32 first = scale[0][w / 2], second = scale[1][w / 2];
        #pragma unroll
        for (int byte = 0; byte < 2; byte++) {
          const u32 a[4] = {V::multiply(even[0][byte], first), V::multiply(odd[0][byte], first),
                            V::multiply(even[1][byte], second), V::multiply(odd[1][byte], second)};
          mma::add_product<V>(acc[(c * V_WORDS + w) * 4 + 2 * half + byte], a, p);
        }
      }
    }
  }
#endif
}

// Head dims, of a warp's, of values c and c + 2 of tile i of the sums.
__device__ __forceinline__ int dim_of(int i, int c, int g) {
  if constexpr (V_ALONG_TOKENS) return 16 * i + 4 * c + g;
  return (i / (4 * V_WORDS) * 8 + g) * 2 * V_VECTOR + i % (4 * V_WORDS) * 2 + c / 2;
}

__device__ __forceinline__ void wait_for_team(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(32 * PARTS) : "memory");  // barrier 0 is __syncthreads
}

using Exchange = float4[2][TEAMS][PARTS][KEY_TILES][32];

// A team's warps have each summed over their own head dims: both get the sum, added in the same order.
__device__ __forceinline__ void add_scores_of_team(float (&s)[KEY_TILES][4], Exchange& exchange, int turn, int team, int part,
                                                   int lane) {
  #pragma unroll
  for (int tile = 0; tile < KEY_TILES; tile++)
    exchange[turn][team][part][tile][lane] = make_float4(s[tile][0], s[tile][1], s[tile][2], s[tile][3]);
  wait_for_team(team);
  #pragma unroll
  for (int tile = 0; tile < KEY_TILES; tile++) {
    const float4 a = exchange[turn][team][0][tile][lane], b = exchange[turn][team][PARTS - 1][tile][lane];
    s[tile][0] = a.x + b.x;
    s[tile][1] = a.y + b.y;
    s[tile][2] = a.z + b.z;
    s[tile][3] = a.w + b.w;
  }
}

// Keys that this lane's two rows see: first <= key <= last.
struct Seen {
  int first[2], last[2];
};

// What a warp has summed for this lane's two rows.
struct Sums {
  float acc[DIM_TILES][4];  // of P @ V
  float top[2];             // the largest scores
  float total[2];           // of P
};

// Attend to the steps number, number + TEAMS, ... before `stop`. Not MASKED: every row sees all their keys. AHEAD: `step` holds
// the first, and each is loaded while the one before is multiplied.
template <bool MASKED, bool AHEAD>
__device__ __forceinline__ void walk(Sums& sums, const Fragments& q, const float (&score_scale)[2],
                                     const Cache& cache, const Seen& seen, Step& step, int number, int stop,
                                     Exchange& exchange, int team, int part, int lane) {
  const int g = lane / 4, t = lane % 4;
  [[maybe_unused]] int turn = 0;
  for (; number < stop; number += TEAMS) {
    const int key = number * KEYS;
    if constexpr (!AHEAD) {
      load_k<MASKED>(step, cache, key, g);
      load_v<MASKED>(step, cache, key, t);
    }
    const int next = (number + TEAMS < stop ? number + TEAMS : number) * KEYS;  // the last loads what it has

    if constexpr (PREFETCHES && AHEAD && !MASKED)
      if (lane == 0 && part == 0 && number + 2 * TEAMS < stop) prefetch(cache, key + 2 * TEAMS * KEYS);

    float s[KEY_TILES][4];
    #pragma unroll
    for (int tile = 0; tile < KEY_TILES; tile++)
      #pragma unroll
      for (int c = 0; c < 4; c++) s[tile][c] = 0.f;
    add_scores(s, step, q, lane);
    if constexpr (AHEAD) load_k<MASKED>(step, cache, next, g);
    if constexpr (PARTS > 1) {
      add_scores_of_team(s, exchange, turn, team, part, lane);
      turn ^= 1;  // the other buffer next: this one may still be read
    }

    float step_top[2] = {NO_KEY, NO_KEY};
    #pragma unroll
    for (int tile = 0; tile < KEY_TILES; tile++)
      #pragma unroll
      for (int c = 0; c < 4; c++) {
        s[tile][c] *= score_scale[c % 2];
        if constexpr (MASKED) {
          const int token = key + token_of_row(0, g) + token_of_row(tile, 8 * (c / 2));
          if (token < seen.first[c % 2] || token > seen.last[c % 2]) s[tile][c] = NO_KEY;
        }
        step_top[c % 2] = fmaxf(step_top[c % 2], s[tile][c]);
      }
    // A new largest score is rare: lanes look for one first, and only then agree on it and scale what they have summed.
    if (__any_sync(ALL, step_top[0] > sums.top[0] || step_top[1] > sums.top[1])) {
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        #pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) step_top[i] = fmaxf(step_top[i], __shfl_xor_sync(ALL, step_top[i], mask));
        const float new_top = fmaxf(sums.top[i], step_top[i]);
        const float keep = new_top == NO_KEY ? 1.f : exp2_approx(sums.top[i] - new_top);
        sums.top[i] = new_top;
        sums.total[i] *= keep;
        #pragma unroll
        for (int tile = 0; tile < DIM_TILES; tile++) {
          sums.acc[tile][i] *= keep;
          sums.acc[tile][i + 2] *= keep;
        }
      }
    }
    float shift[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) shift[i] = MASKED && sums.top[i] == NO_KEY ? 0.f : sums.top[i] - P_BIAS;
    #pragma unroll
    for (int tile = 0; tile < KEY_TILES; tile++) {
      float numerators[4];
      #pragma unroll
      for (int c = 0; c < 4; c++) {
        numerators[c] = exp2_approx(s[tile][c] - shift[c % 2]);
        sums.total[c % 2] += numerators[c];
      }
      const u32 p[2] = {mma::transposed(V::round(numerators[0], numerators[1])),
                        mma::transposed(V::round(numerators[2], numerators[3]))};
      add_values(sums.acc, step, tile, p);
    }
    if constexpr (AHEAD) load_v<MASKED>(step, cache, next, t);
  }
}

// What the teams leave for each other at the end.
struct Results {
  float tops[TEAMS][ROWS], totals[TEAMS][ROWS], outs[TEAMS][ROWS][V_HEAD_DIM];
};
static_assert(sizeof(Results) == SHARED_BYTES, "planned");

// What a block works on.
struct Work {
  int row_tile, head, batch, tokens, stop;
};

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS_PER_SM) a4q_decode(PARAMETERS) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;
  const int team = warp / PARTS, part = warp % PARTS;
  const int row_tiles = (q_len * GROUP + ROWS - 1) / ROWS;
  const int row_tile = row_tiles - 1 - blockIdx.x % row_tiles;  // under a causal mask the last have most keys: first
  const int head = blockIdx.x / row_tiles % kv_heads, batch = blockIdx.x / row_tiles / kv_heads;

  int tokens = kv_len;
  if constexpr (RAGGED) tokens = min(max(kv_lens[batch * kv_lens_batch_stride], 0), kv_len);
  const i64 own = PAGE_SIZE ? 0 : batch;  // the page of a dense cache is a sequence
  const Lines k{k_codes + own * k_codes_page_stride + head * k_codes_head_stride + part * (K_DIM / 2) + t * K_VECTOR,
                k_codes_page_stride, K_CODES_TOKEN ? K_CODES_TOKEN : k_codes_token_stride};
  const Lines ks{k_scales + own * k_scales_page_stride + head * k_scales_head_stride + part * (K_DIM / 16) + t * K_BLOCKS,
                 k_scales_page_stride, K_SCALES_TOKEN ? K_SCALES_TOKEN : k_scales_token_stride};
  const i64 v_line = V_CODES_LINE ? V_CODES_LINE : v_codes_line_stride;
  const i64 vs_line = V_SCALES_LINE ? V_SCALES_LINE : v_scales_line_stride;
  const i64 v_part = V_ALONG_TOKENS ? (part * V_DIM + g) * v_line : part * (V_DIM / 2) + g * V_VECTOR;
  const i64 vs_part = V_ALONG_TOKENS ? (part * V_DIM + g) * vs_line : part * (V_DIM / 16) + g * V_VECTOR / 8;
  const Lines v{v_codes + own * v_codes_page_stride + head * v_codes_head_stride + v_part, v_codes_page_stride, v_line};
  const Lines vs{v_scales + own * v_scales_page_stride + head * v_scales_head_stride + vs_part, v_scales_page_stride, vs_line};

  const Range keys = range_of<ROWS>(row_tile, tokens, q_len, window);
  Cache cache{k, ks, v, vs, PAGE_SIZE ? block_table + batch * block_table_batch_stride : nullptr, block_table_page_stride,
              keys.begin, tokens - 1};

  // The teams of a split take its steps in turns: together they read one run of memory. The first K is under way while Q is
  // read.
  const int first_step = keys.begin / KEYS, last_step = (keys.end + KEYS - 1) / KEYS;
  const int each = (last_step - first_step + splits * TEAMS - 1) / (splits * TEAMS) * TEAMS;
  const int start = first_step + blockIdx.y * each, stop = min(start + each, last_step);
  const int whole = WINDOWED ? stop : min(stop, keys.all_to / KEYS);  // steps before it are whole, without a window
  int number = start + team;
  Step step;
  if (number < whole) load_k<WINDOWED>(step, cache, number * KEYS, g);

  // Q^T: column g is row g of the tile, its rows in the order in which K is decoded. One team reads it for all.
  __shared__ Fragments q_fragments[PARTS];
  __shared__ float factors[ROWS];
  __shared__ Work work;  // for later: registers are short during the first walk
  if (threadIdx.x == 0) work = {row_tile, head, batch, tokens, stop};
  if (team == 0) {
    const int row = row_tile * ROWS + g;
    const bool exists = row < q_len * GROUP;
    const unsigned short* from = q + batch * q_batch_stride + (head * GROUP + row % GROUP) * q_head_stride +
                                 (exists ? row / GROUP : 0) * q_row_stride + part * K_DIM;
    float values[K_CHUNKS][K_BLOCKS][16];
    #pragma unroll
    for (int c = 0; c < K_CHUNKS; c++)
      #pragma unroll
      for (int b = 0; b < K_BLOCKS; b++)
        #pragma unroll
        for (int i = 0; i < 16; i++) values[c][b][i] = exists ? Q::widen(from[(4 * c + t) * 2 * K_VECTOR + 16 * b + i]) : 0.f;
    float factor = 1.f;  // of the row
#if Q_NVFP4
    float amax = 0.f;
    #pragma unroll
    for (int c = 0; c < K_CHUNKS; c++)
      #pragma unroll
      for (int b = 0; b < K_BLOCKS; b++)
        #pragma unroll
        for (int i = 0; i < 16; i++) amax = fmaxf(amax, fabsf(values[c][b][i]));
    amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, 1));
    amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, 2));
    if constexpr (PARTS > 1) {
      __shared__ float maxima[PARTS][ROWS];
      if (t == 0) maxima[part][g] = amax;
      wait_for_team(team);
      amax = fmaxf(maxima[0][g], maxima[PARTS - 1][g]);
    }
    factor = rounding::row_factor(amax);
    #pragma unroll
    for (int c = 0; c < K_CHUNKS; c++)
      #pragma unroll
      for (int b = 0; b < K_BLOCKS; b++) rounding::round_block(values[c][b], factor);
#endif
    if (part == 0 && t == 0) factors[g] = factor;
    #pragma unroll
    for (int c = 0; c < K_CHUNKS; c++)
      #pragma unroll
      for (int w = 0; w < K_WORDS; w++) {
        const float* word = values[c][w / 2] + w % 2 * 8;
        q_fragments[part][c][w][lane] = make_uint4(K::round(word[0], word[2]), K::round(word[4], word[6]),
                                                   K::round(word[1], word[3]), K::round(word[5], word[7]));
      }
  }
  __syncthreads();
  float score_scale[2];
  #pragma unroll
  for (int i = 0; i < 2; i++) score_scale[i] = score_scale_of(scale_log2, *k_global, factors[2 * t + i]);

  if (number < whole) load_v<WINDOWED>(step, cache, number * KEYS, t);

  Sums sums{{}, {NO_KEY, NO_KEY}, {0.f, 0.f}};
  __shared__ Exchange exchange;
  if constexpr (!WINDOWED) {
    walk<false, true>(sums, q_fragments[part], score_scale, cache, Seen{}, step, number, whole, exchange, team, part, lane);
    if (number < whole) number += (whole - number + TEAMS - 1) / TEAMS * TEAMS;
    if constexpr (PARTS > 1) wait_for_team(team);  // both walks begin with the same buffer of `exchange`
  }
  cache.last = work.tokens - 1;
  Seen seen;
  #pragma unroll
  for (int i = 0; i < 2; i++) {  // rows beyond the last query are stored nowhere
    const int query = (work.row_tile * ROWS + 2 * t + i) / GROUP;
    seen.last[i] = CAUSAL ? min(query + work.tokens - q_len, cache.last) : cache.last;
    seen.first[i] = WINDOWED ? seen.last[i] + 1 - window : 0;
  }
  walk<true, WINDOWED>(sums, q_fragments[part], score_scale, cache, seen, step, number, work.stop, exchange, team, part, lane);

  // The teams' results become one: weighed by exp2 of their largest scores.
  extern __shared__ float shared[];
  Results& results = *reinterpret_cast<Results*>(shared);
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    #pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) sums.total[i] += __shfl_xor_sync(ALL, sums.total[i], mask);
    if (g == 0) {
      results.tops[team][2 * t + i] = sums.top[i];
      results.totals[team][2 * t + i] = sums.total[i];
    }
    #pragma unroll
    for (int tile = 0; tile < DIM_TILES; tile++) {
      results.outs[team][2 * t + i][part * V_DIM + dim_of(tile, 0, g)] = sums.acc[tile][i];
      results.outs[team][2 * t + i][part * V_DIM + dim_of(tile, 2, g)] = sums.acc[tile][i + 2];
    }
  }
  __syncthreads();
#if SPLIT && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const float out_scale = *v_global * V::UNIT;
  for (int i = warp; i < ROWS && work.row_tile * ROWS + i < q_len * GROUP; i += WARPS) {
    float row_top = NO_KEY, row_total = 0.f, weights[TEAMS];
    #pragma unroll
    for (int w = 0; w < TEAMS; w++) row_top = fmaxf(row_top, results.tops[w][i]);
    #pragma unroll
    for (int w = 0; w < TEAMS; w++) {
      weights[w] = results.tops[w][i] == NO_KEY ? 0.f : exp2_approx(results.tops[w][i] - row_top);
      row_total += weights[w] * results.totals[w][i];
    }
    const float reciprocal = reciprocal_of(row_total);
    const i64 batch = work.batch;
    const ResultRow at(work.head, work.row_tile * ROWS + i);
    OUT_TYPE* to = OUT_OF(batch, at);
    for (int dim = lane; dim < V_HEAD_DIM; dim += 32) {
      float sum = 0.f;
      #pragma unroll
      for (int w = 0; w < TEAMS; w++) sum += weights[w] * results.outs[w][i][dim];
      store(to + dim, sum * reciprocal * out_scale);
    }
    if (lane == 0)
      LSE_OF(batch, at) = lse_of(row_total, row_top, P_BIAS);
  }
}
