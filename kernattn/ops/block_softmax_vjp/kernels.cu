// The way back through exact attention. `ask`: of each query g.o, and whether it counts. `back`: C rows of one entry and DB columns of their
// cotangents a block, which goes through the tokens that they meet C at a time: queries meet keys, and with KEYS keys meet queries.
//
// P = exp(s q.k - lse) and dS = P (g.v - g.o); dq = s dS k, dk = s dS^T q, dv = P^T g. Compile-time, beside those of types.cuh and output.cuh:
// DB (columns of q and k held at a time), KEYS, RESULT (the type of cotangents), OUTPUT (that of outputs, which may not be
// rounded: g.v and g.o nearly cancel), and those of plans.cuh: parts add to what stands there.

using R = RESULT;
constexpr int x_row = row_length<E, DB>();

// A warp a row: blockIdx.x * WARPS + warp of `rows`.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
ask(const OUTPUT* out, const V* g, const Acc* lse, Acc* dots, unsigned char* counts, int e, long long rows) {
    const long long row = blockIdx.x * static_cast<long long>(WARPS) + warp_index();
    if (row >= rows) return;
    Acc dot = Acc(0), any = Acc(0);
    for (int i = lane_index(); i < e; i += 32) {
        const Acc y = Acc(widen(g[row * e + i]));
        if (y != Acc(0)) any = Acc(1);
        dot += y * Acc(widen(out[row * e + i]));
    }
    dot = warp_sum(dot);
    const bool some = warp_max(any) > Acc(0) && (lse[row] - lse[row]) == Acc(0);
    if (lane_index() == 0) dots[row] = some ? dot : Acc(0), counts[row] = some;
}

// Rows of an entry: x (count, d), y (count, e); those that do not count may be anything. Null: all count.
struct Side {
    const X* x;
    const V* y;
    const unsigned char* counts;
    long long count;
};

// A tile of rows, zeros for those that are not seen.
template <int columns, class T>
__device__ __forceinline__ void load_seen(E* tile, const T* at, int stride, int rows, int valid_columns, const int* seen, Places place) {
    for_each_of_tile(at, stride, C, columns, rows, valid_columns, [&](int row, int column, auto packet) {
        if (!seen[row]) packet = {};
        store(tile + row * row_length<E, columns>() + column, packet);
    }, place);
}

struct Tokens {
    E *x, *y;  // (C, DB), (C, EB)
    int* seen;

    __device__ __forceinline__ void carve(Carver& carver) {
        x = carver.take<E>(C * x_row);
        y = carver.take<E>(C * v_row);
        seen = carver.take<int>(C);
    }
    __device__ __forceinline__ void load_counts(const Side& side, Places place, int rows) {
        for (int i = threadIdx.x; i < C; i += blockDim.x) seen[i] = i < rows && (!side.counts || side.counts[place(i)]);
    }
    __device__ __forceinline__ void load_x(const Side& side, Places place, int rows, int d, int d0) {
        load_seen<DB>(x, side.x + d0, d, rows, d - d0, seen, place);
    }
    __device__ __forceinline__ void load_y(const Side& side, Places place, int rows, int e, int e0) {
        load_seen<EB>(y, side.y + e0, e, rows, e - e0, seen, place);
    }
};

template <class T>
__device__ __forceinline__ void deliver(T& to, Acc x) {
    to = narrow<T>(of_parts ? Acc(widen(to)) + x : x);
}

// Columns of cotangents of a warp's rows, times a factor; zeros for those that are not seen.
template <int columns>
__device__ __forceinline__ void write_columns(R* to, const Acc (&y)[columns / 8][4], const int* seen, Acc factor, int rows, int stride, int column0, Places place) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < columns / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const int row = warp_index() * 16 + g + p / 2 * 8, column = column0 + 8 * j + 2 * t + p % 2;
            if (row < rows && column < stride) deliver(to[place(row) * stride + column], seen[row] ? factor * y[j][p] : Acc(0));
        }
}

__device__ __forceinline__ Tile tile_of(const Tables& tables, long long count) {
    if constexpr (of_parts) return tile_in(tables);
    const int entry = blockIdx.x / tables.count, turn = blockIdx.x % tables.count;
    const long long row0 = (KEYS ? turn : tables.count - 1 - turn) * static_cast<long long>(C);  // the longest first
    return {entry, count - row0 < C ? int(count - row0) : C, 0, 1, 0, {nullptr, row0}, {nullptr, 0}};
}

// blockIdx.x = entry * tiles + tile; blockIdx.y: the DB columns of dx, and the EB of dy. lse, dots and counts (n,) of an entry of the
// queries, mask (length,) of one of the keys or null. dx, dy of an entry of the outputs; with KEYS those of keys and values. d_scale (gridDim.y,
// entries, n), of queries only: q.(dS k) over the columns of a block; d_bias (entries, length), of keys.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
back(const X* q, const X* k, const V* g, const V* v, const Acc* lse, const Acc* dots, const unsigned char* counts, const unsigned char* mask,
     const X* bias, const int* tiles, const int* visits, const Word* words, const int* tokens, int tile_count, int heads, R* dx, R* dy, Acc* d_scale,
     Acc* d_bias, Acc scale, long long n, long long length, int d, int e, int entries, int causal, int size0, int size1, int size2, int q0, int q1, int q2,
     int k0, int k1, int k2) {
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    const long long own_count = KEYS ? length : n;
    const Tables tables{tiles, visits, words, tokens, tile_count, heads};
    const Tile tile = tile_of(tables, own_count);
    const int entry = tile.entry, rows = tile.rows, d_own = blockIdx.y * DB, e_own = blockIdx.y * EB;
    const long long first_key = batch.keys(entry) * length, first_query = entry * n, shift = length - n;  // query i sees keys up to i + shift
    const Side queries{q + batch.queries(entry) * n * d, g + first_query * e, counts + first_query, n};
    const Side keys{k + first_key * d, v + first_key * e, mask ? mask + first_key : nullptr, length};
    const Side &mine = KEYS ? keys : queries, &theirs = KEYS ? queries : keys;
    Carver carver{shared_bytes};
    Tokens own, met;
    own.carve(carver);
    met.carve(carver);
    E* const weights = carver.take<E>(C * score_row) + warp_index() * 16 * score_row;
    Acc* const top = carver.take<Acc>(C);  // lse and dots of the tile's queries
    Acc* const dot = carver.take<Acc>(C);
    Acc* const biases = carver.take<Acc>(biased ? C : 0);
    const Seen seen{carver.take<unsigned>(of_parts ? 2 * C : 0)};

    const int group = lane_index() / 4, t = lane_index() % 4, first = warp_index() * 16;
    const long long row0 = tile.queries.first;  // without tables
    const long long start = KEYS && causal ? max(0ll, row0 - shift) : 0;
    const long long stop = !KEYS && causal ? max(0ll, min(length, shift + row0 + rows)) : theirs.count;
    const auto load_queries = [&](Places place, int many) {
        for (int i = threadIdx.x; i < C; i += blockDim.x) {
            top[i] = i < many ? lse[first_query + place(i)] : Acc(0);
            dot[i] = i < many ? dots[first_query + place(i)] : Acc(0);
        }
    };
    const auto load_biases = [&](Places place, int many) {
        for (int i = threadIdx.x; i < C; i += blockDim.x) biases[i] = i < many ? Acc(widen(bias[first_key + place(i)])) : Acc(0);
    };
    own.load_counts(mine, tile.queries, rows);
    if (!KEYS) load_queries(tile.queries, rows);
    if (KEYS && biased) load_biases(tile.queries, rows);
    Acc of_bias[2] = {};
    bool begun = false;
    Acc of_x[DB / 8][4], of_y[EB / 8][4];
    clear(of_x);
    clear(of_y);
    for (int number = tile.begin; number < tile.end; ++number) {
        const Visit visit = of_parts ? visit_in(tables, number) : Visit{start, stop, -1};
        for (long long at = visit.low; at < visit.high; at += C) {
            const int many = visit.high - at < C ? int(visit.high - at) : C;
            const Places those = tile.keys.from(at);
            Acc score[C / 8][4], value[C / 8][4];
            clear(score);
            clear(value);
            __syncthreads();
            met.load_counts(theirs, those, many);
            if (KEYS) load_queries(those, many);
            if (!KEYS && biased) load_biases(those, many);
            if constexpr (of_parts)
                for (int i = threadIdx.x; i < C; i += blockDim.x) seen.put(i, i < many ? rows_in(tables, tile, visit, at + i) : Word(0));
            for (int d0 = 0; d0 < d; d0 += DB) {
                __syncthreads();
                if (!begun || d > DB) own.load_x(mine, tile.queries, rows, d, d0);
                met.load_x(theirs, those, many, d, d0);
                __syncthreads();
                product<C, DB, false, true>(score, own.x + first * x_row, x_row, met.x, x_row);
            }
            for (int e0 = 0; e0 < e; e0 += EB) {
                if (e0 > 0) __syncthreads();
                if (!begun || e > EB) own.load_y(mine, tile.queries, rows, e, e0);
                met.load_y(theirs, those, many, e, e0);
                __syncthreads();
                product<C, EB, false, true>(value, own.y + first * v_row, v_row, met.y, v_row);
            }
            if (d > DB || (KEYS && e > EB)) {
                __syncthreads();
                if (d_own < d) met.load_x(theirs, those, many, d, d_own);
                if (KEYS && e_own < e) met.load_y(theirs, those, many, e, e_own);
                __syncthreads();
            }
            begun = true;
            const auto each = [&](auto put) {
#pragma unroll
                for (int j = 0; j < C / 8; ++j)
#pragma unroll
                    for (int p = 0; p < 4; ++p) put(score[j][p], value[j][p], group + p / 2 * 8, 8 * j + 2 * t + p % 2);
            };
            each([&](Acc& s, Acc& y, int i, int j) {
                const int row = first + i, query = KEYS ? j : row;
                const long long of_query = KEYS ? at + j : row0 + row, of_key = KEYS ? row0 + row : at + j;
                const bool admits = of_parts ? seen.of_lane(j) >> (i - group) & 1 : !causal || of_key <= of_query + shift;
                const bool sees = own.seen[row] && met.seen[j] && admits;
                const Acc log = (biased ? s * scale + biases[KEYS ? row : j] : s * scale) - top[query];
                s = sees ? exponential(log < Acc(0) ? log : Acc(0)) : Acc(0);
                y = sees ? s * (y - dot[query]) : Acc(0);
                if (KEYS && biased) of_bias[i != group] += y;
            });
            if (KEYS && e_own < e) {
                each([&](Acc s, Acc, int i, int j) { weights[i * score_row + j] = narrow<E>(s); });
                __syncwarp();
                product<EB, C, false, false>(of_y, weights, score_row, met.y, v_row);
            }
            if (d_own < d) {
                __syncwarp();
                each([&](Acc, Acc y, int i, int j) { weights[i * score_row + j] = narrow<E>(y); });
                __syncwarp();
                product<DB, C, false, false>(of_x, weights, score_row, met.x, x_row);
            }
        }
    }
    __syncthreads();
    const long long to = entry * own_count;
    write_columns<DB>(dx + to * d, of_x, own.seen, scale, rows, d, d_own, tile.queries);
    if (KEYS) {
        write_columns<EB>(dy + to * e, of_y, own.seen, Acc(1), rows, e, e_own, tile.queries);
        if (biased && blockIdx.y == 0)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int row = first + group + 8 * r;
                const Acc sum = row_sum(of_bias[r]);
                if (t == 0 && row < rows) deliver(d_bias[to + tile.queries(row)], sum);
            }
        return;
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first + group + 8 * r;
        Acc sum = Acc(0);
#pragma unroll
        for (int j = 0; j < DB / 8; ++j)
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                const int column = d_own + 8 * j + 2 * t + p;
                if (row < rows && column < d && own.seen[row]) sum += of_x[j][2 * r + p] * Acc(widen(mine.x[tile.queries(row) * d + column]));
            }
        sum = row_sum(sum);
        if (t == 0 && row < rows) deliver(d_scale[blockIdx.y * static_cast<long long>(entries) * n + to + tile.queries(row)], sum);
    }
}
