// Plans as kernels read them. Compile-time: PARTS (do tables say which tile a block answers? Else all rows see all keys, or those up to
// themselves), BIASED (is a number added to all scores of a key?).
//
// Tables: tiles (count, 8) have the first query, how many, the first visit, the end of the visits, the first query's bit in words, the head,
// and where the lists of their queries and of their keys begin among the tokens, or -1; visits (3) the first key, the end, and -1 where
// all is seen, or else words: then 64 keys at most. Bit i of word j: query i sees key j. On the way back of keys, keys are the queries.

using Word = unsigned long long;
constexpr bool of_parts = PARTS, biased = BIASED;
static_assert(!of_parts || C <= 64, "a word has a bit for each row of a tile");

struct Tables {
    const int *tiles, *visits;
    const Word* words;
    const int* tokens;
    int count, heads;
};

// Row i is the one `first` further on, or that of a list.
struct Places {
    const int* list;
    long long first;
    __device__ __forceinline__ Places from(long long i) const { return {list ? list + i : nullptr, first + i}; }
    __device__ __forceinline__ long long operator()(int i) const { return list ? list[i] : first + i; }
};

// Rows of one entry, at most C, and their visits.
struct Tile {
    int entry, rows, begin, end, bit;
    Places queries, keys;
};

struct Visit {
    long long low, high;
    int words;
};

__device__ __forceinline__ Tile tile_in(const Tables& tables) {
    const int* const x = tables.tiles + 8ll * (blockIdx.x % tables.count);
    const Places queries{x[6] < 0 ? nullptr : tables.tokens + x[6], 0}, keys{x[7] < 0 ? nullptr : tables.tokens + x[7], 0};
    return {int(blockIdx.x / tables.count) * tables.heads + x[5], x[1], x[2], x[3], x[4], queries.from(x[0]), keys};
}

__device__ __forceinline__ Visit visit_in(const Tables& tables, int number) {
    const int* const x = tables.visits + 3ll * number;
    return {x[0], x[1], x[2]};
}

// The rows of a tile that see a key of a visit.
__device__ __forceinline__ Word rows_in(const Tables& tables, const Tile& tile, const Visit& visit, long long key) {
    return visit.words < 0 ? ~Word(0) : tables.words[64ll * visit.words + (key - visit.low)] >> tile.bit;
}

// Of each key in the tile, which rows see it: bit i % 32 of its word i / 32 is for row i.
struct Seen {
    static constexpr int words = C > 64 ? C / 32 : 2;
    unsigned* bits;
    __device__ __forceinline__ bool operator[](int key) const {
        unsigned any = 0;
#pragma unroll
        for (int w = 0; w < words; ++w) any |= bits[words * key + w];
        return any;
    }
    // Bits 0 and 8 are for a lane's two rows.
    __device__ __forceinline__ unsigned of_lane(int key) const {
        const int row = warp_index() * 16 + lane_index() / 4;
        return bits[words * key + row / 32] >> row % 32;
    }
    __device__ __forceinline__ void put(int key, Word word) const {
        bits[words * key] = unsigned(word);
        bits[words * key + 1] = unsigned(word >> 32);
    }
    // The rows from `first` on.
    __device__ __forceinline__ void put_from(int key, int first) const {
#pragma unroll
        for (int w = 0; w < words; ++w) {
            const int at = first - 32 * w;
            bits[words * key + w] = at <= 0 ? ~0u : at < 32 ? ~0u << at : 0u;
        }
    }
};
