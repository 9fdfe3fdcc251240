// The keys and values of a block's rows, and which of them a row sees. Compile-time, beside those of visits.cuh: WHOLE, 1 where a tile holds all
// columns of q and k.

// Operands of 16 bits as they are: tiles are copied while those before are multiplied, and weights stay in registers.
constexpr bool streams = WHOLE && sizeof(E) == 2 && same<E, X> && same<E, V>;
constexpr int rooms = streams ? 2 : 1;
constexpr int x_row = row_length<E, DB>();

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
    static __device__ __forceinline__ int count(const Visit& visit, long long key0) { return visit.high - key0 < C ? int(visit.high - key0) : C; }
    __device__ __forceinline__ Places places(long long key0) const { return tile.keys.from(key0); }
    // May rows see some of these keys only?
    __device__ __forceinline__ bool cut(const Visit& visit, long long key0) const {
        return of_parts ? visit.words >= 0 : causal && key0 + count(visit, key0) - 1 > shift;
    }
    // Does each row see each key of a tile as it is?
    __device__ __forceinline__ bool plain(const Visit& visit, long long key0) const {
        return !biased && !mask && count(visit, key0) == C && !cut(visit, key0);
    }

    // The rows that see key i of a tile.
    __device__ __forceinline__ Word rows_of(const Visit& visit, long long key0, int i) const {
        if (i >= count(visit, key0)) return Word(0);
        const long long place = places(key0)(i);
        if (mask && !mask[place]) return Word(0);
        if constexpr (biased)
            if (Acc(widen(bias[place])) == Limits<Acc>::lowest()) return Word(0);
        if constexpr (of_parts) return rows_in(tables, tile, visit, key0 + i);
        const long long first = causal ? key0 + i - shift : 0;
        return first <= 0 ? ~Word(0) : first < C ? ~Word(0) << first : Word(0);
    }

    // Who sees each key of a tile, and what is added to its scores: with `far`, of shrunk queries and keys.
    template <bool far> __device__ __forceinline__ void look(const Seen& seen, Acc* biases, const Visit& visit, long long key0) const {
        for (int i = threadIdx.x; i < C; i += blockDim.x) {
            const Word rows = rows_of(visit, key0, i);
            seen.put(i, rows);
            if constexpr (biased) {
                const Acc more = rows ? Acc(widen(bias[places(key0)(i)])) : Acc(0);
                biases[i] = far ? more * Limits<Acc>::shrunk() * Limits<Acc>::shrunk() : more;
            }
        }
    }

    // Scores, scaled and biased, -infinity where a row does not see the key; `top` has the largest ones. Bits 0 and 8 of what comes back: does
    // a lane's row see any?
    __device__ __forceinline__ unsigned weigh(Acc (&score)[C / 8][4], Acc (&top)[2], const Seen& seen, const Acc* biases) const {
        unsigned any = 0;
#pragma unroll
        for (int j = 0; j < C / 8; ++j)
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
    __device__ __forceinline__ void weigh(Acc (&score)[C / 8][4], Acc (&top)[2]) const {
#pragma unroll
        for (int j = 0; j < C / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) top[p / 2] = larger(top[p / 2], score[j][p] *= scale);
    }
};
