// The state of a walk: S, of EB columns of v, and z of every slot, a feature or padding. Compile-time: HELD, how many strips of 16 slots of S each
// warp keeps in registers; with 0, S lies in s, in shared memory or in a room of device memory.

// Does z ride along in products, in two parts that add up to it, beside what is shown of S: in the padding after its columns?
constexpr bool rides = HELD && sizeof(E) == 2;
constexpr bool counts = rides && !may_scale;  // are features summed by products with ones, where these have no weights?

struct State {
    Map map;  // of the keys
    Acc *s, *z, *unit, *next;  // next: the units once the chunk's keys are among the others
    E* shown;      // S as products read it, rounded: with HELD all of it, else one tile
    int slots;     // tiles * FB
    Acc row_unit;  // where the log scale is per row
    Acc held[HELD ? HELD : 1][EB / 8][4];

    static __device__ __forceinline__ int strip(int h) { return warp_index() + h * WARPS; }

    // Calls put(x, slot, column) for all of S that this thread looks after.
    template <class Put> __device__ __forceinline__ void each(Put put) {
        if (HELD) {
#pragma unroll
            for (int h = 0; h < HELD; ++h)
#pragma unroll
                for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                    for (int p = 0; p < 4; ++p)
                        put(held[h][j][p], strip(h) * 16 + lane_index() / 4 + p / 2 * 8, 8 * j + lane_index() % 4 * 2 + p % 2);
        } else {
            for (int i = threadIdx.x; i < slots * EB; i += blockDim.x) put(s[i / EB * s_row + i % EB], i / EB, i % EB);
        }
    }

    __device__ __forceinline__ int feature(int slot) const { return map.feature(slot / FB, slot % FB); }

    __device__ __forceinline__ void show_z(int slot, Acc value) {
        const Acc high = Acc(Pairs<E>::low(Pairs<E>::of(value, Acc(0))));
        const Pair<E> both = Pairs<E>::of(high, value == high ? Acc(0) : value - high);
        if (rides) *reinterpret_cast<Packet<Pair<E>, 4>*>(shown + slot * v_row + EB) = {both, both, both, both};
    }
    __device__ __forceinline__ void put_z(int slot, Acc value) {
        z[slot] = value;
        show_z(slot, value);
    }

    // What products read of S, after which a barrier must follow; nobody may read it any more.
    __device__ __forceinline__ void show() {
        if (!HELD) return;
#pragma unroll
        for (int h = 0; h < HELD; ++h) {
            if (strip(h) * 16 >= slots) break;
            Pair<E> rounded[EB / 8][2];
#pragma unroll
            for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) rounded[j][r] = Pairs<E>::of(held[h][j][2 * r], held[h][j][2 * r + 1]);
            store_pairs(shown + strip(h) * 16 * v_row, v_row, rounded);
        }
    }

    __device__ __forceinline__ void reset() {
        each([](Acc& x, int, int) { x = Acc(0); });
        for (int i = threadIdx.x; i < slots; i += blockDim.x) z[i] = Acc(0), unit[i] = Limits<Acc>::lowest();
        row_unit = Limits<Acc>::lowest();
        if (HELD)
            for (int i = threadIdx.x; i < slots * v_row / padding<E>(); i += blockDim.x) reinterpret_cast<Wide<E>*>(shown)[i] = Wide<E>{};
    }

    // scaled: do rows have log scales of their own? Else, unless there is one per feature, sums are in units of 1.
    __device__ __forceinline__ void load(const Acc* from_s, const Acc* from_z, const Acc* from_peak, int e, int columns, bool scaled) {
        const auto rest = [=](int feature) {
            const Acc peak = from_peak[per_feature ? feature : 0];
            return per_feature || scaled ? rest_of_log(peak) : weight(peak, Acc(0));
        };
        each([&](Acc& x, int slot, int column) {
            const int f = feature(slot);
            x = f >= 0 && column < columns ? from_s[f * static_cast<long long>(e) + column] * rest(f) : Acc(0);
        });
        for (int i = threadIdx.x; i < slots; i += blockDim.x) {
            const int f = feature(i);
            put_z(i, f >= 0 ? from_z[f] * rest(f) : Acc(0));
            unit[i] = per_feature && f >= 0 ? unit_of_log(from_peak[f]) : Limits<Acc>::lowest();
        }
        const bool nothing = from_peak[0] == Limits<Acc>::lowest();
        row_unit = per_feature || nothing ? Limits<Acc>::lowest() : scaled ? unit_of_log(from_peak[0]) : Acc(0);
        show();
    }

    __device__ __forceinline__ void save(Acc* to_s, Acc* to_z, Acc* to_peak, int e, int columns, bool vectors) {
        each([&](Acc& x, int slot, int column) {
            const int f = feature(slot);
            if (f >= 0 && column < columns) to_s[f * static_cast<long long>(e) + column] = x;
        });
        if (!vectors) return;
        for (int i = threadIdx.x; i < slots; i += blockDim.x) {
            const int f = feature(i);
            if (f >= 0) to_z[f] = z[i];
            if (f >= 0 && per_feature) to_peak[f] = log_of(unit[i]);
        }
        if (!per_feature && threadIdx.x == 0) to_peak[0] = log_of(row_unit);
    }

    // S of a tile as products read it, times the decay of each slot; `rose`: is any of these not 1? With HELD and without a scale per feature
    // it is there already.
    __device__ __forceinline__ const E* tile_of(int tile) const { return shown + (HELD ? tile * FB * v_row : 0); }
    __device__ __forceinline__ void prepare(int tile, const Acc* decay, bool rose) {
        if (HELD) {
            if (!per_feature || !rose) return;
            for (int i = threadIdx.x; i < FB * EB / 2; i += blockDim.x) {
                auto& x = pair_at(shown + (tile * FB + i / (EB / 2)) * v_row + i % (EB / 2) * 2);
                const Acc by = decay[i / (EB / 2)];
                x = Pairs<E>::of(Acc(Pairs<E>::low(x)) * by, Acc(Pairs<E>::high(x)) * by);
            }
        } else {
            for (int i = threadIdx.x; i < FB * EB / 2; i += blockDim.x) {
                const int row = i / (EB / 2), column = i % (EB / 2) * 2;
                const auto x = *reinterpret_cast<const Packet<Acc, 2>*>(s + (tile * FB + row) * s_row + column);
                const Acc by = per_feature ? decay[row] : Acc(1);
                pair_at(shown + row * v_row + column) = Pairs<E>::of(x.x[0] * by, x.x[1] * by);
            }
        }
    }

    __device__ __forceinline__ Acc decay(int slot, Acc row_decay) const { return per_feature ? change(unit[slot], next[slot]) : row_decay; }

    // S <- decay S + phi^T values for the slots from `first` on, FB of them in each of `tiles` tiles of phi; z likewise where it `counts`.
    template <class T> __device__ __forceinline__ void add_held(const T* phi, const T* values, int depth, Acc row_decay) {
        const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
        for (int h = 0; h < HELD; ++h) {
            if (strip(h) * 16 >= slots) break;
            const T* const from = phi + strip(h) / (FB / 16) * (C * phi_row) + strip(h) % (FB / 16) * 16;
            const int slot = strip(h) * 16 + g;
            const Acc by[2] = {decay(slot, row_decay), decay(slot + 8, row_decay)};
            if (Nonlinearity::scaled)
#pragma unroll
                for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                    for (int p = 0; p < 4; ++p) held[h][j][p] *= by[p / 2];
            if constexpr (HELD > 0 && sizeof(T) == 2) {
                Acc count[4] = {};
#pragma unroll
                for (int k = 0; k < C; k += 16) {
                    if (k >= depth) break;
                    unsigned left[4];
                    load_left<true>(left, from, phi_row, k);
                    product_step<EB, false, 16>(held[h], left, values, v_row, k, EB);
                    if (counts) mma(count, left, {ones<T>, ones<T>}, T{});
                }
                if (counts && t == 0) put_z(slot, z[slot] * by[0] + count[0]), put_z(slot + 8, z[slot + 8] * by[1] + count[2]);
            } else {
                product<EB, C, true, false>(held[h], from, phi_row, values, v_row, EB, depth);
            }
        }
    }

    __device__ __forceinline__ void add(const E* phi, int first, int tiles, const E* values, int rows, Acc row_decay) {
        const int g = lane_index() / 4, t = lane_index() % 4, depth = (rows + 15) / 16 * 16;
        if (HELD) {
            add_held(phi, values, depth, row_decay);
            return;
        }
        const auto columns_of = [=](int strip) { return phi + strip / (FB / 16) * (C * phi_row) + strip % (FB / 16) * 16; };
        for (int strip = warp_index(); strip < tiles * (FB / 16); strip += WARPS) {
            const int slot = first + strip * 16 + g;
            const Acc by[2] = {decay(slot, row_decay), decay(slot + 8, row_decay)};
            const auto pair = [&](int j, int r) { return reinterpret_cast<Packet<Acc, 2>*>(s + (slot + 8 * r) * s_row + 8 * j + 2 * t); };
            Acc sum[EB / 8][4];
#pragma unroll
            for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const Packet<Acc, 2> old = *pair(j, r);
                    sum[j][2 * r] = old.x[0] * by[r], sum[j][2 * r + 1] = old.x[1] * by[r];
                }
            product<EB, C, true, false>(sum, columns_of(strip), phi_row, values, v_row, EB, depth);
#pragma unroll
            for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) *pair(j, r) = {sum[j][2 * r], sum[j][2 * r + 1]};
        }
    }
};
