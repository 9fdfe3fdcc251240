// A state that walks over prepared chunks, beside prepare.cuh. A warp has 16 columns of v, and holds those of the state, transposed: what a product
// leaves in its registers is the left operand of the next. Nothing but the tiles of a chunk passes through shared memory.
//
// Compile-time, beside those of prepare.cuh: STAGES, chunks in shared memory; LOADERS, warps that bring them, behind those that walk.

constexpr int WALKERS = EB / 16 + LOADERS, BRINGERS = 32 * LOADERS;
constexpr int u_row = row_length<E, EB>(), p_row = row_length<E, CHUNK>(), stage_bytes = 2 * CHUNK * ((2 + erases) * x_row + u_row + p_row) + 4 * FACTS;

// A chunk in shared memory.
struct Tiles {
    E *w, *q, *k, *u, *p;
    Acc* facts;

    __device__ __forceinline__ void carve(Carver& carver) {
        w = carver.take<E>(erases ? CHUNK * x_row : 0);
        q = carver.take<E>(CHUNK * x_row);
        k = carver.take<E>(CHUNK * x_row);
        u = carver.take<E>(CHUNK * u_row);
        p = carver.take<E>(CHUNK * p_row);
        facts = carver.take<Acc>(FACTS);
    }

    // `block`: where the chunk's parts are; tokens from `count` on are none.
    __device__ __forceinline__ void request(const Slab& slab, const Rows& rows, long long block, int column0, int columns, int e, int count) const {
        const int thread = int(threadIdx.x) - 2 * EB;
        const auto place = [&](int i) -> long long { return i < count ? i : -1; };
        const auto every = [](int i) -> long long { return i; };
        if (erases) {
            request_tile<CHUNK, WIDE>(w, slab.w + block * CHUNK * WIDE, WIDE, WIDE, every, thread, BRINGERS);
            request_tile<CHUNK, EB>(u, slab.u + block * CHUNK * WIDE_E + column0, WIDE_E, min(EB, WIDE_E - column0), every, thread, BRINGERS);
        } else {
            request_tile<CHUNK, EB>(u, rows.v + column0, e, columns, place, thread, BRINGERS);
        }
        if (CHANNELS) {
            request_tile<CHUNK, WIDE>(q, slab.q + block * CHUNK * WIDE, WIDE, WIDE, every, thread, BRINGERS);
            request_tile<CHUNK, WIDE>(k, slab.k + block * CHUNK * WIDE, WIDE, WIDE, every, thread, BRINGERS);
        } else {
            request_tile<CHUNK, WIDE>(q, rows.q, rows.d, rows.d, place, thread, BRINGERS);
            request_tile<CHUNK, WIDE>(k, rows.k, rows.d, rows.d, place, thread, BRINGERS);
        }
        const E* const scores = slab.p + block * CHUNK * CHUNK;
#pragma unroll 1
        for (int i = thread; i < CHUNK * (CHUNK / 8); i += BRINGERS) {
            const int row = i / (CHUNK / 8), column = i % (CHUNK / 8) * 8;
            if (column / 16 <= row / 16) copy_async(p + row * p_row + column, scores + row * CHUNK + column, true);
        }
        for (int i = thread; i < FACTS / 4; i += BRINGERS) copy_async(facts + 4 * i, slab.facts + block * FACTS + 4 * i, true);
    }
};

// 16 columns of a state, (column, channel) as the accumulators of a product; by a warp.
struct Held {
    Acc s[WIDE / 8][4];

    template <class Of> __device__ __forceinline__ void each(Of of) {
#pragma unroll
        for (int j = 0; j < WIDE / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) of(8 * j + lane_index() % 4 * 2 + i % 2, lane_index() / 4 + i / 2 * 8, s[j][i]);
    }

    // The outputs of a chunk, `put(j, r, pair)` of token 8 j + g and columns 8 r + 2 t and the next; false, and nothing put or changed, where the
    // state, or what tokens write, is not finite as an operand.
    template <class Put> __device__ __forceinline__ bool take(const Tiles& x, int piece, Put put) {
        const int matrix = lane_index() / 8, r8 = lane_index() % 8, t = lane_index() % 4;
        Acc written[CHUNK / 8][4], out[CHUNK / 8][4];
        clear(out);
#pragma unroll
        for (int m = 0; m < CHUNK; m += 16) {
            unsigned u[4];
            load_matrices<true>(u, x.u + (m + matrix / 2 * 8 + r8) * u_row + 16 * piece + matrix % 2 * 8);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                written[m / 8 + i / 2][i % 2 * 2] = Acc(Pairs<E>::low(u[i]));
                written[m / 8 + i / 2][i % 2 * 2 + 1] = Acc(Pairs<E>::high(u[i]));
            }
        }
#pragma unroll
        for (int k = 0; k < WIDE; k += 16) {
            unsigned left[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) left[i] = Pairs<E>::of(s[k / 8 + i / 2][i % 2 * 2], s[k / 8 + i / 2][i % 2 * 2 + 1]);
            if (erases) product_step<CHUNK, true, 16>(written, left, x.w, x_row, k, CHUNK);
            product_step<CHUNK, true, 16>(out, left, x.q, x_row, k, CHUNK);
        }
        // What is not finite in a state is in all that reads it, the first token too.
        bool fine = t || (erases ? finite(written[0][0]) && finite(written[0][2]) : finite(out[0][0]) && finite(out[0][2]));
        unsigned plain[SUB][4];
#pragma unroll
        for (int m = 0; m < SUB; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) plain[m][i] = Pairs<E>::of(written[2 * m + i / 2][i % 2 * 2], written[2 * m + i / 2][i % 2 * 2 + 1]);
        if (erases) {
            Acc rough[4] = {};
#pragma unroll
            for (int m = 0; m < SUB; ++m) mma(rough, plain[m], {0, 0}, E{});
            fine = fine && rough[0] == Acc(0) && rough[2] == Acc(0);
        }
        if (__any_sync(all_lanes, !fine)) return false;

#pragma unroll
        for (int j = 0; j < CHUNK / 8; ++j) {
            const Packet<Acc, 2> by = *reinterpret_cast<const Packet<Acc, 2>*>(x.facts + 8 * j + 2 * t);
#pragma unroll
            for (int i = 0; i < 4; ++i) out[j][i] = fade(by.x[i % 2], out[j][i]);
        }
#pragma unroll
        for (int m = 0; m < SUB; ++m)
#pragma unroll
            for (int n = 16 * m; n < CHUNK; n += 16) {
                unsigned right[4];
                load_matrices<false>(right, x.p + (n + matrix / 2 * 8 + r8) * p_row + 16 * m + matrix % 2 * 8);
                mma(out[n / 8], plain[m], {right[0], right[1]}, E{});
                mma(out[n / 8 + 1], plain[m], {right[2], right[3]}, E{});
            }
#pragma unroll
        for (int j = 0; j < CHUNK / 8; ++j) put(j, transposed(Pairs<E>::of(out[j][0], out[j][1])), transposed(Pairs<E>::of(out[j][2], out[j][3])));

#pragma unroll
        for (int j = 0; j < WIDE / 8; ++j) {
            const Acc* const by = x.facts + DECAY_AT + (CHANNELS ? 8 * j + 2 * t : 0);
#pragma unroll
            for (int i = 0; i < 4; ++i) s[j][i] = fade(by[CHANNELS ? i % 2 : 0], s[j][i]);
        }
#pragma unroll
        for (int m = 0; m < SUB; ++m) {
            unsigned left[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const Packet<Acc, 2> by = *reinterpret_cast<const Packet<Acc, 2>*>(x.facts + CHUNK + 16 * m + i / 2 * 8 + 2 * t);
                left[i] = Pairs<E>::of(by.x[0] * written[2 * m + i / 2][i % 2 * 2], by.x[1] * written[2 * m + i / 2][i % 2 * 2 + 1]);
            }
            product_step<WIDE, false, 16>(s, left, x.k, x_row, 16 * m, WIDE);
        }
        return true;
    }
};
