// A4Q for few query rows: packed NVFP4 K and V go from global memory to registers, straight or by way of shared memory, and are
// dequantised there, in the loop.
//
// 8 query rows of one key-value head (q_len * GROUP of them, packed: row r is query r / GROUP of head r % GROUP) are the 8
// columns of every product; 8 more, where ROW_TILES is 2, are those of a second one with what was decoded for the first. Keys
// and head dims fill the 16 rows of mma.sync's first operand:
//
//   S^T [16 keys, 8 rows]  = K [16 keys, D] @ Q^T            A: K, decoded where it was loaded.  B: Q^T, from shared memory.
//   O^T [16 dims, 8 rows] += V^T [16 dims, 16 keys] @ P^T    A: V^T, likewise.  B: P^T, the fragment of S^T transposed.
//
// A warp walks keys of its own, 16 * KEY_TILES at a time; beyond 256 head dims two warps, a team, share a walk and each has
// half of the dims. Nothing else is exchanged until the teams' results are merged. Steps that every row sees whole come first,
// with addresses a constant apart and no mask; then, once more, the few that need one. Whole steps are staged in shared memory
// where bulk copies can bring them (STAGES, see staged.cuh); elsewhere, when K is multiplied its registers take the next step's
// K, which arrives while V is multiplied, and the same the other way round.
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
#include "queries.cuh"
#include "round.cuh"
#include "impls/cuda/kernels/attend.cuh"
#include "impls/cuda/kernels/mma.cuh"

// Given: what attend.cuh is, and ROW_TILES, Q_NVFP4, Q_ALIGNMENT, KEY_TILES, WARPS, BLOCKS_PER_SM, STAGES (0: whole steps are
// loaded to registers too), SHARED_BYTES (dynamic ones of a block, as planned).
constexpr int ROWS = 8 * ROW_TILES, LANE_ROWS = 2 * ROW_TILES;
constexpr int KEYS = 16 * KEY_TILES;
constexpr int PARTS = HEAD_DIM > 256 || V_HEAD_DIM > 256 ? 2 : 1;
constexpr int TEAMS = WARPS / PARTS;
constexpr int K_DIM = HEAD_DIM / PARTS, V_DIM = V_HEAD_DIM / PARTS;  // of one warp

constexpr int K_VECTOR = K_DIM % 128 == 0 ? 16 : 8;
constexpr int K_CHUNKS = K_DIM / (8 * K_VECTOR);
constexpr int K_WORDS = K_VECTOR / 4;
constexpr int K_BLOCKS = K_VECTOR / 8;  // of 16 elements in a lane's chunk
constexpr int Q_PIECES_OF_A_ROW = PARTS * K_CHUNKS * K_BLOCKS, Q_PIECES = ROW_TILES * Q_PIECES_OF_A_ROW;  // 16 elements a lane
constexpr int Q_WARPS = Q_PIECES < WARPS ? Q_PIECES : WARPS, Q_PIECES_OF_A_WARP = (Q_PIECES + Q_WARPS - 1) / Q_WARPS;

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

#if STAGES
#include "staged.cuh"
#else
struct Ring {};
#endif

// The row, of a tile of ROWS, that number n of a lane's rows is.
__device__ __forceinline__ constexpr int row_of(int n, int t) { return 8 * (n / 2) + 2 * t + n % 2; }

// Q^T of one part of the head dims, as each lane multiplies it: words [even, odd][pair]. It waits in shared memory, for all
// teams, and leaves its registers to others.
using Fragments = uint4[ROW_TILES][K_CHUNKS][K_WORDS][32];

// Of tiles of S^T: keys g and g + 8 of a tile, of two rows each.
using Scores = float[KEY_TILES][ROW_TILES][4];

// Volatile: or the compiler would load them once, before the loop, and keep them.
__device__ __forceinline__ void load_q(u32 (&even)[2], u32 (&odd)[2], const uint4& from) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(even[0]), "=r"(even[1]), "=r"(odd[0]), "=r"(odd[1]) : "r"((u32)__cvta_generic_to_shared(&from)));
}

// s += K @ Q^T of the tiles.
__device__ __forceinline__ void add_scores(Scores& s, const Step& step, const Fragments& q, int lane) {
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
      u32 q_even[ROW_TILES][2], q_odd[ROW_TILES][2];
      #pragma unroll
      for (int r = 0; r < ROW_TILES; r++) load_q(q_even[r], q_odd[r], q[r][c][w][lane]);
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
        #pragma unroll
        for (int r = 0; r < ROW_TILES; r++) mma::add_product<K>(s[tile][r], a, q_even[r]);
        const u32 b[4] = {K::multiply(odd[0][0], low), K::multiply(odd[1][0], high), K::multiply(odd[0][1], low),
                          K::multiply(odd[1][1], high)};
        #pragma unroll
        for (int r = 0; r < ROW_TILES; r++) mma::add_product<K>(s[tile][r], b, q_odd[r]);
      }
    }
  }
}

// Of tiles of O^T: dims g and g + 8 of a tile, of two rows each.
using Outputs = float[DIM_TILES][ROW_TILES][4];

// acc[i] += V^T @ P^T of tile i of the dims, 16 keys.
__device__ __forceinline__ void add_values(Outputs& acc, const Step& step, int tile, const u32 (&p)[ROW_TILES][2]) {
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
    #pragma unroll
    for (int r = 0; r < ROW_TILES; r++) mma::add_product<V>(acc[i][r], a, p[r]);
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
          #pragma unroll
          for (int r = 0; r < ROW_TILES; r++)
            mma::add_product<V>(acc[(c * V_WORDS + w) * 4 + 2 * half + byte][r], a, p[r]);
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

// Where the teams' results are in shared memory: a row has its head dims in the order of their places.
//
//   not V_ALONG_TOKENS    dim = (8 chunk + g) * 2 * V_VECTOR + j   is at   (2 * V_VECTOR * chunk + j) * 9 + g
//   else                  as they are
//
// A warp writes one j of all g for 4 pairs of rows at once: with rows 4 or 12 words (mod 16) apart, each to a bank of its own.
// It reads neighbouring dims of a row: j by j, 9 words apart.
constexpr int ROW_PLACES = V_HEAD_DIM / 8 * 9 + 4;

__device__ __forceinline__ int place_of(int dim) {
  if constexpr (V_ALONG_TOKENS) return dim;
  const int j = dim % (2 * V_VECTOR), lane = dim / (2 * V_VECTOR);
  return (lane / 8 * 2 * V_VECTOR + j) * 9 + lane % 8;
}

// Barrier 0 is __syncthreads; those from 1 on are the teams', where they have several warps, and one of those that read Q.
constexpr int Q_BARRIER = PARTS > 1 ? TEAMS + 1 : 1;
static_assert(Q_BARRIER < 16, "a block has 16 barriers");

template <int COUNT>
__device__ __forceinline__ void wait_for_warps(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(32 * COUNT) : "memory");
}

__device__ __forceinline__ void wait_for_team(int team) { wait_for_warps<PARTS>(team + 1); }

using Exchange = float4[2][TEAMS][PARTS][KEY_TILES][ROW_TILES][32];

// A team's warps have each summed over their own head dims: both get the sum, added in the same order.
__device__ __forceinline__ void add_scores_of_team(Scores& s, Exchange& exchange, int turn, int team, int part, int lane) {
  #pragma unroll
  for (int tile = 0; tile < KEY_TILES; tile++)
    #pragma unroll
    for (int r = 0; r < ROW_TILES; r++)
      exchange[turn][team][part][tile][r][lane] = make_float4(s[tile][r][0], s[tile][r][1], s[tile][r][2], s[tile][r][3]);
  wait_for_team(team);
  #pragma unroll
  for (int tile = 0; tile < KEY_TILES; tile++)
    #pragma unroll
    for (int r = 0; r < ROW_TILES; r++) {
      const float4 a = exchange[turn][team][0][tile][r][lane], b = exchange[turn][team][PARTS - 1][tile][r][lane];
      s[tile][r][0] = a.x + b.x;
      s[tile][r][1] = a.y + b.y;
      s[tile][r][2] = a.z + b.z;
      s[tile][r][3] = a.w + b.w;
    }
}

// Keys that this lane's rows see: first <= key <= last.
struct Seen {
  int first[LANE_ROWS], last[LANE_ROWS];
};

// What a warp has summed for this lane's rows.
struct Sums {
  Outputs acc;             // of P @ V
  float top[LANE_ROWS];    // the largest scores
  float total[LANE_ROWS];  // of P
};

// Where a walk has its steps from: AHEAD loads each while the one before is multiplied, and `step` holds the first; NOW when it
// is needed; STAGED reads shared memory.
enum class From { AHEAD, NOW, STAGED };

// Attend to the steps number, number + TEAMS, ... before `stop`. Not MASKED: every row sees all their keys.
template <bool MASKED, From FROM>
__device__ __forceinline__ void walk(Sums& sums, const Fragments& q, const float (&score_scale)[LANE_ROWS],
                                     const Cache& cache, const Seen& seen, Step& step, [[maybe_unused]] Ring& ring, int number,
                                     int stop, Exchange& exchange, int team, int part, int lane) {
  const int g = lane / 4, t = lane % 4;
  [[maybe_unused]] int turn = 0;
  for (; number < stop; number += TEAMS) {
    const int key = number * KEYS;
    if constexpr (FROM == From::NOW) {
      load_k<MASKED>(step, cache, key, g);
      load_v<MASKED>(step, cache, key, t);
    }
#if STAGES
    if constexpr (FROM == From::STAGED) {
      ring.wait();
      read_k(step, ring.round(), team, part, g, t);
    }
#endif
    const int next = (number + TEAMS < stop ? number + TEAMS : number) * KEYS;  // the last loads what it has

    Scores s = {};
    add_scores(s, step, q, lane);
    if constexpr (FROM == From::AHEAD) load_k<MASKED>(step, cache, next, g);
    if constexpr (PARTS > 1) {
      add_scores_of_team(s, exchange, turn, team, part, lane);
      turn ^= 1;  // the other buffer next: this one may still be read
    }

    float step_top[LANE_ROWS];
    #pragma unroll
    for (int n = 0; n < LANE_ROWS; n++) step_top[n] = NO_KEY;
    #pragma unroll
    for (int tile = 0; tile < KEY_TILES; tile++)
      #pragma unroll
      for (int r = 0; r < ROW_TILES; r++)
        #pragma unroll
        for (int c = 0; c < 4; c++) {
          const int n = 2 * r + c % 2;
          s[tile][r][c] *= score_scale[n];
          if constexpr (MASKED) {
            const int token = key + token_of_row(0, g) + token_of_row(tile, 8 * (c / 2));
            if (token < seen.first[n] || token > seen.last[n]) s[tile][r][c] = NO_KEY;
          }
          step_top[n] = fmaxf(step_top[n], s[tile][r][c]);
        }
    // A new largest score is rare: lanes look for one first, and only then agree on it and scale what they have summed.
    bool larger = false;
    #pragma unroll
    for (int n = 0; n < LANE_ROWS; n++) larger |= step_top[n] > sums.top[n];
    if (__any_sync(ALL, larger)) {
      #pragma unroll
      for (int n = 0; n < LANE_ROWS; n++) {
        #pragma unroll
        for (int mask = 4; mask < 32; mask *= 2) step_top[n] = fmaxf(step_top[n], __shfl_xor_sync(ALL, step_top[n], mask));
        const float new_top = fmaxf(sums.top[n], step_top[n]);
        const float keep = new_top == NO_KEY ? 1.f : exp2_approx(sums.top[n] - new_top);
        sums.top[n] = new_top;
        sums.total[n] *= keep;
        #pragma unroll
        for (int tile = 0; tile < DIM_TILES; tile++) {
          sums.acc[tile][n / 2][n % 2] *= keep;
          sums.acc[tile][n / 2][n % 2 + 2] *= keep;
        }
      }
    }
    float shift[LANE_ROWS];
    #pragma unroll
    for (int n = 0; n < LANE_ROWS; n++) shift[n] = MASKED && sums.top[n] == NO_KEY ? 0.f : sums.top[n] - P_BIAS;
    #pragma unroll
    for (int tile = 0; tile < KEY_TILES; tile++) {
      u32 p[ROW_TILES][2];
      #pragma unroll
      for (int r = 0; r < ROW_TILES; r++) {
        float numerators[4];
        #pragma unroll
        for (int c = 0; c < 4; c++) {
          const int n = 2 * r + c % 2;
          numerators[c] = exp2_approx(s[tile][r][c] - shift[n]);
          sums.total[n] += numerators[c];
        }
        p[r][0] = mma::transposed(V::round(numerators[0], numerators[1]));
        p[r][1] = mma::transposed(V::round(numerators[2], numerators[3]));
      }
#if STAGES
      if constexpr (FROM == From::STAGED) read_v(step, tile, ring.round(), team, part, g, t);
#endif
      add_values(sums.acc, step, tile, p);
    }
    if constexpr (FROM == From::AHEAD) load_v<MASKED>(step, cache, next, t);
#if STAGES
    if constexpr (FROM == From::STAGED) {
      release(ring, cache, number - team + STAGES * TEAMS, stop, part, lane);
      ring.advance();
    }
#endif
  }
}

// What the teams have summed, at the end, where the stages were: rows of places.
using Results = float[TEAMS][ROWS][ROW_PLACES];
constexpr int RING_BYTES = TEAMS * STAGES * KEYS * (HEAD_DIM + V_HEAD_DIM) * 9 / 16;
static_assert((RING_BYTES > sizeof(Results) ? RING_BYTES : sizeof(Results)) == SHARED_BYTES, "planned");

// What a block works on.
struct Work {
  int row_tile, head, batch, tokens, stop;
  float k_global, v_global;
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
  extern __shared__ __align__(16) u8 shared[];  // the stages of all teams, later their results
  Ring ring;
#if STAGES
  __shared__ __align__(8) unsigned long long arrived[STAGES];
  __shared__ u32 done[STAGES];
  ring.stages = shared;
  ring.done = done;
  ring.arrived = (u32)__cvta_generic_to_shared(arrived);
  if (threadIdx.x == 32 * (WARPS - 1)) {  // no warp that reads Q first, where there are others
    #pragma unroll
    for (int stage = 0; stage < STAGES; stage++) {
      barrier::init(ring.arrived + 8 * stage, 1);
      done[stage] = 0;
    }
    barrier::publish();
    #pragma unroll 1
    for (int stage = 0; stage < STAGES; stage++) fill(ring, stage, cache, start + stage * TEAMS, whole, part);
  }
  constexpr From WHOLE = From::STAGED;
#else
  if (number < whole) load_k<WINDOWED>(step, cache, number * KEYS, g);
  constexpr From WHOLE = From::AHEAD;
#endif

  // Q^T: column g is row g of the tile, its rows in the order in which K is decoded. Warps share it out by pieces, 16 values of
  // each lane, and all of them multiply all of it.
  __shared__ Fragments q_fragments[PARTS];
  __shared__ float factors[ROWS];
  __shared__ Work work;  // for later: registers are short during the first walk
  if (warp < Q_WARPS) {
    float values[Q_PIECES_OF_A_WARP][16];
    #pragma unroll
    for (int i = 0; i < Q_PIECES_OF_A_WARP; i++) {
      const int piece = warp + i * Q_WARPS, chunk = piece % Q_PIECES_OF_A_ROW / K_BLOCKS;  // of all parts
      const int row = row_tile * ROWS + piece / Q_PIECES_OF_A_ROW * 8 + g;
      const bool exists = row < q_len * GROUP && piece < Q_PIECES;
      const unsigned short* from = q + batch * q_batch_stride + (head * GROUP + row % GROUP) * q_head_stride +
                                   (exists ? row / GROUP : 0) * q_row_stride;
      load_block(values[i], from + (4 * chunk + t) * 2 * K_VECTOR + 16 * (piece % K_BLOCKS), exists);
    }
    if (threadIdx.x == 0) work = {row_tile, head, batch, tokens, stop, *k_global, *v_global};  // waited for with Q, not after it
    float factor[Q_PIECES_OF_A_WARP];
#if Q_NVFP4
    __shared__ float maxima[Q_PIECES_OF_A_WARP * Q_WARPS][8];
    #pragma unroll
    for (int i = 0; i < Q_PIECES_OF_A_WARP; i++) {
      float amax = 0.f;
      #pragma unroll
      for (int j = 0; j < 16; j++) amax = fmaxf(amax, fabsf(values[i][j]));
      amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, 1));
      amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, 2));
      if (t == 0) maxima[warp + i * Q_WARPS][g] = amax;
    }
    wait_for_warps<Q_WARPS>(Q_BARRIER);
    #pragma unroll
    for (int i = 0; i < Q_PIECES_OF_A_WARP; i++) {
      const int first = (warp + i * Q_WARPS) / Q_PIECES_OF_A_ROW * Q_PIECES_OF_A_ROW;
      float amax = 0.f;
      #pragma unroll
      for (int j = 0; j < Q_PIECES_OF_A_ROW; j++) amax = fmaxf(amax, maxima[min(first + j, Q_PIECES - 1)][g]);
      factor[i] = rounding::row_factor(amax);
      rounding::round_block(values[i], factor[i]);
    }
#else
    #pragma unroll
    for (int i = 0; i < Q_PIECES_OF_A_WARP; i++) factor[i] = 1.f;
#endif
    #pragma unroll
    for (int i = 0; i < Q_PIECES_OF_A_WARP; i++) {
      const int piece = warp + i * Q_WARPS, chunk = piece % Q_PIECES_OF_A_ROW / K_BLOCKS, w = piece % K_BLOCKS * 2;
      const int row_tile_of_piece = piece / Q_PIECES_OF_A_ROW;
      if (piece < Q_PIECES) {
        if (piece % Q_PIECES_OF_A_ROW == 0 && t == 0) factors[8 * row_tile_of_piece + g] = factor[i];
        #pragma unroll
        for (int half = 0; half < 2; half++) {
          const float* word = values[i] + 8 * half;
          q_fragments[chunk / K_CHUNKS][row_tile_of_piece][chunk % K_CHUNKS][w + half][lane] = make_uint4(
              K::round(word[0], word[2]), K::round(word[4], word[6]), K::round(word[1], word[3]), K::round(word[5], word[7]));
        }
      }
    }
  }
  __syncthreads();
  float score_scale[LANE_ROWS];
  #pragma unroll
  for (int n = 0; n < LANE_ROWS; n++) score_scale[n] = score_scale_of(scale_log2, work.k_global, factors[row_of(n, t)]);

#if !STAGES
  if (number < whole) load_v<WINDOWED>(step, cache, number * KEYS, t);
#endif

  Sums sums{};
  #pragma unroll
  for (int n = 0; n < LANE_ROWS; n++) sums.top[n] = NO_KEY;
  __shared__ Exchange exchange;
  if constexpr (!WINDOWED) {
    walk<false, WHOLE>(sums, q_fragments[part], score_scale, cache, Seen{}, step, ring, number, whole, exchange, team, part,
                       lane);
    if (number < whole) number += (whole - number + TEAMS - 1) / TEAMS * TEAMS;
    if constexpr (PARTS > 1) wait_for_team(team);  // both walks begin with the same buffer of `exchange`
  }
  cache.last = work.tokens - 1;
  Seen seen;
  #pragma unroll
  for (int n = 0; n < LANE_ROWS; n++) {  // rows beyond the last query are stored nowhere
    const int query = (work.row_tile * ROWS + row_of(n, t)) / GROUP;
    seen.last[n] = CAUSAL ? min(query + work.tokens - q_len, cache.last) : cache.last;
    seen.first[n] = WINDOWED ? seen.last[n] + 1 - window : 0;
  }
  walk<true, WINDOWED ? From::AHEAD : From::NOW>(sums, q_fragments[part], score_scale, cache, seen, step, ring, number,
                                                 work.stop, exchange, team, part, lane);

  // The teams' results become one: weighed by exp2 of their largest scores.
  __shared__ float tops[TEAMS][ROWS], totals[TEAMS][ROWS], weights[ROWS][TEAMS], reciprocals[ROWS];
  __shared__ OUT_TYPE* row_outs[ROWS];
  #pragma unroll
  for (int n = 0; n < LANE_ROWS; n++) {
    #pragma unroll
    for (int mask = 4; mask < 32; mask *= 2) sums.total[n] += __shfl_xor_sync(ALL, sums.total[n], mask);
    if (g == 0 && part == 0) {
      tops[team][row_of(n, t)] = sums.top[n];
      totals[team][row_of(n, t)] = sums.total[n];
    }
  }
  __syncthreads();  // nor does anybody read stages any more
  const int rows = min(q_len * GROUP - work.row_tile * ROWS, ROWS);
  if (warp >= WARPS - ROW_TILES) {  // four lanes have a row
    const int i = 8 * (WARPS - 1 - warp) + lane / 4;
    float row_top = NO_KEY, total = 0.f;
    for (int w = t; w < TEAMS; w += 4) row_top = fmaxf(row_top, tops[w][i]);
    row_top = fmaxf(row_top, __shfl_xor_sync(ALL, row_top, 1));
    row_top = fmaxf(row_top, __shfl_xor_sync(ALL, row_top, 2));
    for (int w = t; w < TEAMS; w += 4) {
      weights[i][w] = tops[w][i] == NO_KEY ? 0.f : exp2_approx(tops[w][i] - row_top);
      total += weights[i][w] * totals[w][i];
    }
    total += __shfl_xor_sync(ALL, total, 1);
    total += __shfl_xor_sync(ALL, total, 2);
    if (t == 0 && i < rows) {
      const ResultRow at(work.head, work.row_tile * ROWS + i);
      reciprocals[i] = reciprocal_of(total);
      row_outs[i] = OUT_OF((i64)work.batch, at);
      LSE_OF((i64)work.batch, at) = lse_of(total, row_top, P_BIAS);
    }
  }
  Results& results = *reinterpret_cast<Results*>(shared);
  #pragma unroll
  for (int n = 0; n < LANE_ROWS; n++)
    #pragma unroll
    for (int tile = 0; tile < DIM_TILES; tile++) {
      float* to = results[team][row_of(n, t)];
      to[place_of(part * V_DIM + dim_of(tile, 0, g))] = sums.acc[tile][n / 2][n % 2];
      to[place_of(part * V_DIM + dim_of(tile, 2, g))] = sums.acc[tile][n / 2][n % 2 + 2];
    }
  __syncthreads();
#if SPLIT && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const float out_scale = work.v_global * V::UNIT;
  #pragma unroll 1
  for (int piece = warp; piece < rows * (V_HEAD_DIM / 32); piece += WARPS) {  // 32 dims of a row
    const int i = piece / (V_HEAD_DIM / 32), dim = piece % (V_HEAD_DIM / 32) * 32 + lane;
    const int place = place_of(dim);
    float sum = 0.f;
    #pragma unroll
    for (int w = 0; w < TEAMS; w++) sum += weights[i][w] * results[w][i][place];
    store(row_outs[i] + dim, sum * reciprocals[i] * out_scale);
  }
}
