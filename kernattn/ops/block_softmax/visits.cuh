// What a block answers of a plan, and what it sees. Compile-time: PARTS (do tables say which tile a block answers, or do all rows see all
// keys, or those up to themselves?), BIASED (is a number added to all scores of a key?), RESULT and LOG (types of outputs and of log normalisers).
//
// Tables: tiles (count, 8) have the first query, how many, the first visit, the end of the visits, the first query's bit in words, the head,
// and where the lists of their queries and of their keys begin among the tokens, or -1; visits (3) the first key, the end, and -1 where
// all is seen, or else words: then 64 keys at most. Bit i of word j: query i sees key j.

using R = RESULT;
using Log = LOG;
using Word = unsigned long long;
constexpr bool of_parts = PARTS, biased = BIASED;

struct Tables {
    const int *tiles, *visits;
    const Word* words;
    const int* tokens;
    int count, heads;
};

// Row i is the one `first` further on, or that of a list.
struct Tokens {
    const int* list;
    long long first;
    __device__ __forceinline__ Tokens from(long long i) const { return {list ? list + i : nullptr, first + i}; }
    __device__ __forceinline__ long long operator()(int i) const { return list ? list[i] : first + i; }
};

// Rows of one entry, at most C, and their visits. Without tables there is one visit, of all keys that any of them sees.
struct Tile {
    int entry, rows, begin, end, bit;
    Tokens queries, keys;
    long long shift;  // without tables row i stands at position i + shift
};

struct Visit {
    long long low, high;
    int words;
};

__device__ __forceinline__ Tile tile_of(const Tables& tables, long long n, long long length) {
    const int entry = blockIdx.x / tables.count, number = blockIdx.x % tables.count;
    if constexpr (of_parts) {
        const int* const x = tables.tiles + 8ll * number;
        const Tokens queries{x[6] < 0 ? nullptr : tables.tokens + x[6], 0}, keys{x[7] < 0 ? nullptr : tables.tokens + x[7], 0};
        return {entry * tables.heads + x[5], x[1], x[2], x[3], x[4], queries.from(x[0]), keys, 0};
    } else {
        const long long row0 = (tables.count - 1 - number) * static_cast<long long>(C);  // the longest rows first
        return {entry, n - row0 < C ? int(n - row0) : C, 0, 1, 0, {nullptr, row0}, {nullptr, 0}, length - n + row0};
    }
}

__device__ __forceinline__ Visit visit_of(const Tables& tables, const Tile& tile, int number, long long length, bool causal) {
    if constexpr (of_parts) {
        const int* const x = tables.visits + 3ll * number;
        return {x[0], x[1], x[2]};
    } else {
        return {0, causal ? max(0ll, min(length, tile.shift + tile.rows)) : length, -1};
    }
}

// Of each key in the tile, which rows see it: bit i of its word is for row i, and a word has two halves.
struct Seen {
    unsigned* halves;
    __device__ __forceinline__ bool operator[](int key) const { return halves[2 * key] | halves[2 * key + 1]; }
    // Bits 0 and 8 are for a lane's two rows.
    __device__ __forceinline__ unsigned of_lane(int key) const {
        const int row = warp_index() * 16 + lane_index() / 4;
        return halves[2 * key + row / 32] >> row % 32;
    }
    __device__ __forceinline__ void put(int key, Word word) const {
        halves[2 * key] = unsigned(word);
        halves[2 * key + 1] = unsigned(word >> 32);
    }
};

// num += the warp's weights (16, C) times values (C, EB), but for those that a row does not see: they may be NaN or infinite, their weights
// are 0.
__device__ __forceinline__ void add_seen(Output& output, const E* weights, const E* values, const Seen& seen) {
    const int g = lane_index() / 4, t = lane_index() % 4;
    for (int k = 0; k < C; ++k) {
        const unsigned rows = seen.of_lane(k);
#pragma unroll
        for (int j = 0; j < EB / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p)
                if (rows >> p / 2 * 8 & 1)
                    output.num[j][p] += Acc(widen(weights[(g + p / 2 * 8) * score_row + k])) * Acc(widen(values[k * v_row + 8 * j + 2 * t + p % 2]));
    }
}

// The log normaliser of a row in a unit: of one of shrunk queries and keys, what a float can hold of it.
template <bool far>
__device__ __forceinline__ Log log_normaliser(Acc unit, Acc den) {
    if (den == Acc(0)) return Limits<Log>::lowest();
    if constexpr (far && same<Log, Acc>) unit = grown(unit);
    Log wide = unit;
    if constexpr (far && !same<Log, Acc>) wide = wide / Limits<Acc>::shrunk() / Limits<Acc>::shrunk();
    return wide + Log(log(den));
}

// Makes the answer of a lane's row r, whose log normaliser is `lse`, that of other parts too, which stands in `out` with that of `before`.
// Returns whether the row changes. With `low`, values were lowered.
template <bool low>
__device__ __forceinline__ bool join(Output& output, int r, Log& lse, const R* out, Log before, int columns) {
    if (lse == Limits<Log>::lowest()) return false;
    if (before == Limits<Log>::lowest()) return true;
    const Log peak = larger(lse, before);
    const Acc kept = Acc(exponential(before - peak)), added = Acc(exponential(lse - peak)), total = kept + added;
    if (added == Acc(0)) return false;
    lse = peak + Log(log(total));
    const Acc share = added / total / output.den[r], rest = low ? kept / total * Limits<Acc>::lowered() : kept / total;
#pragma unroll
    for (int j = 0; j < EB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            const int column = 8 * j + 2 * (lane_index() % 4) + p;
            Acc& x = output.num[j][2 * r + p];
            x *= share;
            if (kept != Acc(0) && column < columns) x += rest * widen(out[column]);  // a part without weight may hold anything
        }
    output.den[r] = Acc(1);
    return true;
}
