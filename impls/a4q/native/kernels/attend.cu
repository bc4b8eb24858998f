// A4Q on tensor cores that take NVFP4 (sm_120a, sm_121a): Q, rounded here, and packed K are multiplied as they are, V is decoded
// in registers. Decode, extend and prefill are this one kernel with other tiles.
//
//   S [16 rows, 8 keys]  = Q [16, D] @ K^T      m16n8k64, NVFP4.  A: Q, rounded once.     B: K's codes and scales, as they lie.
//   O [16 rows, 8 dims] += P [16, 16 keys] @ V  m16n8k16, f16.    A: P, two C of S.       B: V, decoded from shared memory.
//
// Query rows of one key-value head are packed (row r is query r / GROUP of head r % GROUP), 16 to a warp. A block has ROW_WARPS
// times 16 rows and walks steps of KEYS keys. Its warps are numbered (row warp, team, part):
//
//   team   one of TEAMS: it has the keys team * TEAM_KEYS and on of every step. Few rows: many teams, whose results are joined.
//   part   beyond 256 dims of V two warps, a pair, share a team's keys: each scores half of the keys, and has half of the dims
//          of O. They agree on the largest scores and exchange P through shared memory.
//
// K. ldmatrix hands out 16-byte pieces of lines of keys: lane 4 g + t gets bytes 4t .. 4t + 3 of key 8 b + g, which are codes
// 8t .. 8t + 7 of a piece. Pieces 2c and 2c + 1 are b0 and b1 of chunk c, 64 head dims:
//
//   a key's codes   | piece 0 | piece 1 | piece 2 ...            lane t of a piece:   | t = 0 | t = 1 | t = 2 | t = 3 |   4 bytes each
//   its scales      | s0 s1 s2 s3 | s4 s5 s6 s7 | ...            a word a chunk
//
// A quad's lanes hold scale words of different products: word n = b * CHUNKS + c is register n / 4 of lane n % 4 (THREAD_B).
//
// V along the head dim. Lane 4 g + t reads V_VECTOR bytes of tokens 2t, 2t + 1, 2t + 8, 2t + 9 of a tile of 16 from byte
// (8 n + g) * V_VECTOR on. Nibbles of two tokens are put side by side (`interleave`), so that a byte is a pair of b0 or b1:
//
//   token 2t       | x x x x x x x a |  V_VECTOR bytes       ->  b a, scales  s(2t + 1) s(2t)   ->  one f16x2 of one dim
//   token 2t + 1   | y y y y y y y b |
//
// V along tokens. A byte is such a pair already: lane 4 g + t reads tokens LANE_TOKENS * t and on of dim 8 n + g (stage.cuh).
#include "impls/a4q/kernels/round.cuh"
#include "impls/cuda/kernels/attend.cuh"
#include "impls/cuda/kernels/mma.cuh"

// Given: what attend.cuh is, Q_ALIGNMENT, OUT_ALIGNMENT, ROW_WARPS, TEAMS, KEYS, STAGES, SHARED_BYTES (of a block, as planned),
// BLOCKS_PER_SM.
constexpr int PARTS = V_HEAD_DIM > 256 ? 2 : 1;
constexpr int THREADS = 32 * ROW_WARPS * TEAMS * PARTS;
#include "stage.cuh"
#include "nvfp4_mma.cuh"

constexpr int ROWS = 16 * ROW_WARPS;
constexpr int PAIRS = ROW_WARPS * TEAMS;
constexpr int CHUNKS = HEAD_DIM / 64;
constexpr int BLOCKS = TEAM_KEYS / 8;            // of keys, of a team
constexpr int WARP_BLOCKS = BLOCKS / PARTS;      // whose scores a warp computes
constexpr int PIECES = HEAD_DIM / 32;            // of 16 bytes, of a key
constexpr int ALL_PIECES = WARP_BLOCKS * PIECES;
constexpr int SCALE_WORDS = WARP_BLOCKS * CHUNKS;
constexpr int TILES = TEAM_KEYS / 16;            // of keys, of P @ V
constexpr int V_DIM = V_HEAD_DIM / PARTS;
constexpr int DIM_BLOCKS = V_DIM / 8;
constexpr int V_VECTOR = V_DIM % 256 == 0 ? 16 : V_DIM % 128 == 0 ? 8 : 4;
static_assert(HEAD_DIM % 64 == 0 && V_DIM % 64 == 0 && ALL_PIECES % 4 == 0, "products are whole");

// Shared memory: queries, what pairs exchange, and stages, in whose place the teams' results are joined at the end.
constexpr int Q_SCALES_AT = ROW_WARPS * CHUNKS * 32 * 16;
constexpr int P_AT = Q_SCALES_AT + ROWS * CHUNKS * 4;
constexpr int TOPS_AT = P_AT + (PARTS > 1 ? PAIRS * BLOCKS * 32 * 8 : 0);
constexpr int STAGES_AT = TOPS_AT + (PARTS > 1 ? PAIRS * PARTS * 16 * 4 : 0);
constexpr int SUMS_BYTES = TEAMS > 1 ? PAIRS / 2 * PARTS * (DIM_BLOCKS + 1) * 32 * 16 : 0;
static_assert(SHARED_BYTES == STAGES_AT + (SUMS_BYTES > STAGES * STAGE_BYTES ? SUMS_BYTES : STAGES * STAGE_BYTES), "planned");

extern __shared__ float4 shared_memory[];

// Volatile: what other warps write changes between two loads.
template <int BYTES>
__device__ __forceinline__ void load_shared(u32 (&words)[(BYTES + 3) / 4], u32 from) {
  if constexpr (BYTES == 16)
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(from));
  else if constexpr (BYTES == 8)
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(from));
  else if constexpr (BYTES == 4)
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[0]) : "r"(from));
  else if constexpr (BYTES == 2)
    asm volatile("ld.shared.u16 %0, [%1];" : "=r"(words[0]) : "r"(from));
  else
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(words[0]) : "r"(from));
}

// Which warp this is, and which lane of it.
struct Place {
  int row_warp, team, part, g, t;
  u32 shared;  // address of the block's shared memory

  __device__ __forceinline__ int pair() const { return row_warp * TEAMS + team; }
  __device__ __forceinline__ int lane() const { return 4 * g + t; }
};

// Q of a warp's 16 rows, as A of each chunk of 64 head dims. Lane 4 g + t holds the scales of row g + 8 (t % 2) for chunks
// 2 i + t / 2 (THREAD_A). It waits in shared memory and is loaded anew for each step: V is multiplied in its registers.
struct Query {
  u32 codes[CHUNKS][4];
  u32 scales[(CHUNKS + 1) / 2];
};

// Rounds the block's rows to NVFP4, into shared memory. All warps of the same rows read them whole, for their largest values,
// and take turns with the chunks. Row g + 8 i of a warp: lane t has columns 8t + 32 h of each chunk, half of block t / 2 + 2 h.
__device__ __forceinline__ void round_queries(float (&factors)[2], const Place& place, const unsigned short* const (&rows)[2]) {
  constexpr int MEMBERS = TEAMS * PARTS;
  const int member = place.team * PARTS + place.part, t = place.t;
  const auto load = [&](float (&x)[8], int i, int chunk, int half) {
    u32 words[4] = {0, 0, 0, 0};
    if (rows[i]) load::bytes<16, Q_ALIGNMENT>(words, (const u8*)(rows[i] + 64 * chunk + 32 * half + 8 * t));
    #pragma unroll
    for (int w = 0; w < 4; w++) {
      x[2 * w] = Q::widen((unsigned short)words[w]);
      x[2 * w + 1] = Q::widen((unsigned short)(words[w] >> 16));
    }
  };
  const auto largest = [](const float (&x)[8], float amax) {
    #pragma unroll
    for (int k = 0; k < 8; k++) amax = fmaxf(amax, fabsf(x[k]));
    return amax;
  };
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    float amax = 0.f, x[8];
    #pragma unroll 4
    for (int n = 0; n < 2 * CHUNKS; n++) {
      load(x, i, n / 2, n % 2);
      amax = largest(x, amax);
    }
    amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, 1));
    amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, 2));
    factors[i] = rounding::row_factor(amax);
  }
  #pragma unroll 1
  for (int chunk = member; chunk < CHUNKS; chunk += MEMBERS) {
    const u32 line = place.row_warp * CHUNKS + chunk;
    #pragma unroll
    for (int i = 0; i < 2; i++)
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        float x[8];
        load(x, i, chunk, half);
        float amax = largest(x, 0.f);
        amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, 1));  // of the block's other half
        const float scale = rounding::to_e4m3(__fdiv_rn(amax, __fmul_rn(rounding::E2M1_MAX, factors[i])));
        const float step = __fmul_rn(scale, factors[i]);
        #pragma unroll
        for (int k = 0; k < 8; k++) x[k] = step == 0.f ? 0.f : __fdiv_rn(x[k], step);
        const u32 codes_at = place.shared + (line * 32 + place.lane()) * 16 + 4 * (i + 2 * half);
        const u32 scale_at = place.shared + Q_SCALES_AT + (line * 16 + place.g + 8 * i) * 4 + t / 2 + 2 * half;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(codes_at), "r"(nvfp4::codes_of(x)) : "memory");
        if (t % 2 == 0) asm volatile("st.shared.u8 [%0], %1;" ::"r"(scale_at), "r"((u32)nvfp4::e4m3_byte(scale)) : "memory");
      }
  }
}

__device__ __forceinline__ void load_queries(Query& query, const Place& place) {
  #pragma unroll
  for (int c = 0; c < CHUNKS; c++)
    load_shared<16>(query.codes[c], place.shared + ((place.row_warp * CHUNKS + c) * 32 + place.lane()) * 16);
  #pragma unroll
  for (int i = 0; i < (CHUNKS + 1) / 2; i++) {
    const int chunk = min(2 * i + place.t / 2, CHUNKS - 1), row = place.g + 8 * (place.t % 2);
    u32 word[1];
    load_shared<4>(word, place.shared + Q_SCALES_AT + ((place.row_warp * CHUNKS + chunk) * 16 + row) * 4);
    query.scales[i] = word[0];
  }
}

// What a warp has summed for this lane's rows, g and g + 8.
struct Sums {
  float acc[DIM_BLOCKS][4];  // of P @ V
  float top[2];              // the largest scores
  float total[2];            // of P, by this lane
};

// Products of one block of keys and chunks C and on.
template <int BLOCK, int C>
__device__ __forceinline__ void add_chunks(float (&s)[4], const Query& query, const u32 (&k)[ALL_PIECES / 4][4],
                                           const u32 (&scales)[(SCALE_WORDS + 3) / 4]) {
  if constexpr (C < CHUNKS) {
    constexpr int PIECE = BLOCK * PIECES + 2 * C, WORD = BLOCK * CHUNKS + C;
    nvfp4::add_product<C % 2, WORD % 4>(s, query.codes[C], query.scales[C / 2], k[PIECE / 4][PIECE % 4],
                                        k[PIECE / 4][PIECE % 4 + 1], scales[WORD / 4]);
    add_chunks<BLOCK, C + 1>(s, query, k, scales);
  }
}

template <int BLOCK>
__device__ __forceinline__ void add_blocks(float (&s)[WARP_BLOCKS][4], const Query& query, const u32 (&k)[ALL_PIECES / 4][4],
                                           const u32 (&scales)[(SCALE_WORDS + 3) / 4]) {
  if constexpr (BLOCK < WARP_BLOCKS) {
    add_chunks<BLOCK, 0>(s[BLOCK], query, k, scales);
    add_blocks<BLOCK + 1>(s, query, k, scales);
  }
}

// s = Q @ K^T of the warp's blocks of keys.
__device__ __forceinline__ void multiply_keys(float (&s)[WARP_BLOCKS][4], const Place& place, u32 stage) {
  Query query;
  load_queries(query, place);
  const int first_line = place.team * TEAM_KEYS + place.part * 8 * WARP_BLOCKS, lane = place.lane();
  u32 k[ALL_PIECES / 4][4], scales[(SCALE_WORDS + 3) / 4];
  #pragma unroll
  for (int i = 0; i < ALL_PIECES / 4; i++) {
    const int piece = 4 * i + lane / 8, line = first_line + piece / PIECES * 8 + lane % 8;
    nvfp4::load_matrices(k[i], stage + line * K_PITCH + piece % PIECES * 16);
  }
  #pragma unroll
  for (int i = 0; i < (SCALE_WORDS + 3) / 4; i++) {
    const int number = min(4 * i + place.t, SCALE_WORDS - 1), line = first_line + number / CHUNKS * 8 + place.g;
    u32 word[1];
    load_shared<4>(word, stage + K_SCALES_AT + line * K_SCALE_LINE + number % CHUNKS * 4);
    scales[i] = word[0];
  }
  #pragma unroll
  for (int b = 0; b < WARP_BLOCKS; b++)
    #pragma unroll
    for (int c = 0; c < 4; c++) s[b][c] = 0.f;
  add_blocks<0>(s, query, k, scales);
}

__device__ __forceinline__ void wait_for_pair(const Place& place) {
  asm volatile("bar.sync %0, %1;" ::"r"(place.pair() + 1), "n"(32 * PARTS) : "memory");  // barrier 0 is __syncthreads
}

__device__ __forceinline__ float& top_of_pair(const Place& place, int part, int row) {
  return reinterpret_cast<float*>(reinterpret_cast<u8*>(shared_memory) + TOPS_AT)[(place.pair() * PARTS + part) * 16 + row];
}

// Its own and the other warp's number of rows g and g + 8, which the lanes of a quad agree on. To be called again only after
// another wait for the pair.
__device__ __forceinline__ void exchange(float (&mine)[2], float (&other)[2], const Place& place) {
  if (place.t == 0) {
    #pragma unroll
    for (int i = 0; i < 2; i++) top_of_pair(place, place.part, place.g + 8 * i) = mine[i];
  }
  wait_for_pair(place);
  #pragma unroll
  for (int i = 0; i < 2; i++) other[i] = top_of_pair(place, 1 - place.part, place.g + 8 * i);
}

// Numerators of softmax of the scores, relative to the largest so far, as float16: registers 0 and 1 are rows g and g + 8,
// columns 2t and 2t + 1.
__device__ __forceinline__ void numerators(u32 (&p)[WARP_BLOCKS][2], Sums& sums, const float (&s)[WARP_BLOCKS][4],
                                           const Place& place) {
  float step_top[2] = {NO_KEY, NO_KEY};
  #pragma unroll
  for (int b = 0; b < WARP_BLOCKS; b++)
    #pragma unroll
    for (int c = 0; c < 4; c++) step_top[c / 2] = fmaxf(step_top[c / 2], s[b][c]);
  const auto agree = [&] {
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      step_top[i] = fmaxf(step_top[i], __shfl_xor_sync(ALL, step_top[i], 1));
      step_top[i] = fmaxf(step_top[i], __shfl_xor_sync(ALL, step_top[i], 2));
    }
  };
  if constexpr (PARTS > 1) {
    float other[2];
    agree();
    exchange(step_top, other, place);
    #pragma unroll
    for (int i = 0; i < 2; i++) step_top[i] = fmaxf(step_top[i], other[i]);
  }
  // A new largest score is rare: lanes look for one first, and only then agree on it and scale what they have summed.
  if (__any_sync(ALL, step_top[0] > sums.top[0] || step_top[1] > sums.top[1])) {
    if constexpr (PARTS == 1) agree();
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const float new_top = fmaxf(sums.top[i], step_top[i]);
      const float keep = new_top == NO_KEY ? 1.f : exp2_approx(sums.top[i] - new_top);
      sums.top[i] = new_top;
      sums.total[i] *= keep;
      #pragma unroll
      for (int n = 0; n < DIM_BLOCKS; n++) {
        sums.acc[n][2 * i] *= keep;
        sums.acc[n][2 * i + 1] *= keep;
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const float shift = sums.top[i] == NO_KEY ? 0.f : sums.top[i] - P_BIAS;
    #pragma unroll
    for (int b = 0; b < WARP_BLOCKS; b++) {
      const float low = exp2_approx(s[b][2 * i] - shift), high = exp2_approx(s[b][2 * i + 1] - shift);
      sums.total[i] += low + high;
      p[b][i] = V::round(low, high);
    }
  }
}

// The team's P as A of each tile of 16 keys: blocks 2 j and 2 j + 1 side by side. A pair's warps have half of the blocks each.
__device__ __forceinline__ void gather(u32 (&a)[TILES][4], const u32 (&p)[WARP_BLOCKS][2], const Place& place) {
  if constexpr (PARTS == 1) {
    #pragma unroll
    for (int b = 0; b < BLOCKS; b++)
      #pragma unroll
      for (int i = 0; i < 2; i++) a[b / 2][2 * (b % 2) + i] = p[b][i];
  } else {
    const u32 at = place.shared + P_AT + place.pair() * BLOCKS * 32 * 8 + place.lane() * 8;
    #pragma unroll
    for (int b = 0; b < WARP_BLOCKS; b++)
      asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at + (place.part * WARP_BLOCKS + b) * 32 * 8), "r"(p[b][0]), "r"(p[b][1])
                   : "memory");
    wait_for_pair(place);
    #pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      u32 both[2];
      load_shared<8>(both, at + b * 32 * 8);
      a[b / 2][2 * (b % 2)] = both[0];
      a[b / 2][2 * (b % 2) + 1] = both[1];
    }
  }
}

// acc += P @ V. Column `col` of block n of the sums is head dim `dim_of(n, col)` of the warp's.
__device__ __forceinline__ void add_values(Sums& sums, const u32 (&a)[TILES][4], const Place& place, u32 stage) {
#if V_ALONG_TOKENS
  constexpr int BYTES = LANE_TOKENS / 2;  // of a lane
  const u32 line = place.part * V_DIM + place.g, token = place.team * TEAM_KEYS + LANE_TOKENS * place.t;
  #pragma unroll
  for (int n = 0; n < DIM_BLOCKS; n++) {
    u32 codes[(BYTES + 3) / 4], scale_byte[1];
    load_shared<BYTES>(codes, stage + V_AT + (line + 8 * n) * V_PITCH + token / 2);
    load_shared<1>(scale_byte, stage + V_SCALES_AT + (line + 8 * n) * V_SCALE_LINE + token / 16);
    const u32 scale = V::scales(scale_byte[0] * 0x0101) ;
    #pragma unroll
    for (int j = 0; j < TILES; j += 2) {
      u32 pairs[4];  // b0 and b1 of two tiles
      nvfp4::decode(codes[j / 2], pairs);
      #pragma unroll
      for (int i = 0; i < 2 && j + i < TILES; i++) {
        const u32 b[2] = {V::multiply(pairs[2 * i], scale), V::multiply(pairs[2 * i + 1], scale)};
        mma::add_product<V>(sums.acc[n], a[j + i], b);
      }
    }
  }
#else
  constexpr int V_CHUNKS = V_DIM / (16 * V_VECTOR), SCALE_BYTES = V_VECTOR == 16 ? 2 : 1;
  #pragma unroll
  for (int j = 0; j < TILES; j++) {
    const int line = place.team * TEAM_KEYS + 16 * j + 2 * place.t;
    #pragma unroll
    for (int n = 0; n < V_CHUNKS; n++) {
      const int byte = place.part * (V_DIM / 2) + (8 * n + place.g) * V_VECTOR;
      u32 codes[2][2][V_VECTOR / 4], scales[2][SCALE_BYTES];  // [b0, b1][token of the pair]; of each block of 16 dims
      #pragma unroll
      for (int r = 0; r < 2; r++) {
        u32 bytes[2][1];
        #pragma unroll
        for (int i = 0; i < 2; i++) {
          load_shared<V_VECTOR>(codes[r][i], stage + V_AT + (line + 8 * r + i) * V_PITCH + byte);
          load_shared<SCALE_BYTES>(bytes[i], stage + V_SCALES_AT + (line + 8 * r + i) * V_SCALE_LINE + byte / 8);
        }
        #pragma unroll
        for (int k = 0; k < SCALE_BYTES; k++) scales[r][k] = V::scales(__byte_perm(bytes[0][0], bytes[1][0], k ? 0x0051 : 0x0040));
      }
      #pragma unroll
      for (int w = 0; w < V_VECTOR / 4; w++) {
        u32 pairs[2][2][4];  // [b0, b1][even, odd dims][byte]
        #pragma unroll
        for (int r = 0; r < 2; r++) {
          u32 even, odd;
          nvfp4::interleave(codes[r][0][w], codes[r][1][w], even, odd);
          nvfp4::decode(even, pairs[r][0]);
          nvfp4::decode(odd, pairs[r][1]);
        }
        #pragma unroll
        for (int d = 0; d < 8; d++) {
          const u32 b[2] = {V::multiply(pairs[0][d % 2][d / 2], scales[0][w / 2]),
                            V::multiply(pairs[1][d % 2][d / 2], scales[1][w / 2])};
          mma::add_product<V>(sums.acc[n * 2 * V_VECTOR + 8 * w + d], a[j], b);
        }
      }
    }
  }
#endif
}

__device__ __forceinline__ int dim_of(int n, int col) {
  if constexpr (V_ALONG_TOKENS) return 8 * n + col;
  return (n / (2 * V_VECTOR) * 8 + col) * 2 * V_VECTOR + n % (2 * V_VECTOR);
}

// The teams' sums become the first team's. In halves: each of the first half's teams adds one of the second's.
__device__ __forceinline__ void join_teams(Sums& sums, const Place& place) {
  float4* slots = shared_memory + STAGES_AT / 16;
  #pragma unroll
  for (int half = TEAMS / 2; half >= 1; half /= 2) {
    float4* slot = slots + ((place.row_warp * half + place.team % half) * PARTS + place.part) * (DIM_BLOCKS + 1) * 32 + place.lane();
    __syncthreads();  // the slots are free
    if (place.team >= half && place.team < 2 * half) {
      #pragma unroll
      for (int n = 0; n < DIM_BLOCKS; n++)
        slot[32 * n] = make_float4(sums.acc[n][0], sums.acc[n][1], sums.acc[n][2], sums.acc[n][3]);
      slot[32 * DIM_BLOCKS] = make_float4(sums.top[0], sums.top[1], sums.total[0], sums.total[1]);
    }
    __syncthreads();
    if (place.team < half) {
      const float4 last = slot[32 * DIM_BLOCKS];
      const float tops[2] = {last.x, last.y}, totals[2] = {last.z, last.w};
      float mine[2], other[2];
      #pragma unroll
      for (int i = 0; i < 2; i++) {
        const float new_top = fmaxf(sums.top[i], tops[i]);
        mine[i] = sums.top[i] == NO_KEY ? 0.f : exp2_approx(sums.top[i] - new_top);
        other[i] = tops[i] == NO_KEY ? 0.f : exp2_approx(tops[i] - new_top);
        sums.top[i] = new_top;
        sums.total[i] = sums.total[i] * mine[i] + totals[i] * other[i];
      }
      #pragma unroll
      for (int n = 0; n < DIM_BLOCKS; n++) {
        const float4 from = slot[32 * n];
        sums.acc[n][0] = sums.acc[n][0] * mine[0] + from.x * other[0];
        sums.acc[n][1] = sums.acc[n][1] * mine[0] + from.y * other[0];
        sums.acc[n][2] = sums.acc[n][2] * mine[1] + from.z * other[1];
        sums.acc[n][3] = sums.acc[n][3] * mine[1] + from.w * other[1];
      }
    }
  }
}

// COUNT neighbouring head dims: 8, or 2 where V runs along tokens.
template <int COUNT>
__device__ __forceinline__ void store_run(float* to, const float (&x)[COUNT]) {
  #pragma unroll
  for (int i = 0; i < COUNT; i += 2) *reinterpret_cast<Float2*>(to + i) = make_float2(x[i], x[i + 1]);
}
template <int COUNT>
__device__ __forceinline__ void store_run(unsigned short* to, const float (&x)[COUNT]) {
  u32 pairs[COUNT / 2];
  #pragma unroll
  for (int i = 0; i < COUNT / 2; i++) pairs[i] = fp4::OUT_FORMAT::round(x[2 * i], x[2 * i + 1]);
  #pragma unroll
  for (int i = 0; i < COUNT / 2; i++) {
    if constexpr (COUNT == 8 && OUT_ALIGNMENT >= 16) {
      if (i == 0) *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    } else if constexpr (OUT_ALIGNMENT >= 4) {
      *reinterpret_cast<u32*>(to + 2 * i) = pairs[i];
    } else {
      to[2 * i] = (unsigned short)pairs[i];
      to[2 * i + 1] = (unsigned short)(pairs[i] >> 16);
    }
  }
}

// What a block works on.
struct Work {
  int row_tile, head, batch;
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) a4q_native(PARAMETERS) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Place place{warp / (TEAMS * PARTS), warp / PARTS % TEAMS, warp % PARTS, lane / 4, lane % 4,
                    (u32)__cvta_generic_to_shared(shared_memory)};
  const int all_rows = q_len * GROUP, row_tiles = (all_rows + ROWS - 1) / ROWS;
  const int row_tile = row_tiles - 1 - blockIdx.x % row_tiles;  // under a causal mask the last have most keys: first
  const int head = blockIdx.x / row_tiles % kv_heads, batch = blockIdx.x / row_tiles / kv_heads;
  __shared__ Work work;  // for later: registers are short in the loop
  if (threadIdx.x == 0) work = {row_tile, head, batch};
  int tokens = kv_len;
  if constexpr (RAGGED) tokens = min(max(kv_lens[batch * kv_lens_batch_stride], 0), kv_len);

  const Range keys = range_of<ROWS>(row_tile, tokens, q_len, window);
  const Cache cache CACHE_OF(batch, head, keys.begin, tokens - 1);

  const int first_step = keys.begin / KEYS, last_step = (keys.end + KEYS - 1) / KEYS;
  const int each = (max(last_step - first_step, 0) + splits - 1) / splits;
  const int start = first_step + blockIdx.y * each, stop = min(start + each, last_step);
  const u32 stages = place.shared + STAGES_AT;
  #pragma unroll
  for (int i = 0; i < STAGES - 1; i++) {
    if (start + i < stop) copy_step(stages + i * STAGE_BYTES, cache, (start + i) * KEYS);
    end_group();
  }

  const int first_row = row_tile * ROWS + 16 * place.row_warp + place.g;
  float score_scale[2];
  {
    const unsigned short* rows[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      const int row = first_row + 8 * i;
      rows[i] = row < all_rows ? q + batch * q_batch_stride + (head * GROUP + row % GROUP) * q_head_stride + row / GROUP * q_row_stride
                               : nullptr;
    }
    float factors[2];
    round_queries(factors, place, rows);
    #pragma unroll
    for (int i = 0; i < 2; i++)  // in double, where no order of the factors over- or underflows
      score_scale[i] = (float)((double)scale_log2 * *k_global * factors[i]);
  }
  __syncthreads();  // queries and `work`

  int seen_first[2], seen_last[2];  // by rows g and g + 8; rows beyond the last query are stored nowhere
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int last = (first_row + 8 * i) / GROUP + tokens - q_len;
    seen_last[i] = CAUSAL ? min(last, tokens - 1) : tokens - 1;
    seen_first[i] = WINDOWED ? seen_last[i] + 1 - window : 0;
  }

  Sums sums{{}, {NO_KEY, NO_KEY}, {0.f, 0.f}};
  int at = 0;
  #pragma unroll 1
  for (int step = start; step < stop; step++) {
    wait_for_groups<STAGES - 2>();
    __syncthreads();  // all have this step, and have done with the one before, whose stage is filled next
    if (step + STAGES - 1 < stop) copy_step(stages + (at ? at - 1 : STAGES - 1) * STAGE_BYTES, cache, (step + STAGES - 1) * KEYS);
    end_group();
    const u32 stage = stages + at * STAGE_BYTES;
    at = at + 1 == STAGES ? 0 : at + 1;

    float s[WARP_BLOCKS][4];
    multiply_keys(s, place, stage);
    #pragma unroll
    for (int b = 0; b < WARP_BLOCKS; b++)
      #pragma unroll
      for (int c = 0; c < 4; c++) s[b][c] *= score_scale[c / 2];
    const int key = step * KEYS;
    if (key < keys.all_from || key + KEYS > keys.all_to) {
      const int lane_token = token_of_line(place.team * TEAM_KEYS + 2 * place.t);
      #pragma unroll
      for (int b = 0; b < WARP_BLOCKS; b++)
        #pragma unroll
        for (int c = 0; c < 4; c++) {
          const int block = place.part * WARP_BLOCKS + b;
          const int token = key + lane_token + (V_ALONG_TOKENS ? 2 : 8) * block + c % 2;
          if (token < seen_first[c / 2] || token > seen_last[c / 2]) s[b][c] = NO_KEY;
        }
    }
    u32 p[WARP_BLOCKS][2], a[TILES][4];
    numerators(p, sums, s, place);
    gather(a, p, place);
    add_values(sums, a, place, stage);
  }

  join_teams(sums, place);
#if SPLIT
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  if (place.team > 0) return;
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    sums.total[i] += __shfl_xor_sync(ALL, sums.total[i], 1);
    sums.total[i] += __shfl_xor_sync(ALL, sums.total[i], 2);
  }
  if constexpr (PARTS > 1) {  // each has the sum of the keys that it scored
    float other[2];
    exchange(sums.total, other, place);
    #pragma unroll
    for (int i = 0; i < 2; i++) sums.total[i] += other[i];
  }
  const float out_scale = *v_global;
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    const int row = work.row_tile * ROWS + 16 * place.row_warp + place.g + 8 * i;
    if (row >= all_rows) continue;
    const float reciprocal = reciprocal_of(sums.total[i]);
    const ResultRow at(work.head, row);
    OUT_TYPE* to = OUT_OF(work.batch, at) + place.part * V_DIM;
    constexpr int RUN = V_ALONG_TOKENS ? 2 : 8;
    #pragma unroll
    for (int n = 0; n < DIM_BLOCKS; n += RUN) {  // 8 blocks' values of one column, or a block's of two, are neighbours
      #pragma unroll
      for (int e = 0; e < 2; e++) {
        float x[RUN];
        #pragma unroll
        for (int k = 0; k < RUN; k++)
          x[k] = (V_ALONG_TOKENS ? sums.acc[n + e][2 * i + k] : sums.acc[n + k][2 * i + e]) * reciprocal * out_scale;
        store_run<RUN>(to + (V_ALONG_TOKENS ? dim_of(n + e, 2 * place.t) : dim_of(n, 2 * place.t + e)), x);
      }
    }
    if (place.part == 0 && place.t == 0)
      LSE_OF(work.batch, at) = lse_of(sums.total[i], sums.top[i], P_BIAS);
  }
}
