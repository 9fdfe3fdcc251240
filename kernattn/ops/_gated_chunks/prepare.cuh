// What chunks of CHUNK tokens need that does not depend on a state, beside rows.cuh. Products take the rows as they are, of 16 bits.
//
// With E_ij = exp(sum of logs of the tokens after j, up to i), a state S before a chunk, and A_ij = beta_i (k_i, k_j) E_ij below its diagonal:
//     T = (I + A)^-1 diag(beta)    new = T V - T diag(E_i0) K S    O = diag(E_i0) Q S + P new, P_ij = (q_i, k_j) E_ij up to i
//     S' = E_C0 S + (diag(E_Cj) K)^T new
//
// Compile-time: CHUNK; WIDE and WIDE_E, d and e in whole 16s; EB, columns of v of a block that walks; WARPS of a block that prepares.

constexpr int SUB = CHUNK / 16;  // strips of 16 tokens
constexpr bool erases = RULE == 1;
constexpr int x_row = row_length<E, WIDE>(), v_row = row_length<E, WIDE_E>(), m_row = CHUNK + 4;
// Of a chunk: by what rows that read the state, and those that write, are multiplied; its tokens; its decay.
constexpr int COUNT_AT = 2 * CHUNK, DECAY_AT = COUNT_AT + 4, FACTS = DECAY_AT + (CHANNELS ? WIDE : 4);
constexpr bool two = erases || CHANNELS;  // are there two warps for each strip?
constexpr int m_bytes = erases ? 4 * CHUNK * m_row : 0, tails_bytes = CHANNELS ? 16 * SUB * (SUB - 1) * x_row : 0;
static_assert(same<E, X> && sizeof(E) == 2 && WARPS == (two ? 2 : 1) * SUB, "a warp has a strip of scores");

// Which of the tokens of a call a launch has, and what chunks leave for the walk, entry by entry and chunk after chunk.
struct Slab {
    long long first;  // token
    int chunks;
    E *w, *u, *p;     // -T diag(E_i0) K, T V, and P, whose blocks above the diagonal are not there
    E *q, *k;         // where channels have decays of their own: E_i0 Q, E_Cj K
    Acc* facts;
    int* counts;      // tokens before one that is not finite
};

// Is one of two numbers infinite or NaN?
__device__ __forceinline__ bool wild(unsigned pair) {
    constexpr unsigned exponents = same<E, half_t> ? 0x7c007c00u : 0x7f807f80u, carry = same<E, half_t> ? 0x04000400u : 0x00800080u;
    return ((pair & exponents) + carry) & 0x80008000u;
}
__device__ __forceinline__ bool wild(const Wide<E>& x) { return wild(x.x[0]) | wild(x.x[1]) | wild(x.x[2]) | wild(x.x[3]); }
__device__ __forceinline__ bool wild(const Single<E>& x) { return wild(unsigned(x.x.bits)); }

// Two pairs of a row g, of columns 2 t and 8 + 2 t and the next: 16 columns in whole sectors. By a warp.
__device__ __forceinline__ void store_sixteen(E* row, unsigned low, unsigned high, bool there = true) {
    const int t = lane_index() % 4;
    const bool odd = t % 2;
    const unsigned got = __shfl_xor_sync(all_lanes, odd ? low : high, 1);
    if (there) *reinterpret_cast<Packet<unsigned, 2>*>(row + (odd ? 6 + 2 * t : 2 * t)) = odd ? Packet<unsigned, 2>{got, high} : Packet<unsigned, 2>{low, got};
}

// A strip of accumulators to rows of memory, the first `columns` of it.
template <int N> __device__ __forceinline__ void store_strip(E* to, int to_row, const Acc (&c)[N / 8][4], int columns) {
    E* const at = to + lane_index() / 4 * to_row;
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        if (8 * j >= columns) break;
#pragma unroll
        for (int r = 0; r < 2; ++r)
            store_sixteen(at + 8 * r * to_row + 8 * j, Pairs<E>::of(c[j][2 * r], c[j][2 * r + 1]), Pairs<E>::of(c[j + 1][2 * r], c[j + 1][2 * r + 1]));
    }
}

// 1 over the norm of a row of a tile, by four neighbouring lanes of each warp.
__device__ __forceinline__ Acc tile_norm(const E* x) {
    const auto over = [&](auto f) {
#pragma unroll 4
        for (int c = threadIdx.x % 4 * 8; c < WIDE; c += 32) look_at_each(*reinterpret_cast<const Wide<E>*>(x + c), f);
    };
    Acc square = Acc(0), peak = Acc(0), unit = Acc(1);
    over([&](Acc y) { square += y * y; });
    square = row_sum(square);
    const bool large = square == square && !finite(square);
    if (__any_sync(all_lanes, large)) {
        over([&](Acc y) { peak = larger(Acc(fabs(y)), peak); });
        peak = row_max(peak);
        Acc part = Acc(0);
        over([&](Acc y) { part += y / peak * (y / peak); });
        part = row_sum(part);
        if (large) square = part, unit = peak;
    }
    return Acc(1) / sqrt(square + (large ? Acc(0) : Acc(1e-6))) / unit;
}

struct Prepared {
    E *q, *k, *v;
    E* since;                      // keys with the decay from the start, where channels have their own
    tf32_t* m;                     // A, then its inverse block by block; before that, keys of channels' own decays
    Acc* sums;                     // (CHUNK, 16), of logs after j up to i, of the same strip
    Acc *logs, *strength, *norm_q, *norm_k, *head, *tail, *with_k;
    int* bad;
    int count;

    __device__ __forceinline__ void carve(Carver& carver) {
        q = carver.take<E>(CHUNK * x_row);
        k = carver.take<E>(CHUNK * x_row);
        v = carver.take<E>(erases ? CHUNK * v_row : 0);
        since = carver.take<E>(CHANNELS && erases ? CHUNK * x_row : 0);
        m = carver.take<tf32_t>((m_bytes < tails_bytes ? tails_bytes : m_bytes) / 4);
        sums = carver.take<Acc>(CHUNK * 16);
        Acc** const vectors[] = {&logs, &strength, &norm_q, &norm_k, &head, &tail, &with_k};
        for (Acc** x : vectors) *x = carver.take<Acc>(CHUNK);
        bad = carver.take<int>(CHUNK);
    }

    __device__ __forceinline__ void load(const Rows& rows, int loaded, int e) {
        const auto place = [&](int i) -> long long { return i < loaded ? i : -1; };
        request_tile<CHUNK, WIDE>(k, rows.k, rows.d, rows.d, place);
        request_tile<CHUNK, WIDE>(q, rows.q, rows.d, rows.d, place);
        if (erases) request_tile<CHUNK, WIDE_E>(v, rows.v, e, e, place);
        for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
            const bool here = i < loaded;
            const Acc log = here && !CHANNELS ? rows.log_of(i, 0) : Acc(0), of = !here ? Acc(0) : erases ? rows.strength(i) : Acc(rows.there(i));
            logs[i] = log, strength[i] = of, norm_q[i] = norm_k[i] = Acc(1);
            bad[i] = here && (!finite(of) || !(log < -Limits<Acc>::lowest()));
        }
    }

    // Looks for rows of keys and values that are not finite.
    __device__ __forceinline__ void look(const Rows& rows, int loaded, int e) const {
        for (int i = threadIdx.x; i < CHUNK * (WIDE / 8); i += blockDim.x)
            if (wild(*reinterpret_cast<const Wide<E>*>(k + i / (WIDE / 8) * x_row + i % (WIDE / 8) * 8))) bad[i / (WIDE / 8)] = 1;
        if (erases) {
            for (int i = threadIdx.x; i < CHUNK * (WIDE_E / 8); i += blockDim.x)
                if (wild(*reinterpret_cast<const Wide<E>*>(v + i / (WIDE_E / 8) * v_row + i % (WIDE_E / 8) * 8))) bad[i / (WIDE_E / 8)] = 1;
        } else {
            for_each_of_tile(rows.v, e, CHUNK, WIDE_E, loaded, e, [&](int row, int, auto packet) {
                if (wild(packet)) bad[row] = 1;
            });
        }
    }

    __device__ __forceinline__ void norms() const {
        for (int i = threadIdx.x / 4; i < CHUNK; i += blockDim.x / 4) {
            const Acc of_q = tile_norm(q + i * x_row), of_k = tile_norm(k + i * x_row);
            if (threadIdx.x % 4 == 0) norm_q[i] = of_q, norm_k[i] = of_k;
        }
    }

    // Tokens from the first bad one on are none.
    __device__ __forceinline__ void close(int loaded) {
        count = loaded;
#pragma unroll
        for (int i = (CHUNK - 1) / 32 * 32; i >= 0; i -= 32) {
            const unsigned found = __ballot_sync(all_lanes, bad[i + lane_index()]);
            if (found) count = i + 31 - __clz(int(found & (0u - found)));
        }
        if (count == loaded) return;
        for (int i = threadIdx.x + count * x_row; i < CHUNK * x_row; i += blockDim.x) k[i] = E{};
        if (erases)
            for (int i = threadIdx.x + count * v_row; i < CHUNK * v_row; i += blockDim.x) v[i] = E{};
        for (int i = threadIdx.x + count; i < CHUNK; i += blockDim.x) logs[i] = strength[i] = Acc(0);
        __syncthreads();
    }

    // Sums of logs within strips.
    __device__ __forceinline__ void add_logs() const {
        const int j = threadIdx.x, first = j / 16 * 16;
        if (j >= CHUNK) return;
        Acc total = Acc(0);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int row = first + i;
            if (row > j) total += logs[row];
            if (row >= j) sums[row * 16 + j % 16] = total;
            if (j == first) head[row] = logs[j] + total;
        }
        tail[j] = total;
    }

    // That of all tokens of strips from `low` on below `high`.
    __device__ __forceinline__ Acc between(int low, int high) const {
        Acc sum = Acc(0);
#pragma unroll
        for (int b = 0; b < SUB; ++b)
            if (b >= low && b < high) sum += head[16 * b + 15];
        return sum;
    }

    // Scores of the rows of a strip, decayed, by the norms of what j writes; nothing above the diagonal.
    __device__ __forceinline__ void decay(Acc (&c)[CHUNK / 8][4], int strip) const {
        const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
        for (int j = 0; j < CHUNK / 8; ++j) {
            if (j / 2 > strip) break;
            const Acc whole = between(j / 2 + 1, strip);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = 16 * strip + g + i / 2 * 8, column = 8 * j + 2 * t + i % 2;
                Acc log = Limits<Acc>::lowest();
                if (j / 2 < strip) log = head[row] + whole + tail[column];
                else if (row >= column) log = sums[row * 16 + column % 16];
                c[j][i] = fade(exponential(log), c[j][i]) * norm_k[column];
            }
        }
    }

    // Facts of the chunk: thread i has token i.
    __device__ __forceinline__ void tell(Acc* facts, Acc scale) const {
        const int i = threadIdx.x;
        if (i >= CHUNK) return;
        const Acc since = CHANNELS ? Acc(1) : decayed(between(0, i / 16) + head[i]);
        const Acc left = CHANNELS ? Acc(1) : decayed(tail[i] + between(i / 16 + 1, SUB));
        facts[i] = since * norm_q[i] * scale;
        facts[CHUNK + i] = left * norm_k[i] * (erases ? Acc(1) : strength[i]);
        if (!CHANNELS && i == 0) facts[DECAY_AT] = decayed(between(0, SUB));
        with_k[i] = -strength[i] * since * norm_k[i];
    }

    __device__ __forceinline__ tf32_t* block(int row, int column) const { return m + 16 * row * m_row + 16 * column; }

    // A block on the diagonal in place of its inverse: a lane a column. By a warp.
    __device__ __forceinline__ void invert(int strip) const {
        tf32_t* const a = block(strip, strip);
        const int column = lane_index() % 16;
        Acc x[16];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            Acc part[4] = {i == column ? Acc(1) : Acc(0), Acc(0), Acc(0), Acc(0)};
#pragma unroll
            for (int j = 0; j < i; j += 4) {
                const Packet<Acc, 4> four = *reinterpret_cast<const Packet<Acc, 4>*>(a + i * m_row + j);
#pragma unroll
                for (int p = 0; p < 4; ++p)
                    if (j + p < i) part[p] -= four.x[p] * x[j + p];
            }
            x[i] = (part[0] + part[1]) + (part[2] + part[3]);
        }
        __syncwarp();
        if (lane_index() < 16)
#pragma unroll
            for (int i = 0; i < 16; ++i) a[i * m_row + column] = narrow<tf32_t>(x[i]);
    }

    // A block of M: the sum of products of blocks (row, from + i) and (low + i, column) for i < count, times a sign. By a warp.
    __device__ __forceinline__ void multiply(tf32_t* to, int row, int from, int low, int column, int many, Acc sign) const {
        Acc c[2][4];
        clear(c);
        for (int i = 0; i < many; ++i) product<16, 16, false, false>(c, block(row, from + i), m_row, block(low + i, column), m_row);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 8; ++i)
            to[(lane_index() / 4 + i % 4 / 2 * 8) * m_row + i / 4 * 8 + lane_index() % 4 * 2 + i % 2] = narrow<tf32_t>(sign * c[i / 4][i % 4]);
        __syncwarp();
    }

    // The blocks below the diagonal, -T_ii (A_ij T_jj): of neighbours first, then of pairs of strips. What is above it is room for A_ij T_jj.
    __device__ __forceinline__ void join() const {
        const int w = warp_index();
        if (w < SUB && w % 2) {
            multiply(block(w - 1, w), w, w - 1, w - 1, w - 1, 1, Acc(1));
            multiply(block(w, w - 1), w, w, w - 1, w, 1, Acc(-1));
        }
        __syncthreads();
        if (SUB == 4) {
            const int row = 2 + w / 2, column = w % 2;
            if (w < 4) multiply(block(row - 2, column + 2), row, column, column, column, 2 - column, Acc(1));
            __syncthreads();
            if (w < 4) multiply(block(row, column), row, 2, 0, column + 2, row - 1, Acc(-1));
            __syncthreads();
        }
    }

    // Rows of a strip of M diag(by) times a tile.
    template <int N> __device__ __forceinline__ void apply(E* to, const E* tile, const Acc* by, int strip) const {
        constexpr int row = row_length<E, N>(), part = N < 64 ? N : 64;
        const int g = lane_index() / 4, t = lane_index() % 4;
        unsigned left[SUB][4];
#pragma unroll
        for (int k = 0; k < SUB; ++k) {
            if (k > strip) break;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int column = 16 * k + 2 * t + i / 2 * 8;
                const Packet<Acc, 2> x = *reinterpret_cast<const Packet<Acc, 2>*>(m + (16 * strip + g + i % 2 * 8) * m_row + column);
                const Packet<Acc, 2> f = *reinterpret_cast<const Packet<Acc, 2>*>(by + column);
                left[k][i] = Pairs<E>::of(x.x[0] * f.x[0], x.x[1] * f.x[1]);
            }
        }
#pragma unroll
        for (int n = 0; n < N; n += part) {
            Acc c[part / 8][4];
            clear(c);
#pragma unroll
            for (int k = 0; k < SUB; ++k) {
                if (k > strip) break;
                product_step<part, false, 16>(c, left[k], tile + n, row, 16 * k, min(part, N - n));
            }
            store_strip<part>(to + 16 * strip * N + n, N, c, min(part, N - n));
        }
    }
};
