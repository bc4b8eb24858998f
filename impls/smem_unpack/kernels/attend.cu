// Attention the way that fallbacks take: tiles of 128 packed keys and values are unpacked to E4M3 in shared memory, where the
// products read them. A block has a tile of rows of one key-value head (q_len * GROUP of them, packed: row r is query r / GROUP
// of head r % GROUP) and walks the keys of one split.
//
//   S [16 rows, keys]  = Q [16 rows, D] @ K^T             warp (i, j): rows 16 i.., the j-th part of the tile's keys
//   P = exp2(S - top)                                     to shared memory as E4M3: each warp needs all keys
//   O [16 rows, dims] += P [16 rows, 128 keys] @ V        warp (i, j): rows 16 i.., the j-th part of the head dims
//
// In shared memory, all E4M3:
//
//   q, p   [row][dim or key]
//   k      [key][dim]     in each 8 dims first the even, then the odd ones, as they are unpacked; q likewise
//   v      [dim][key]     transposed; the keys of dim d are rotated by 32 * (d / 16) of 128
//
// Lines are 32 bytes longer than 128, or an odd multiple of 32 long: then 8 bytes of each lane, on 4 lines at a time, are in
// different banks. The rotation does the same for writing v, where 4 lanes have 4 blocks of 16 dims.
#include "fp8.cuh"
#include "impls/cuda/kernels/attend.cuh"

// Given: what attend.cuh is, and ROW_WARPS (times 16 rows of a tile), BLOCKS_PER_SM, SHARED_BYTES (what the planner counts).
constexpr int KEYS = 128, WARPS = 8, THREADS = 32 * WARPS;
constexpr int ROWS = 16 * ROW_WARPS, PARTS = WARPS / ROW_WARPS;
constexpr int K_STEPS = (HEAD_DIM + 31) / 32, P_STEPS = KEYS / 32;
constexpr int S_TILES = KEYS / 8 / PARTS;                        // of 8 keys, of a warp
constexpr int O_TILES = (V_HEAD_DIM / 8 + PARTS - 1) / PARTS;    // of 8 head dims, of a warp
constexpr int K_LINE = 32 * (K_STEPS % 2 ? K_STEPS : K_STEPS + 1), KEY_LINE = KEYS + 32;

constexpr float E4M3_BIAS = 8.f;  // the largest of P is 2^8: E4M3 keeps all of its 4 bits down to 2^-14 of it

struct alignas(16) Shared {
  u8 q[ROWS][K_LINE], k[KEYS][K_LINE], v[V_HEAD_DIM][KEY_LINE], p[ROWS][KEY_LINE];
  float of_parts[PARTS][ROWS];  // largest scores, and at last the sums of P
  float units[ROWS];            // of q
};
static_assert(sizeof(Shared) == SHARED_BYTES, "the planner counts as the kernel does");

// What is read for a token: itself, or the nearest that any row sees.
__device__ __forceinline__ int seen(const Cache& cache, int token) { return max(min(token, cache.last), cache.first); }

// A block of 16 codes and its scale.
struct Block {
  u32 codes[2], scale;

  template <int CODES_ALIGNMENT>
  __device__ __forceinline__ void load(const Lines& codes_of, const Lines& scales_of, u32 page, u32 line, u32 number) {
    const u8* code = codes_of.base + page * codes_of.page_stride + line * codes_of.line_stride;
    load::bytes<8, CODES_ALIGNMENT>(codes, code + 8 * number);
    scale = load_scales<1, 1>(scales_of.base + page * scales_of.page_stride + line * scales_of.line_stride + number);
  }

  // Bytes of elements [8 word + 0, 2, 4, 6] and [8 word + 1, 3, 5, 7].
  __device__ __forceinline__ void unpack(u32 (&bytes)[2][2]) const {
    const u32 factor = fp8::scale_of(scale);
    fp8::unpack(bytes[0], codes[0], factor);
    fp8::unpack(bytes[1], codes[1], factor);
  }
};

// Blocks that a thread loads before it unpacks them: up to 4, and no more than there are for it.
__device__ constexpr int at_once(int units) { return units >= 4 * THREADS ? 4 : (units + THREADS - 1) / THREADS; }

// Whether a thread has block `unit`, of which it takes AT_ONCE a round: in the last round some are left over, which load the last
// block once more and store nothing.
template <int UNITS, int AT_ONCE>
__device__ __forceinline__ bool has(int unit) {
  return UNITS % (AT_ONCE * THREADS) == 0 || unit < UNITS;
}

// The blocks of a tile's keys, 16 dims each; AT_ONCE of a thread are under way together.
__device__ __forceinline__ void unpack_k(Shared& shared, const Cache& cache, int key) {
  constexpr int BLOCKS = HEAD_DIM / 16, UNITS = KEYS * BLOCKS, AT_ONCE = at_once(UNITS);
  #pragma unroll 1
  for (int first = threadIdx.x; first < UNITS; first += AT_ONCE * THREADS) {
    Block blocks[AT_ONCE];
    #pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const int unit = min(first + i * THREADS, UNITS - 1);
      const u32 token = seen(cache, key + unit / BLOCKS);
      blocks[i].load<K_CODES_ALIGNMENT>(cache.k, cache.k_scales, cache.page(token), Cache::slot(token), unit % BLOCKS);
    }
    #pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const int unit = min(first + i * THREADS, UNITS - 1);
      if (!has<UNITS, AT_ONCE>(first + i * THREADS)) continue;
      u32 bytes[2][2];
      blocks[i].unpack(bytes);
      *reinterpret_cast<uint4*>(&shared.k[unit / BLOCKS][16 * (unit % BLOCKS)]) =
          make_uint4(bytes[0][0], bytes[0][1], bytes[1][0], bytes[1][1]);
    }
  }
}

__device__ __forceinline__ void write_v(Shared& shared, int dim, int key, u32 four_keys) {
  *reinterpret_cast<u32*>(&shared.v[dim][(key + 32 * (dim / 16)) % KEYS]) = four_keys;
}

// A unit is 16 dims of 4 tokens. Bytes (dim 0, 2, 4, 6) of each token become bytes (token 0, 1, 2, 3) of each dim.
__device__ __forceinline__ void unpack_v_of_dims(Shared& shared, const Cache& cache, int key) {
  constexpr int BLOCKS = V_HEAD_DIM / 16, UNITS = (BLOCKS + 3) / 4 * 4 * (KEYS / 4);
  #pragma unroll 1
  for (int unit = threadIdx.x; unit < UNITS; unit += THREADS) {
    const int number = unit / KEYS * 4 + unit % 4, in_tile = unit % KEYS / 4 * 4;
    if (number >= BLOCKS) continue;
    Block blocks[4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
      const u32 token = seen(cache, key + in_tile + i);
      blocks[i].load<V_CODES_ALIGNMENT>(cache.v, cache.v_scales, cache.page(token), Cache::slot(token), number);
    }
    u32 bytes[4][2][2];
    #pragma unroll
    for (int i = 0; i < 4; i++) blocks[i].unpack(bytes[i]);
    #pragma unroll
    for (int word = 0; word < 2; word++)
      #pragma unroll
      for (int odd = 0; odd < 2; odd++) {
        const u32 a = bytes[0][word][odd], b = bytes[1][word][odd], c = bytes[2][word][odd], d = bytes[3][word][odd];
        const u32 ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);      // a0 b0 a1 b1
        const u32 ab_2 = __byte_perm(a, b, 0x7362), cd_2 = __byte_perm(c, d, 0x7362);  // a2 b2 a3 b3
        const int dim = 16 * number + 8 * word + odd;
        write_v(shared, dim, in_tile, __byte_perm(ab, cd, 0x5410));
        write_v(shared, dim + 2, in_tile, __byte_perm(ab, cd, 0x7632));
        write_v(shared, dim + 4, in_tile, __byte_perm(ab_2, cd_2, 0x5410));
        write_v(shared, dim + 6, in_tile, __byte_perm(ab_2, cd_2, 0x7632));
      }
  }
}

// A unit is 16 tokens of one dim, which are a block.
__device__ __forceinline__ void unpack_v_of_tokens(Shared& shared, const Cache& cache, int key) {
  constexpr int BLOCKS = KEYS / 16, UNITS = V_HEAD_DIM * BLOCKS, AT_ONCE = 2;  // more would be spilled
  #pragma unroll 1
  for (int first = threadIdx.x; first < UNITS; first += AT_ONCE * THREADS) {
    Block blocks[AT_ONCE];
    #pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const int unit = min(first + i * THREADS, UNITS - 1);
      const u32 token = max(min(key / 16 + unit % BLOCKS, cache.last / 16), cache.first / 16) * 16;  // blocks are stored whole
      blocks[i].load<V_CODES_ALIGNMENT>(cache.v, cache.v_scales, cache.page(token), unit / BLOCKS, Cache::slot(token) / 16);
    }
    #pragma unroll
    for (int i = 0; i < AT_ONCE; i++) {
      const int unit = min(first + i * THREADS, UNITS - 1);
      if (!has<UNITS, AT_ONCE>(first + i * THREADS)) continue;
      u32 bytes[2][2];
      blocks[i].unpack(bytes);
      const int dim = unit / BLOCKS, in_tile = unit % BLOCKS * 16;
      #pragma unroll
      for (int word = 0; word < 2; word++) {
        write_v(shared, dim, in_tile + 8 * word, __byte_perm(bytes[word][0], bytes[word][1], 0x5140));
        write_v(shared, dim, in_tile + 8 * word + 4, __byte_perm(bytes[word][0], bytes[word][1], 0x7362));
      }
    }
  }
}

// Q's rows as E4M3, each relative to a power of two: the least that is above max|row| / 448, from 2^-126 on. A warp has a row.
__device__ __forceinline__ void round_q(Shared& shared, const unsigned short* q, i64 head_stride, i64 row_stride, int first_row,
                                        int rows) {
  constexpr int EIGHTS = HEAD_DIM / 8, OF_LANE = (EIGHTS + 31) / 32;
  const int lane = threadIdx.x % 32;
  for (int i = threadIdx.x / 32; i < ROWS; i += WARPS) {
    const int row = first_row + i;
    const unsigned short* from = q + row % GROUP * head_stride + row / GROUP * row_stride;
    float values[OF_LANE][8], largest = 0.f;
    #pragma unroll
    for (int e = 0; e < OF_LANE; e++)
      #pragma unroll
      for (int j = 0; j < 8; j++) {
        const int eight = lane + 32 * e;
        values[e][j] = row < rows && eight < EIGHTS ? Q::widen(from[8 * eight + j]) : 0.f;
        largest = fmaxf(largest, fabsf(values[e][j]));
      }
    #pragma unroll
    for (int mask = 1; mask < 32; mask *= 2) largest = fmaxf(largest, __shfl_xor_sync(ALL, largest, mask));
    const int exponent = (__float_as_int(__fdiv_rn(largest, 448.f)) >> 23) + 1;
    const float reciprocal = __int_as_float((254 - exponent) << 23);
    if (lane == 0) shared.units[i] = __int_as_float(exponent << 23);
    #pragma unroll
    for (int e = 0; e < OF_LANE; e++) {
      const int eight = lane + 32 * e;
      if (eight >= 4 * K_STEPS) continue;  // beyond the head dim, up to a whole step, it is 0
      float x[8];
      #pragma unroll
      for (int j = 0; j < 8; j++) x[j] = values[e][j] * reciprocal;
      *reinterpret_cast<uint2*>(&shared.q[i][8 * eight]) =
          make_uint2(fp8::round(x[0], x[2]) | (u32)fp8::round(x[4], x[6]) << 16,
                     fp8::round(x[1], x[3]) | (u32)fp8::round(x[5], x[7]) << 16);
    }
  }
}

// The 8 bytes of this lane (t) of a step of 32.
__device__ __forceinline__ uint2 eight(const u8* line, int step, int t) {
  return *reinterpret_cast<const uint2*>(line + 32 * step + 8 * t);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) smem_unpack_attend(PARAMETERS) {
  extern __shared__ uint4 memory[];
  Shared& shared = *reinterpret_cast<Shared*>(memory);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int g = lane / 4, t = lane % 4;
  const int part = warp % PARTS, first_row = warp / PARTS * 16;  // of the tile
  const int rows = q_len * GROUP, row_tiles = (rows + ROWS - 1) / ROWS;
  const int row_tile = row_tiles - 1 - blockIdx.x % row_tiles;  // under a causal mask the last have most keys: first
  const int head = blockIdx.x / row_tiles % kv_heads, batch = blockIdx.x / row_tiles / kv_heads;

  int tokens = kv_len;
  if constexpr (RAGGED) tokens = min(max(kv_lens[batch * kv_lens_batch_stride], 0), kv_len);

  const Range keys = range_of<ROWS>(row_tile, tokens, q_len, window);
  const int first_tile = keys.begin / KEYS, last_tile = (keys.end + KEYS - 1) / KEYS;
  const int each = (last_tile - first_tile + splits - 1) / splits;
  const int start = first_tile + blockIdx.y * each, stop = min(start + each, last_tile);

  const Cache cache CACHE_OF(batch, head, keys.begin, keys.end - 1);

  round_q(shared, q + batch * q_batch_stride + (i64)head * GROUP * q_head_stride, q_head_stride, q_row_stride, row_tile * ROWS,
          rows);
  if constexpr (HEAD_DIM % 32) {  // half of the last step is no head dim
    for (int i = threadIdx.x; i < KEYS; i += THREADS)
      *reinterpret_cast<uint4*>(&shared.k[i][HEAD_DIM]) = make_uint4(0, 0, 0, 0);
  }
  __syncthreads();

  // Of this lane's rows, g and g + 8 of the warp's 16. Those beyond the last query are stored nowhere.
  int row[2], seen_first[2], seen_last[2];
  float score_scale[2];
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    row[i] = row_tile * ROWS + first_row + g + 8 * i;
    seen_last[i] = CAUSAL ? min(row[i] / GROUP + tokens - q_len, tokens - 1) : tokens - 1;
    seen_first[i] = WINDOWED ? seen_last[i] + 1 - window : 0;
    score_scale[i] = score_scale_of(scale_log2, *k_global, shared.units[first_row + g + 8 * i]) * (fp8::UNIT / K::UNIT);
  }
  float acc[O_TILES][4] = {}, top[2] = {NO_KEY, NO_KEY}, total[2] = {0.f, 0.f};

  #pragma unroll 1
  for (int tile = start; tile < stop; tile++) {
    const int key = tile * KEYS;
    unpack_k(shared, cache, key);
    if constexpr (V_ALONG_TOKENS) unpack_v_of_tokens(shared, cache, key);
    else unpack_v_of_dims(shared, cache, key);
    __syncthreads();

    float s[S_TILES][4] = {};
    #pragma unroll 1
    for (int step = 0; step < K_STEPS; step++) {
      const uint2 low = eight(shared.q[first_row + g], step, t), high = eight(shared.q[first_row + g + 8], step, t);
      #pragma unroll
      for (int i = 0; i < S_TILES; i++)
        fp8::add_product(s[i], low, high, eight(shared.k[(part * S_TILES + i) * 8 + g], step, t));
    }

    const bool masked = key < keys.all_from || key + KEYS > keys.all_to;
    float tile_top[2] = {NO_KEY, NO_KEY};
    #pragma unroll
    for (int i = 0; i < S_TILES; i++)
      #pragma unroll
      for (int c = 0; c < 4; c++) {
        s[i][c] *= score_scale[c / 2];
        const int token = key + (part * S_TILES + i) * 8 + 2 * t + c % 2;
        if (masked && (token < seen_first[c / 2] || token > seen_last[c / 2])) s[i][c] = NO_KEY;
        tile_top[c / 2] = fmaxf(tile_top[c / 2], s[i][c]);
      }
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      tile_top[i] = fmaxf(tile_top[i], __shfl_xor_sync(ALL, tile_top[i], 1));
      tile_top[i] = fmaxf(tile_top[i], __shfl_xor_sync(ALL, tile_top[i], 2));
      if (t == 0) shared.of_parts[part][first_row + g + 8 * i] = tile_top[i];
    }
    __syncthreads();

    float shift_of[2];
    #pragma unroll
    for (int i = 0; i < 2; i++) {
      float new_top = top[i];
      #pragma unroll
      for (int other = 0; other < PARTS; other++) new_top = fmaxf(new_top, shared.of_parts[other][first_row + g + 8 * i]);
      const float keep = new_top == NO_KEY ? 1.f : exp2_approx(top[i] - new_top);
      top[i] = new_top;
      total[i] *= keep;
      #pragma unroll
      for (int j = 0; j < O_TILES; j++) {
        acc[j][2 * i] *= keep;
        acc[j][2 * i + 1] *= keep;
      }
      shift_of[i] = new_top == NO_KEY ? 0.f : new_top - E4M3_BIAS;
    }
    #pragma unroll
    for (int i = 0; i < S_TILES; i++)
      #pragma unroll
      for (int half = 0; half < 2; half++) {
        const float a = exp2_approx(s[i][2 * half] - shift_of[half]), b = exp2_approx(s[i][2 * half + 1] - shift_of[half]);
        total[half] += a + b;
        u8* to = &shared.p[first_row + g + 8 * half][(part * S_TILES + i) * 8 + 2 * t];
        *reinterpret_cast<unsigned short*>(to) = fp8::round(a, b);
      }
    __syncthreads();

    #pragma unroll 1
    for (int step = 0; step < P_STEPS; step++) {
      const uint2 low = eight(shared.p[first_row + g], step, t), high = eight(shared.p[first_row + g + 8], step, t);
      #pragma unroll
      for (int i = 0; i < O_TILES; i++) {
        const int dims = part * O_TILES + i;  // times 8
        if (V_HEAD_DIM / 8 % PARTS == 0 || dims < V_HEAD_DIM / 8)
          fp8::add_product(acc[i], low, high, eight(shared.v[dims * 8 + g], (step + dims / 2) % P_STEPS, t));
      }
    }
    __syncthreads();  // the next tile takes the place of this one
  }

#if SPLIT
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    total[i] += __shfl_xor_sync(ALL, total[i], 1);
    total[i] += __shfl_xor_sync(ALL, total[i], 2);
    if (t == 0) shared.of_parts[part][first_row + g + 8 * i] = total[i];
  }
  __syncthreads();
  const float out_scale = *v_global * fp8::UNIT;
  #pragma unroll
  for (int i = 0; i < 2; i++) {
    float sum = 0.f;
    #pragma unroll
    for (int other = 0; other < PARTS; other++) sum += shared.of_parts[other][first_row + g + 8 * i];
    if (row[i] >= rows) continue;
    const float reciprocal = reciprocal_of(sum);
    const ResultRow at(head, row[i]);
    OUT_TYPE* to = OUT_OF(batch, at);
    #pragma unroll
    for (int j = 0; j < O_TILES; j++) {
      const int dims = part * O_TILES + j;
      if (V_HEAD_DIM / 8 % PARTS && dims >= V_HEAD_DIM / 8) continue;
      #pragma unroll
      for (int c = 0; c < 2; c++) store(to + dims * 8 + 2 * t + c, acc[j][2 * i + c] * reciprocal * out_scale);
    }
    if (part == 0 && t == 0)
      LSE_OF(batch, at) = lse_of(sum, top[i], E4M3_BIAS);
  }
}
