// Scores where channels have decays of their own, beside prepare.cuh. Pairs of tokens of a strip are those across the middle of its halves, of the
// halves of those, and so on: rows after a middle take the decay from it, rows before it that to it. All factors are at most 1, so that a decay
// that is no float is a score that is none either.
//
// A thread has two channels of a strip.

// A number that a template can take from an argument.
template <int n> struct Constant {
    static constexpr int value = n;
};

struct Faded {
    unsigned q[16], k[16];
    Acc w[16][2];  // logs, then decays
    int strip, column;
    bool own;

    static __device__ __forceinline__ unsigned scaled(unsigned x, const Acc (&f)[2]) { return Pairs<E>::of(Pairs<E>::low(x) * f[0], Pairs<E>::high(x) * f[1]); }

    __device__ __forceinline__ void load_logs(const Rows& rows, int loaded) {
        static_assert(!CHANNELS || (WIDE <= 128 && WARPS == 2 * SUB));
        strip = warp_index() / 2, column = threadIdx.x % 64 * 2, own = column < WIDE;
        const int row = 16 * strip + lane_index() % 16;
        const unsigned begins = __ballot_sync(all_lanes, row < loaded && rows.begins(row));
        const unsigned there = __ballot_sync(all_lanes, rows.logs && row < loaded && rows.there(row));
        const Acc* const at = rows.logs + 16 * strip * static_cast<long long>(rows.d) + column;
#pragma unroll
        for (int i = 0; i < 16; ++i)
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                Acc log = there >> i & 1u && column + p < rows.d ? at[i * static_cast<long long>(rows.d) + p] : Acc(0);
                w[i][p] = begins >> i & 1u ? Limits<Acc>::lowest() : log;
            }
    }

    __device__ __forceinline__ void look(int* bad) const {
#pragma unroll
        for (int i = 0; i < 16; ++i)
            if (!(w[i][0] < -Limits<Acc>::lowest()) || !(w[i][1] < -Limits<Acc>::lowest())) bad[16 * strip + i] = 1;
    }

    __device__ __forceinline__ void load(const E* tile_q, const E* tile_k) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int at = (16 * strip + i) * x_row + column;
            q[i] = own ? pair_at(tile_q + at) : 0u, k[i] = own ? pair_at(tile_k + at) : 0u;
        }
    }

    // Tokens from `count` on are none; what channels decay by over the strip.
    __device__ __forceinline__ void close(int count, Acc* sums) {
        Acc total[2] = {};
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            if (16 * strip + i >= count) w[i][0] = w[i][1] = Acc(0);
#pragma unroll
            for (int p = 0; p < 2; ++p) total[p] += w[i][p], w[i][p] = exponential(w[i][p]);
        }
        if (own) *reinterpret_cast<Packet<Acc, 2>*>(sums + strip * WIDE + column) = {total[0], total[1]};
    }

    __device__ __forceinline__ void put(E* tile, int i, unsigned x) const {
        if (own) pair_at(tile + (16 * strip + i) * x_row + column) = x;
    }
    __device__ __forceinline__ void by(int i, Acc (&f)[2]) const { f[0] *= w[i][0], f[1] *= w[i][1]; }

    // From and to the middle of `2 half` tokens; with 16, from the start.
    template <int half> __device__ __forceinline__ void level(E* to_q, E* to_k) {
#pragma unroll
        for (int i = 0; i < 16; ++i) anew(q[i]), anew(k[i]), anew(w[i][0]), anew(w[i][1]);
#pragma unroll
        for (int first = 0; first < 16; first += 2 * half) {
            Acc f[2] = {Acc(1), Acc(1)};
            if (half < 16)
#pragma unroll
                for (int i = half - 1; i >= 0; --i) put(to_k, first + i, scaled(k[first + i], f)), by(first + i, f);
            f[0] = f[1] = Acc(1);
#pragma unroll
            for (int i = half % 16; i < (half < 16 ? 2 * half : 16); ++i) {
                by(first + i, f);
                put(to_k, first + i, scaled(k[first + i], f));
                put(to_q, first + i, scaled(q[first + i], f));
            }
        }
    }

    // The decay of strips from `low` on below `high`.
    __device__ __forceinline__ void between(Acc (&f)[2], const Acc* sums, int low, int high) const {
        f[0] = f[1] = Acc(0);
#pragma unroll
        for (int b = 0; b < SUB; ++b)
            if (own && b >= low && b < high) f[0] += sums[b * WIDE + column], f[1] += sums[b * WIDE + column + 1];
        f[0] = decayed(f[0]), f[1] = decayed(f[1]);
    }

    // Keys with the decay to the start of each later strip, which has 16 rows for each strip before it.
    __device__ __forceinline__ void tails(E* to, const Acc* sums) const {
#pragma unroll
        for (int later = 1; later < SUB; ++later) {
            if (later <= strip) continue;
            Acc f[2];
            between(f, sums, strip + 1, later);
#pragma unroll
            for (int i = 15; i >= 0; --i) put(to + 8 * later * (later - 1) * x_row, i, scaled(k[i], f)), by(i, f);
        }
    }

    // Queries with the decay from the start of the chunk, keys with that to its end.
    __device__ __forceinline__ void leave(E* to_q, E* to_k, const Acc* sums) const {
        if (!own) return;
        const int at = 16 * strip * WIDE + column;
        Acc f[2];
        between(f, sums, 0, strip);
#pragma unroll
        for (int i = 0; i < 16; ++i) by(i, f), pair_at(to_q + at + i * WIDE) = scaled(q[i], f);
        between(f, sums, strip + 1, SUB);
#pragma unroll
        for (int i = 15; i >= 0; --i) pair_at(to_k + at + i * WIDE) = scaled(k[i], f), by(i, f);
    }

    // Keys with the decay from the start of the chunk.
    __device__ __forceinline__ void since(E* tile, const Acc* sums) const {
        Acc f[2];
        between(f, sums, 0, strip);
#pragma unroll
        for (int i = 0; i < 16; ++i) by(i, f), put(tile, i, scaled(k[i], f));
    }
};

// Scores of a strip with itself, those of pairs across middles: by a warp, level by level.
template <int half> __device__ __forceinline__ void score_level(Acc (&c)[2][4], const E* left, const E* right) {
    Acc sum[2][4];
    clear(sum);
#pragma unroll 1
    for (int from = 0; from < WIDE; from += 64) product<16, 64, false, true>(sum, left + from, x_row, right + from, x_row, 16, min(64, WIDE - from));
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = lane_index() / 4 + i / 2 * 8, column = 8 * j + lane_index() % 4 * 2 + i % 2;
            constexpr int unit = half ? half : 1;
            const bool across = row / (2 * unit) == column / (2 * unit) && row / unit % 2 > column / unit % 2;
            const bool mine = half ? across : row == column;
            if (mine) c[j][i] = sum[j][i];
        }
}
