// The keys and values of a block's rows, and which of them a row sees. Compile-time, beside those of visits.cuh: WHOLE, 1 where a tile holds all
// columns of q and k.

constexpr int W = C < 64 ? C : 64;  // keys of a tile

// Operands of 16 bits as they are: tiles are copied while those before are multiplied, and weights stay in registers.
constexpr bool streams = WHOLE && sizeof(E) == 2 && same<E, X> && same<E, V>;
constexpr int rooms = streams ? 2 : 1;
constexpr int x_row = row_length<E, DB>(), w_row = row_length<E, W>();

struct Keys {
    const X* k;
    const V* v;
    const unsigned char* mask;
    const X* bias;
    Tables tables;
    Tile tile;
    long long shift, stop;  // without tables row i stands at position i + shift, and no row sees a key from `stop` on
    int d, e, columns, causal;
    Acc scale;

    __device__ __forceinline__ Visit visit(int number) const { return of_parts ? visit_in(tables, number) : Visit{0, stop, -1}; }
    static __device__ __forceinline__ int count(const Visit& visit, long long key0) { return visit.high - key0 < W ? int(visit.high - key0) : W; }
    __device__ __forceinline__ Places places(long long key0) const { return tile.keys.from(key0); }
    // May rows see some of these keys only?
    __device__ __forceinline__ bool cut(const Visit& visit, long long key0) const {
        return of_parts ? visit.words >= 0 : causal && key0 + count(visit, key0) - 1 > shift;
    }
    // Does each row see each key of a tile as it is?
    __device__ __forceinline__ bool plain(const Visit& visit, long long key0) const {
        return !biased && !mask && count(visit, key0) == W && !cut(visit, key0);
    }

    // Does key i of a tile count at all?
    __device__ __forceinline__ bool counts(const Visit& visit, long long key0, int i) const {
        if (i >= count(visit, key0)) return false;
        const long long place = places(key0)(i);
        if constexpr (biased)
            if (Acc(widen(bias[place])) == Limits<Acc>::lowest()) return false;
        return !mask || mask[place];
    }
    // The first row that sees it, where no table says which: C is none.
    __device__ __forceinline__ int first_row(long long key0, int i) const {
        const long long first = causal ? key0 + i - shift : 0;
        return first <= 0 ? 0 : first < C ? int(first) : C;
    }
    __device__ __forceinline__ bool anyone_sees(const Visit& visit, long long key0, int i) const {
        return counts(visit, key0, i) && (of_parts ? rows_in(tables, tile, visit, key0 + i) != 0 : first_row(key0, i) < C);
    }

    // Who sees each key of a tile, and what is added to its scores: with `far`, of shrunk queries and keys.
    template <bool far> __device__ __forceinline__ void look(const Seen& seen, Acc* biases, const Visit& visit, long long key0) const {
        for (int i = threadIdx.x; i < W; i += blockDim.x) {
            const bool there = counts(visit, key0, i);
            if constexpr (of_parts) seen.put(i, there ? rows_in(tables, tile, visit, key0 + i) : Word(0));
            else seen.put_from(i, there ? first_row(key0, i) : C);
            if constexpr (biased) {
                const Acc more = there ? Acc(widen(bias[places(key0)(i)])) : Acc(0);
                biases[i] = far ? more * Limits<Acc>::shrunk() * Limits<Acc>::shrunk() : more;
            }
        }
    }

    // Scores, scaled and biased, -infinity where a row does not see the key; `top` has the largest ones. Bits 0 and 8 of what comes back: does
    // a lane's row see any?
    __device__ __forceinline__ unsigned weigh(Acc (&score)[W / 8][4], Acc (&top)[2], const Seen& seen, const Acc* biases) const {
        unsigned any = 0;
#pragma unroll
        for (int j = 0; j < W / 8; ++j)
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                const int column = 8 * j + 2 * (lane_index() % 4) + p;
                const unsigned rows = seen.of_lane(column);
                any |= rows;
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    Acc& y = score[j][2 * r + p];
                    y = biased ? y * scale + biases[column] : y * scale;
                    if (!(rows >> 8 * r & 1)) y = Limits<Acc>::lowest();
                    top[r] = larger(top[r], y);
                }
            }
        return any;
    }
    // The same where each row sees each key as it is.
    __device__ __forceinline__ void weigh(Acc (&score)[W / 8][4], Acc (&top)[2]) const {
#pragma unroll
        for (int j = 0; j < W / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) top[p / 2] = larger(top[p / 2], score[j][p] *= scale);
    }
};

// num += the warp's weights (16, W) times values (W, EB), but for those that a row does not see: they may be NaN or infinite, their weights
// are 0.
__device__ __forceinline__ void add_seen(Output& output, const E* weights, const E* values, const Seen& seen) {
    const int g = lane_index() / 4, t = lane_index() % 4;
    for (int k = 0; k < W; ++k) {
        const unsigned rows = seen.of_lane(k);
#pragma unroll
        for (int j = 0; j < EB / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p)
                if (rows >> p / 2 * 8 & 1)
                    output.num[j][p] += Acc(widen(weights[(g + p / 2 * 8) * w_row + k])) * Acc(widen(values[k * v_row + 8 * j + 2 * t + p % 2]));
    }
}
