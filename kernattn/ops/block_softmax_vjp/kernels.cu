// The way back through exact attention. `ask`: of each query g.o, and whether it counts. `back`: C rows of one entry and DB columns of their
// cotangents a block, which goes through the tokens that they meet C at a time: queries meet keys, and with KEYS keys meet queries.
//
// P = exp(s q.k - lse) and dS = P (g.v - g.o); dq = s dS k, dk = s dS^T q, dv = P^T g. Compile-time, beside those of types.cuh and output.cuh:
// DB (columns of q and k held at a time), KEYS, RESULT (the type of cotangents).

using R = RESULT;
constexpr int x_row = row_length<E, DB>();

// A warp a row: blockIdx.x * WARPS + warp of `rows`.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
ask(const V* out, const V* g, const Acc* lse, Acc* dots, unsigned char* counts, int e, long long rows) {
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
__device__ __forceinline__ void load_seen(E* tile, const T* at, int stride, int rows, int valid_columns, const int* seen) {
    for_each_of_tile(at, stride, C, columns, rows, valid_columns, [&](int row, int column, auto packet) {
        if (!seen[row]) packet = {};
        store(tile + row * row_length<E, columns>() + column, packet);
    });
}

struct Tokens {
    E *x, *y;  // (C, DB), (C, EB)
    int* seen;

    __device__ __forceinline__ void carve(Carver& carver) {
        x = carver.take<E>(C * x_row);
        y = carver.take<E>(C * v_row);
        seen = carver.take<int>(C);
    }
    __device__ __forceinline__ void load_x(const Side& side, long long row, int rows, int d, int d0) {
        load_seen<DB>(x, side.x + row * d + d0, d, rows, d - d0, seen);
    }
    __device__ __forceinline__ void load_y(const Side& side, long long row, int rows, int e, int e0) {
        load_seen<EB>(y, side.y + row * e + e0, e, rows, e - e0, seen);
    }
};

// Columns of cotangents of a warp's rows, times a factor; zeros for those that are not seen.
template <int columns>
__device__ __forceinline__ void write_columns(R* to, const Acc (&y)[columns / 8][4], const int* seen, Acc factor, int rows, int stride, int column0) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < columns / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const int row = warp_index() * 16 + g + p / 2 * 8, column = column0 + 8 * j + 2 * t + p % 2;
            if (row < rows && column < stride) to[row * static_cast<long long>(stride) + column] = narrow<R>(seen[row] ? factor * y[j][p] : Acc(0));
        }
}

// blockIdx.x = entry * row tiles + row tile; blockIdx.y: the DB columns of dx, and the EB of dy. lse, dots and counts (n,) of an entry of the
// queries, mask (length,) of one of the keys or null. dx, dy of an entry of the outputs; with KEYS those of keys and values. d_scale (gridDim.y,
// entries, n), of queries only: q.(dS k) over the columns of a block.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
back(const X* q, const X* k, const V* g, const V* v, const Acc* lse, const Acc* dots, const unsigned char* counts, const unsigned char* mask, R* dx, R* dy,
     Acc* d_scale, Acc scale, long long n, long long length, int d, int e, int entries, int causal, int size0, int size1, int size2, int q0, int q1, int q2,
     int k0, int k1, int k2) {
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    const long long own_count = KEYS ? length : n;
    const int row_tiles = int((own_count + C - 1) / C), entry = blockIdx.x / row_tiles, d_own = blockIdx.y * DB, e_own = blockIdx.y * EB;
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

    const int group = lane_index() / 4, t = lane_index() % 4, first = warp_index() * 16;
    const int turn = blockIdx.x % row_tiles;
    const long long row0 = (KEYS ? turn : row_tiles - 1 - turn) * static_cast<long long>(C);  // the longest first
    const int rows = own_count - row0 < C ? int(own_count - row0) : C;
    const long long start = KEYS && causal ? max(0ll, row0 - shift) : 0;
    const long long stop = !KEYS && causal ? max(0ll, min(length, shift + row0 + rows)) : theirs.count;
    const auto load_queries = [&](long long row, int many) {
        for (int i = threadIdx.x; i < C; i += blockDim.x) {
            top[i] = i < many ? lse[first_query + row + i] : Acc(0);
            dot[i] = i < many ? dots[first_query + row + i] : Acc(0);
        }
    };
    load_visible(own.seen, mine.counts ? mine.counts + row0 : nullptr, rows);
    if (!KEYS) load_queries(row0, rows);
    Acc of_x[DB / 8][4], of_y[EB / 8][4];
    clear(of_x);
    clear(of_y);
    for (long long at = start; at < stop; at += C) {
        const int many = stop - at < C ? int(stop - at) : C;
        Acc score[C / 8][4], value[C / 8][4];
        clear(score);
        clear(value);
        __syncthreads();
        load_visible(met.seen, theirs.counts ? theirs.counts + at : nullptr, many);
        if (KEYS) load_queries(at, many);
        for (int d0 = 0; d0 < d; d0 += DB) {
            __syncthreads();
            if (at == start || d > DB) own.load_x(mine, row0, rows, d, d0);
            met.load_x(theirs, at, many, d, d0);
            __syncthreads();
            product<C, DB, false, true>(score, own.x + first * x_row, x_row, met.x, x_row);
        }
        for (int e0 = 0; e0 < e; e0 += EB) {
            if (e0 > 0) __syncthreads();
            if (at == start || e > EB) own.load_y(mine, row0, rows, e, e0);
            met.load_y(theirs, at, many, e, e0);
            __syncthreads();
            product<C, EB, false, true>(value, own.y + first * v_row, v_row, met.y, v_row);
        }
        if (d > DB || (KEYS && e > EB)) {
            __syncthreads();
            if (d_own < d) met.load_x(theirs, at, many, d, d_own);
            if (KEYS && e_own < e) met.load_y(theirs, at, many, e, e_own);
            __syncthreads();
        }
        const auto each = [&](auto put) {
#pragma unroll
            for (int j = 0; j < C / 8; ++j)
#pragma unroll
                for (int p = 0; p < 4; ++p) put(score[j][p], value[j][p], group + p / 2 * 8, 8 * j + 2 * t + p % 2);
        };
        each([&](Acc& s, Acc& y, int i, int j) {
            const int row = first + i, query = KEYS ? j : row;
            const long long of_query = KEYS ? at + j : row0 + row, of_key = KEYS ? row0 + row : at + j;
            const bool sees = own.seen[row] && met.seen[j] && (!causal || of_key <= of_query + shift);
            const Acc log = s * scale - top[query];
            s = sees ? exponential(log < Acc(0) ? log : Acc(0)) : Acc(0);
            y = sees ? s * (y - dot[query]) : Acc(0);
        });
        if (KEYS && e_own < e) {
            __syncwarp();
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
    const long long to = entry * own_count + row0;
    write_columns<DB>(dx + to * d, of_x, own.seen, scale, rows, d, d_own);
    if (KEYS) {
        write_columns<EB>(dy + to * e, of_y, own.seen, Acc(1), rows, e, e_own);
        return;
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = first + group + 8 * r;
        Acc sum = Acc(0);
#pragma unroll
        for (int j = 0; j < DB / 8; ++j)
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                const int column = d_own + 8 * j + 2 * t + p;
                if (row < rows && column < d && own.seen[row]) sum += of_x[j][2 * r + p] * Acc(widen(mine.x[(row0 + row) * d + column]));
            }
        sum = row_sum(sum);
        if (t == 0 && row < rows) d_scale[(blockIdx.y * static_cast<long long>(entries)) * n + to + row] = sum;
    }
}
