// A4Q for many query rows, on sm_90a: what is decoded is shared by 64 * ROW_GROUPS rows, through shared memory.
//
// Warp groups have roles. PRODUCERS of them load packed K and V, a tile of KEYS keys at a time, decode it in registers and
// write it as 16-bit floats into STAGES places of shared memory. The others multiply, 64 rows each, as wgmma does:
//
//   S [64 rows, KEYS]  = Q [64, D] @ K^T [D, KEYS]      Q and K from shared memory
//   O [64 rows, Dv]   += P [64, KEYS] @ V [KEYS, Dv]    P from registers, where S was; V from shared memory
//
// Beyond 256 head dims two groups, PARTS, have the same rows, and each half of the output's head dims; both compute S. This
// tile's P @ V is under way while the next one's softmax is computed. Two barriers a place, full and empty, join the roles.
//
// Rows are packed as in decode.cu: row r is query r / GROUP of head r % GROUP.
//
// A producer thread decodes units of 16 bytes of a line, two blocks with their scales, into four times 16 bytes of shared
// memory. Eight threads have a unit each of 8 lines one below another, which the pattern of wgmma puts on all banks:
//
//   thread    0 .. 7       unit 0 of lines 0 .. 7           a line: a token, or a head dim where V runs along tokens
//             8 .. 15      unit 1 of lines 0 .. 7, ...
//
// 8 codes of a word leave the decoder as (0, 2, 4, 6, 1, 3, 5, 7), and stay so: Q's head dims are put into the same order, V's
// are put right when the output is stored. Tokens, where V runs along them, are put right at once, for P has them in order.
#include "queries.cuh"
#include "round.cuh"
#include "impls/cuda/kernels/attend.cuh"
#include "impls/cuda/kernels/barrier.cuh"
#include "impls/cuda/kernels/wgmma.cuh"

// Given: what attend.cuh is, and Q_NVFP4, ROW_GROUPS, KEYS, STAGES, PRODUCERS, BLOCKS_PER_SM, Q_ALIGNMENT, SHARED_BYTES (of a
// block, as planned).
constexpr int PARTS = HEAD_DIM > 256 || V_HEAD_DIM > 256 ? 2 : 1;
constexpr int CONSUMERS = ROW_GROUPS * PARTS;
constexpr int ROWS = 64 * ROW_GROUPS;
constexpr int THREADS = 128 * (PRODUCERS + CONSUMERS);
constexpr int V_DIM = V_HEAD_DIM / PARTS;  // of one warp group
constexpr int KEY_BLOCKS = KEYS / 64, DIM_BLOCKS = V_DIM / 64;

static_assert(HEAD_DIM % 64 == 0 && V_DIM % 64 == 0 && KEYS % 64 == 0, "lines of shared memory are 64 values");

// Registers of a thread: what the launch gives to all is dealt out anew.
constexpr int LAUNCHED = 65536 / (THREADS * BLOCKS_PER_SM) / 8 * 8;
constexpr bool DEALT = LAUNCHED < 240;
constexpr int OF_PRODUCER = V_DIM > 192 ? 88 : 104;  // wide sums need more
constexpr int OF_CONSUMER_AT_MOST = (LAUNCHED * (PRODUCERS + CONSUMERS) - OF_PRODUCER * PRODUCERS) / CONSUMERS / 8 * 8;
constexpr int OF_CONSUMER = OF_CONSUMER_AT_MOST < 240 ? OF_CONSUMER_AT_MOST : 240;

// What a producer thread has of a tile.
constexpr int OCTETS = 16 * PRODUCERS;  // of threads
constexpr int K_LINES = KEYS, K_UNITS = HEAD_DIM / 32;  // units of a line
constexpr int V_LINES = V_ALONG_TOKENS ? V_HEAD_DIM : KEYS, V_UNITS = (V_ALONG_TOKENS ? KEYS : V_HEAD_DIM) / 32;
constexpr int K_SHARE = K_LINES / 8 * K_UNITS / OCTETS, V_SHARE = V_LINES / 8 * V_UNITS / OCTETS;
constexpr int AT_ONCE = V_ALONG_TOKENS || PAGE_SIZE ? 2 : 4;  // units; 2 where each has addresses of its own

// Parts that a thread's share of a tile is loaded in: of at most AT_ONCE units, or as small as K and V can both be cut.
__device__ constexpr int pieces() {
  int number = 1;
  for (int n = 1; n <= K_SHARE && n <= V_SHARE; n++) {
    const bool small = K_SHARE <= AT_ONCE * number && V_SHARE <= AT_ONCE * number;
    if (!small && K_SHARE % n == 0 && V_SHARE % n == 0) number = n;
  }
  return number;
}
constexpr int PIECES = pieces(), K_PIECE = K_SHARE / PIECES, V_PIECE = V_SHARE / PIECES;
constexpr int MOST_AT_ONCE = K_PIECE > V_PIECE ? K_PIECE : V_PIECE;

// Shared memory, from a multiple of 1024 on.
constexpr u32 Q_BYTES = 2 * ROWS * HEAD_DIM, K_BYTES = 2 * KEYS * HEAD_DIM, V_BYTES = 2 * KEYS * V_HEAD_DIM;
struct Places {
  u32 q, k, v, factors, barriers;

  __device__ __forceinline__ constexpr explicit Places(u32 from)
      : q((from + 1023) / 1024 * 1024),
        k(q + Q_BYTES),
        v(k + STAGES * K_BYTES),
        factors(v + STAGES * V_BYTES),
        barriers(factors + 4 * ROWS) {}
  __device__ __forceinline__ u32 k_full(int stage) const { return barriers + 8 * stage; }
  __device__ __forceinline__ u32 k_empty(int stage) const { return barriers + 8 * (STAGES + stage); }
  __device__ __forceinline__ u32 v_full(int stage) const { return barriers + 8 * (2 * STAGES + stage); }
  __device__ __forceinline__ constexpr u32 v_empty(int stage) const { return barriers + 8 * (3 * STAGES + stage); }
};
static_assert(1024 + Places(0).v_empty(STAGES) == SHARED_BYTES, "planned");

__device__ __forceinline__ void store_shared(u32 at, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// The same value, of which nothing is known: what is computed from it is computed here, not once before the loop, for want of
// registers.
__device__ __forceinline__ u32 fresh(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ i64 fresh(i64 value) {
  asm volatile("" : "+l"(value));
  return value;
}

template <int REGISTERS, bool MORE>
__device__ __forceinline__ void deal_registers() {
  if constexpr (DEALT && MORE) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
  if constexpr (DEALT && !MORE) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// ---- Producers

// Units of a tile that a thread loads together.
struct Piece {
  u32 codes[MOST_AT_ONCE][4], scales[MOST_AT_ONCE];
};

// Where unit `number` of a thread is: `unit` + `across` of line `line` + `apart`. `across` and `apart` are the same for all
// threads and known when compiling; `across` is even, `apart` a multiple of 8.
template <int UNITS, int LINES>
struct Share {
  static constexpr int COLUMNS = UNITS & -UNITS;  // the largest power of two that divides it
  static constexpr int LINES_OF_ALL = OCTETS / COLUMNS * 8;
  static_assert(LINES % LINES_OF_ALL == 0, "all threads have as many units");
  int unit, line, across, apart;

  __device__ __forceinline__ Share(int number, int thread) {
    unit = thread / 8 % COLUMNS;
    line = thread / 8 / COLUMNS * 8 + thread % 8;
    across = number % (UNITS / COLUMNS) * COLUMNS;
    apart = number / (UNITS / COLUMNS) * LINES_OF_ALL;
  }
};

// A tensor whose lines are tokens, as a thread loads its share of a tile of it.
template <int UNITS_, int LINES_, int COUNT_, int CODES_, int SCALES_>
struct Tokens {
  static constexpr int UNITS = UNITS_, LINES = LINES_, COUNT = COUNT_, CODES_ALIGNMENT = CODES_, SCALES_ALIGNMENT = SCALES_;
};
using KTokens = Tokens<K_UNITS, K_LINES, K_PIECE, K_CODES_ALIGNMENT, K_SCALES_ALIGNMENT>;
using VTokens = Tokens<V_UNITS, V_LINES, V_PIECE, V_CODES_ALIGNMENT, V_SCALES_ALIGNMENT>;

// MASKED: some of the tile's tokens are not to be read, or they are on pages.
template <typename T, bool MASKED>
__device__ __forceinline__ void load_tokens(Piece& piece, const Cache& cache, const Lines& codes, const Lines& scales, int key,
                                            int first, int thread) {
  #pragma unroll
  for (int i = 0; i < T::COUNT; i++) {
    const Share<T::UNITS, T::LINES> at(first + i, thread);
    const u8* code = line<MASKED>(cache, codes, key, at.line, at.apart) + 16 * at.unit + 16 * at.across;
    const u8* scale = line<MASKED>(cache, scales, key, at.line, at.apart) + 2 * at.unit + 2 * at.across;
    load::bytes<16, T::CODES_ALIGNMENT>(piece.codes[i], code);
    piece.scales[i] = load_scales<2, T::SCALES_ALIGNMENT>(scale);
  }
}

template <typename T>
__device__ __forceinline__ void load_tokens(Piece& piece, const Cache& cache, const Lines& codes, const Lines& scales, int key,
                                            int first, int thread) {
  if (PAGE_SIZE == 0 && key >= cache.first && key + KEYS - 1 <= cache.last)
    load_tokens<T, false>(piece, cache, codes, scales, key, first, thread);
  else
    load_tokens<T, true>(piece, cache, codes, scales, key, first, thread);
}

// Units of V's lines that are head dims: two blocks of 16 tokens, each on a page of its own. Blocks are stored whole, so those
// that some row sees a token of may be read.
__device__ __forceinline__ void load_dims(Piece& piece, const Cache& cache, int key, int first, int thread) {
  const i64 line_stride = fresh(cache.v.line_stride), scales_line_stride = fresh(cache.v_scales.line_stride);
  #pragma unroll
  for (int i = 0; i < V_PIECE; i++) {
    const Share<V_UNITS, V_LINES> at(first + i, thread);
    u32 scales[2];
    #pragma unroll
    for (int half = 0; half < 2; half++) {
      const int block = max(min(key / 16 + 2 * (at.unit + at.across) + half, cache.last / 16), cache.first / 16);
      const u32 page = cache.page(16 * block), slot = Cache::slot(16 * block), dim = at.line + at.apart;
      u32 words[2];
      load::bytes<8, V_CODES_ALIGNMENT>(words,
                                        cache.v.base + page * cache.v.page_stride + dim * line_stride + slot / 2);
      piece.codes[i][2 * half] = words[0];
      piece.codes[i][2 * half + 1] = words[1];
      scales[half] = load_scales<1, 1>(cache.v_scales.base + page * cache.v_scales.page_stride +
                                       dim * scales_line_stride + slot / 16);
    }
    piece.scales[i] = scales[0] | scales[1] << 8;
  }
}

// Piece `number` of a tile: those of K come first, then those of V.
__device__ __forceinline__ void load_piece(Piece& piece, const Cache& cache, int key, int number, int thread) {
  if (number < PIECES)
    load_tokens<KTokens>(piece, cache, cache.k, cache.k_scales, key, number * K_PIECE, thread);
  else
#if V_ALONG_TOKENS
    load_dims(piece, cache, key, (number - PIECES) * V_PIECE, thread);
#else
    load_tokens<VTokens>(piece, cache, cache.v, cache.v_scales, key, (number - PIECES) * V_PIECE, thread);
#endif
}

// Decode COUNT units of type T into the tile of LINES lines at `to`. IN_ORDER: 8 codes of a word, as they are numbered.
template <typename T, int UNITS, int LINES, int COUNT, bool IN_ORDER>
__device__ __forceinline__ void decode_piece(const Piece& piece, u32 to, int first, int thread) {
  #pragma unroll
  for (int i = 0; i < COUNT; i++) {
    const Share<UNITS, LINES> at(first + i, thread);
    const u32 begin = to + (at.unit / 2 + at.across / 2) * (LINES * wgmma::LINE) + at.apart * wgmma::LINE;
    const u32 both = T::scales(piece.scales[i]);
    const u32 scale[2] = {__byte_perm(both, 0, 0x1010), __byte_perm(both, 0, 0x3232)};
    #pragma unroll
    for (int w = 0; w < 4; w++) {
      u32 even[2], odd[2];
      T::template decode<false>(piece.codes[i][w], even);
      T::template decode<true>(piece.codes[i][w], odd);
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        even[half] = T::multiply(even[half], scale[w / 2]);
        odd[half] = T::multiply(odd[half], scale[w / 2]);
      }
      const u32 place = begin + wgmma::offset(at.line, 4 * (at.unit % 2) + w);
      if constexpr (IN_ORDER)
        store_shared(place, __byte_perm(even[0], odd[0], 0x5410), __byte_perm(even[0], odd[0], 0x7632),
                     __byte_perm(even[1], odd[1], 0x5410), __byte_perm(even[1], odd[1], 0x7632));
      else
        store_shared(place, even[0], even[1], odd[0], odd[1]);
    }
  }
}

// Decode and write a piece into its place, once that is empty, and say so when the tile is whole.
__device__ __forceinline__ void write_piece(const Piece& piece, const Places& places, int tile, int number, int thread) {
  const int stage = tile % STAGES, turn = tile / STAGES % 2;
  const bool of_k = number < PIECES;
  if (number % PIECES == 0) barrier::wait(of_k ? places.k_empty(stage) : places.v_empty(stage), turn ^ 1);
  if (of_k)
    decode_piece<K, K_UNITS, K_LINES, K_PIECE, false>(piece, places.k + stage * K_BYTES, number * K_PIECE, thread);
  else
    decode_piece<V, V_UNITS, V_LINES, V_PIECE, V_ALONG_TOKENS>(piece, places.v + stage * V_BYTES, (number - PIECES) * V_PIECE,
                                                               thread);
  if (number % PIECES == PIECES - 1) {
    barrier::publish();
    __syncwarp();
    if (thread % 32 == 0) barrier::arrive(of_k ? places.k_full(stage) : places.v_full(stage));
  }
}

// The steps start <= step < stop. While one piece is decoded the next is under way.
__device__ __forceinline__ void produce(const Cache& cache, const Places& places, int start, int stop, int thread) {
  Piece even, odd;
  load_piece(even, cache, start * KEYS, 0, thread);
  for (int step = start; step < stop; step++) {
    const int next = min(step + 1, stop - 1);  // the last loads what it has
    #pragma unroll
    for (int number = 0; number < 2 * PIECES; number += 2) {
      load_piece(odd, cache, step * KEYS, number + 1, thread);
      write_piece(even, places, step - start, number, thread);
      const bool last = number + 2 == 2 * PIECES;
      load_piece(even, cache, (last ? next : step) * KEYS, last ? 0 : number + 2, thread);
      write_piece(odd, places, step - start, number + 1, thread);
    }
  }
}

// ---- Consumers

// What a thread has of its two rows: i = 0 is row g, i = 1 row g + 8 of its warp's.
struct Rows {
  float scale[2];         // of their scores
  int first[2], last[2];  // keys that they see
  float top[2], total[2];
};

struct Consumer {
  wgmma::Sums scores[KEY_BLOCKS], out[DIM_BLOCKS];
  u32 p[KEYS / 16][4];
  Rows rows;
};

// Begin S = Q @ K^T, with Q's rows of this group at `q` and K at `k`.
__device__ __forceinline__ void begin_scores(Consumer& c, u32 q, u32 k) {
  const wgmma::u64 rows = wgmma::matrix(fresh(q)), columns = wgmma::matrix(fresh(k));
  wgmma::hold(c.scores);
  wgmma::begin();
  #pragma unroll
  for (int i = 0; i < HEAD_DIM / 16; i++)
    wgmma::add_product<K>(c.scores, wgmma::further(rows, i / 4 * (64 * wgmma::LINE) + i % 4 * 32),
                          wgmma::further(columns, i / 4 * (KEYS * wgmma::LINE) + i % 4 * 32), i > 0);
  wgmma::commit();
}

// Begin O += P @ V, with V's head dims of this group from block `block` of 64 on.
__device__ __forceinline__ void begin_values(Consumer& c, u32 v, int block) {
  const wgmma::u64 columns = V_ALONG_TOKENS ? wgmma::matrix(fresh(v) + block * (64 * wgmma::LINE))
                                            : wgmma::matrix(fresh(v) + block * (KEYS * wgmma::LINE), KEYS * wgmma::LINE);
  wgmma::hold(c.out);
  wgmma::begin();
  #pragma unroll
  for (int i = 0; i < KEYS / 16; i++) {
    if constexpr (V_ALONG_TOKENS)
      wgmma::add_product<false>(c.out, c.p[i], wgmma::further(columns, i / 4 * (V_HEAD_DIM * wgmma::LINE) + i % 4 * 32));
    else
      wgmma::add_product<true>(c.out, c.p[i], wgmma::further(columns, i * (16 * wgmma::LINE)));
  }
  wgmma::commit();
}

// Scores become numerators; `keep` is what sums so far are multiplied by. MASKED: some row does not see all keys.
template <bool MASKED>
__device__ __forceinline__ void softmax(Consumer& c, float (&keep)[2], int key, int t) {
  Rows& rows = c.rows;
  if constexpr (MASKED) {
    #pragma unroll
    for (int i = 0; i < 32 * KEY_BLOCKS; i++) {
      const int row = i / 2 % 2, token = key + i / 4 * 8 + 2 * t + i % 2;
      float& s = c.scores[i / 32][i % 32];
      s = token >= rows.first[row] && token <= rows.last[row] ? s * rows.scale[row] : NO_KEY;
    }
  }
  float scale[2], shift[2];
  #pragma unroll
  for (int row = 0; row < 2; row++) {
    scale[row] = MASKED ? 1.f : rows.scale[row];
    float top = NO_KEY;
    #pragma unroll
    for (int i = 2 * row; i < 32 * KEY_BLOCKS; i += 4)
      top = fmaxf(top, fmaxf(c.scores[i / 32][i % 32], c.scores[i / 32][i % 32 + 1]));
    top = fmaxf(top, __shfl_xor_sync(ALL, top, 1));
    top = fmaxf(top, __shfl_xor_sync(ALL, top, 2));
    top = fmaxf(rows.top[row], top * scale[row]);
    keep[row] = top == NO_KEY ? 1.f : exp2_approx(rows.top[row] - top);
    rows.top[row] = top;
    rows.total[row] *= keep[row];
    shift[row] = MASKED && top == NO_KEY ? 0.f : top - P_BIAS;
  }
  #pragma unroll
  for (int i = 0; i < 32 * KEY_BLOCKS; i++) {
    float& s = c.scores[i / 32][i % 32];
    s = exp2_approx(__fmaf_rn(s, scale[i / 2 % 2], -shift[i / 2 % 2]));
    rows.total[i / 2 % 2] += s;
  }
}

__device__ __forceinline__ void softmax(Consumer& c, float (&keep)[2], int key, int t, const Range& keys) {
  if (key >= keys.all_from && key + KEYS <= keys.all_to)
    softmax<false>(c, keep, key, t);
  else
    softmax<true>(c, keep, key, t);
}

// P, from its numerators: a lane's sums of 16 columns are its part of an operand with 16.
__device__ __forceinline__ void round_numerators(Consumer& c) {
  #pragma unroll
  for (int i = 0; i < KEYS / 4; i++) {
    const float* pair = &c.scores[i / 16][2 * (i % 16)];
    c.p[i / 4][i % 4] = V::round(pair[0], pair[1]);
  }
}

// Attend to the steps start <= step < stop, of which there is at least one.
__device__ __forceinline__ void consume(Consumer& c, const Places& places, const Range& keys, int group, int part, int start,
                                        int stop, int lane) {
  const u32 q = places.q + group * (64 * HEAD_DIM * 2);
  const int t = lane % 4, block = part * DIM_BLOCKS;
  float keep[2];

  barrier::wait(places.k_full(0), 0);
  begin_scores(c, q, places.k);
  wgmma::wait<0>();
  wgmma::hold(c.scores);
  __syncwarp();
  if (lane == 0) barrier::arrive(places.k_empty(0));
  softmax(c, keep, start * KEYS, t, keys);
  round_numerators(c);

  int stage = 0, turn = 0;  // of the values that are due
  for (int step = start + 1; step < stop; step++) {
    const int next = stage + 1 == STAGES ? 0 : stage + 1, next_turn = stage + 1 == STAGES ? turn ^ 1 : turn;
    barrier::wait(places.k_full(next), next_turn);
    begin_scores(c, q, places.k + next * K_BYTES);
    barrier::wait(places.v_full(stage), turn);
    begin_values(c, places.v + stage * V_BYTES, block);
    wgmma::wait<1>();
    wgmma::hold(c.scores);
    __syncwarp();
    if (lane == 0) barrier::arrive(places.k_empty(next));
    softmax(c, keep, step * KEYS, t, keys);
    wgmma::wait<0>();
    wgmma::hold(c.out);
    __syncwarp();
    if (lane == 0) barrier::arrive(places.v_empty(stage));
    if (__any_sync(ALL, keep[0] != 1.f || keep[1] != 1.f)) {
      #pragma unroll
      for (int i = 0; i < 32 * DIM_BLOCKS; i++) c.out[i / 32][i % 32] *= keep[i / 2 % 2];
    }
    round_numerators(c);
    stage = next;
    turn = next_turn;
  }

  barrier::wait(places.v_full(stage), turn);
  begin_values(c, places.v + stage * V_BYTES, block);
  wgmma::wait<0>();
  wgmma::hold(c.out);
}

// ---- Q

// All threads: the tile's rows into shared memory, rounded, head dims in the order of K. Four lanes have a row.
__device__ __forceinline__ void write_q(const Places& places, const unsigned short* q, i64 head_stride, i64 row_stride,
                                        int row_tile, int q_len) {
  const int part = threadIdx.x % 4;
  for (int row = threadIdx.x / 4; row < ROWS; row += THREADS / 4) {
    const int number = row_tile * ROWS + row;
    const bool exists = number < q_len * GROUP;
    const unsigned short* from = q + number % GROUP * head_stride + number / GROUP * row_stride;
    float factor = 1.f, values[16];
#if Q_NVFP4
    float amax = 0.f;
    #pragma unroll 2
    for (int block = part; block < HEAD_DIM / 16; block += 4) {
      load_block(values, from + 16 * block, exists);
      #pragma unroll
      for (int i = 0; i < 16; i++) amax = fmaxf(amax, fabsf(values[i]));
    }
    amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, 1));
    amax = fmaxf(amax, __shfl_xor_sync(ALL, amax, 2));
    factor = rounding::row_factor(amax);
#endif
    #pragma unroll 1
    for (int block = part; block < HEAD_DIM / 16; block += 4) {
      load_block(values, from + 16 * block, exists);
#if Q_NVFP4
      rounding::round_block(values, factor);
#endif
      const u32 to = places.q + row / 64 * (64 * HEAD_DIM * 2) + block / 4 * (64 * wgmma::LINE);
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        const float* v = values + 8 * half;
        store_shared(to + wgmma::offset(row % 64, block % 4 * 2 + half), K::round(v[0], v[2]), K::round(v[4], v[6]),
                     K::round(v[1], v[3]), K::round(v[5], v[7]));
      }
    }
    if (part == 0) asm volatile("st.shared.f32 [%0], %1;" ::"r"(places.factors + 4 * row), "f"(factor) : "memory");
  }
}

// ---- The kernel

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) a4q_many_rows(PARAMETERS) {
  extern __shared__ char shared[];
  const Places places((u32)__cvta_generic_to_shared(shared));
  const int row_tiles = (q_len * GROUP + ROWS - 1) / ROWS;
  const int row_tile = row_tiles - 1 - blockIdx.x % row_tiles;  // under a causal mask the last have most keys: first
  const int head = blockIdx.x / row_tiles % kv_heads, batch = blockIdx.x / row_tiles / kv_heads;
  int tokens = kv_len;
  if constexpr (RAGGED) tokens = min(max(kv_lens[batch * kv_lens_batch_stride], 0), kv_len);
  const Range keys = range_of<ROWS>(row_tile, tokens, q_len, window);
  const int first_step = keys.begin / KEYS, last_step = (keys.end + KEYS - 1) / KEYS;
  const int each = (last_step - first_step + splits - 1) / splits;
  const int start = first_step + blockIdx.y * each, stop = min(start + each, last_step);

  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; stage++) {
      barrier::init(places.k_full(stage), 4 * PRODUCERS);  // arrivals: a warp's each
      barrier::init(places.v_full(stage), 4 * PRODUCERS);
      barrier::init(places.k_empty(stage), 4 * CONSUMERS);
      barrier::init(places.v_empty(stage), 4 * CONSUMERS);
    }
  }
  write_q(places, q + batch * q_batch_stride + (i64)head * GROUP * q_head_stride, q_head_stride, q_row_stride, row_tile, q_len);
  barrier::publish();
  __syncthreads();

  const int warp_group = __shfl_sync(ALL, threadIdx.x / 128, 0);
  if (warp_group < PRODUCERS) {
    deal_registers<OF_PRODUCER, false>();
    if (start >= stop) return;
    const Cache cache CACHE_OF(batch, head, keys.begin, keys.end - 1);
    produce(cache, places, start, stop, threadIdx.x);
    return;
  }
  deal_registers<OF_CONSUMER, true>();
  const int group = (warp_group - PRODUCERS) / PARTS, part = (warp_group - PRODUCERS) % PARTS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4;
  const int first_row = row_tile * ROWS + 64 * group + 16 * warp + g;  // and first_row + 8

  Consumer c;
  #pragma unroll
  for (int i = 0; i < 32 * DIM_BLOCKS; i++) c.out[i / 32][i % 32] = 0.f;
  #pragma unroll
  for (int i = 0; i < 2; i++) {  // rows beyond the last query are stored nowhere
    float factor;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(factor) : "r"(places.factors + 4 * (64 * group + 16 * warp + g + 8 * i)));
    c.rows.scale[i] = score_scale_of(scale_log2, *k_global, factor);
    const int query = (first_row + 8 * i) / GROUP;
    c.rows.last[i] = CAUSAL ? min(query + tokens - q_len, tokens - 1) : tokens - 1;
    c.rows.first[i] = WINDOWED ? c.rows.last[i] + 1 - window : 0;
    c.rows.top[i] = NO_KEY;
    c.rows.total[i] = 0.f;
  }
  if (start < stop)
    consume(c, places, range_of<64>(row_tile * ROW_GROUPS + group, tokens, q_len, window), group, part, start, stop, lane);
#if SPLIT
  asm volatile("griddepcontrol.launch_dependents;");
#endif

  const float out_scale = *v_global * V::UNIT;
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    float total = c.rows.total[i];
    total += __shfl_xor_sync(ALL, total, 1);
    total += __shfl_xor_sync(ALL, total, 2);
    const int row = first_row + 8 * i;
    if (row >= q_len * GROUP) continue;
    const float reciprocal = reciprocal_of(total);
    const ResultRow at(head, row);
    OUT_TYPE* to = OUT_OF(batch, at) + part * V_DIM;
    #pragma unroll
    for (int column = 0; column < V_DIM; column += 8) {
      #pragma unroll
      for (int second = 0; second < 2; second++) {
        const int place = 2 * t + second, dim = column + (V_ALONG_TOKENS ? place : place % 4 * 2 + place / 4);
        store(to + dim, c.out[column / 64][column % 64 / 2 + 2 * i + second] * reciprocal * out_scale);
      }
    }
    if (part == 0 && t == 0)
      LSE_OF(batch, at) = lse_of(total, c.rows.top[i], P_BIAS);
  }
}
