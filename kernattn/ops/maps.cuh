// Feature maps inside a kernel. Compile-time, beside those of types.cuh: KIND, PROJECT, FB, DB.
//
// Features are made a tile at a time: tile b = block * parts + part holds the features part * D + block * FB + (0 .. FB - 1).
// A block of FB frequencies serves both parts of a pair ([cos, sin] or exp of [u, -u]).

enum Kind { ELU1, RELU, COS, SINCOS, EXP, EXP_PAIR, VALUES, LOGS };

constexpr int parts = KIND == SINCOS || KIND == EXP_PAIR ? 2 : 1;
constexpr bool per_feature = KIND == EXP || KIND == EXP_PAIR || KIND == LOGS;
constexpr int x_row = row_length<E, DB>();
constexpr int phi_row = row_length<E, FB>();

// cos (quarters = 1) or sin (0) of u: reduced by multiples of pi / 2 in three parts, then a polynomial on [-pi/4, pi/4]. One reduction
// does up to 48000, two up to 2^24 (1.5e-7 off); beyond, where floats stand radians apart, the result is only bounded.
__device__ __forceinline__ float sine(float u, int quarters) {
    float r = u;
    int quadrant = quarters;
    do {
        const float k = rintf(r * 0.636619772f);
        r = fmaf(k, -1.57079601287841797f, r);
        r = fmaf(k, -3.1391647326017846e-7f, r);
        r = fmaf(k, -5.390302529957765e-15f, r);
        quadrant += int(fmaf(-4.0f, floorf(0.25f * k), k));
    } while (fabsf(r) > 0.8f);
    const float s = r * r;
    const float odd = fmaf(r * s, fmaf(s, fmaf(s, -1.95152959e-4f, 8.33216087e-3f), -1.66666546e-1f), r);
    const float even = fmaf(s * s, fmaf(s, fmaf(s, 2.44331571e-5f, -1.38873162e-3f), 4.16666456e-2f), fmaf(s, -0.5f, 1.0f));
    const float y = quadrant & 1 ? even : odd;
    return quadrant & 2 ? -y : y;
}
__device__ __forceinline__ double sine(double u, int quarters) { return quarters ? cos(u) : sin(u); }

struct Map {
    const Acc* omega;                 // (D, d)
    const E* parts_of_omega;          // with SPLIT, two such matrices that add up to omega
    const Acc *row_weights, *offset;  // (d,) or null, (M,) or null
    Acc amplitude, log_amplitude;
    int frequencies, d;  // D and d; without a projection D = d

    __device__ __forceinline__ int tiles() const { return (frequencies + FB - 1) / FB * parts; }
    __device__ __forceinline__ int count() const { return frequencies * parts; }
    // The feature in slot i of a tile, or -1 past the last.
    __device__ __forceinline__ int feature(int tile, int i) const {
        const int frequency = tile / parts * FB + i;
        return frequency < frequencies ? tile % parts * frequencies + frequency : -1;
    }
    __device__ __forceinline__ Acc value(int part, Acc u, int feature) const {
        if (KIND == ELU1) return amplitude * (u > Acc(0) ? u + Acc(1) : exponential(u));
        if (KIND == RELU) return amplitude * (u > Acc(0) ? u : Acc(0));
        if (KIND == COS) return amplitude * sine(offset ? u + offset[feature] : u, 1);
        if (KIND == SINCOS) return amplitude * sine(u, 1 - part);
        return u;
    }
    // log phi of the families whose log scale is per feature; row is the row's own log scale.
    __device__ __forceinline__ Acc log(int part, Acc u, Acc row, int feature) const {
        if (KIND == LOGS) return u;
        return (part ? -u : u) + (offset ? offset[feature] : Acc(0)) + (row + log_amplitude);
    }
    // phi itself, the log scale multiplied in.
    __device__ __forceinline__ Acc whole(int part, Acc u, Acc row, int feature) const {
        if (per_feature) return exponential(log(part, u, row, feature));
        const Acc y = value(part, u, feature);
        return (KIND == COS || KIND == SINCOS) && row_weights ? y * exponential(row) : y;
    }
};

// Rows of omega as operands: rounding them costs nothing with SPLIT, where both parts are multiplied.
__device__ __forceinline__ void load_omega(E* high, E* low, const Map& map, int first, int d0) {
    const long long at = first * static_cast<long long>(map.d) + d0;
    if (SPLIT) {
        load_tile<FB, DB>(high, map.parts_of_omega + at, map.d, map.frequencies - first, map.d - d0);
        load_tile<FB, DB>(low, map.parts_of_omega + map.frequencies * static_cast<long long>(map.d) + at, map.d, map.frequencies - first, map.d - d0);
    } else {
        load_tile<FB, DB>(high, map.omega + at, map.d, map.frequencies - first, map.d - d0);
    }
}

struct MapTiles {
    E *x[2], *high, *low;
    __device__ __forceinline__ void carve(Carver& carver, int inputs) {
        if (!PROJECT) return;
        for (int i = 0; i < inputs; ++i) x[i] = carver.take<E>(C * x_row);
        high = carver.take<E>(FB * x_row);
        low = SPLIT ? carver.take<E>(FB * x_row) : high;
    }
};

// u = omega x for the FB frequencies from `first`, this warp's 16 rows of each input. A barrier before the tiles are overwritten.
template <int inputs>
__device__ __forceinline__ void project(Acc (&u)[inputs][FB / 8][4], const X* const (&x)[inputs], int rows, const Map& map, int first,
                                        bool fresh, const MapTiles& tiles) {
#pragma unroll
    for (int i = 0; i < inputs; ++i) clear(u[i]);
    if (PROJECT) {
        for (int d0 = 0; d0 < map.d; d0 += DB) {
            __syncthreads();
            if (fresh || map.d > DB)
#pragma unroll
                for (int i = 0; i < inputs; ++i) load_tile<C, DB>(tiles.x[i], x[i] + d0, map.d, rows, map.d - d0);
            load_omega(tiles.high, tiles.low, map, first, d0);
            __syncthreads();
#pragma unroll
            for (int i = 0; i < inputs; ++i) {
                const E* own = tiles.x[i] + warp_index() * 16 * x_row;
                product<FB, DB, false, true>(u[i], own, x_row, tiles.high, x_row);
                if (SPLIT) product<FB, DB, false, true>(u[i], own, x_row, tiles.low, x_row);
            }
        }
    } else {
        const int g = lane_index() / 4, t = lane_index() % 4, f = map.frequencies;
#pragma unroll
        for (int i = 0; i < inputs; ++i) {
            const bool pairs = f % 2 == 0 && reinterpret_cast<unsigned long long>(x[i]) % sizeof(Packet<X, 2>) == 0;
#pragma unroll
            for (int j = 0; j < FB / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const int row = warp_index() * 16 + g + r * 8, column = first + 8 * j + 2 * t;
                    if (row >= rows || column >= f) continue;
                    const X* const at = x[i] + row * static_cast<long long>(f) + column;
                    Packet<X, 2> packet{};
                    if (pairs) packet = *reinterpret_cast<const Packet<X, 2>*>(at);
                    else
#pragma unroll
                        for (int p = 0; p < 2; ++p)
                            if (column + p < f) packet.x[p] = at[p];
#pragma unroll
                    for (int p = 0; p < 2; ++p) u[i][j][2 * r + p] = Acc(widen(packet.x[p]));
                }
        }
    }
}

// The log scale of each of the block's C rows into log_row: sum_i w_i x_i^2, or the one given, or 0. A barrier must follow.
__device__ __forceinline__ void row_scales(Acc* log_row, const X* x, const Acc* given, int rows, const Map& map) {
    for (int r = 0; r < 16; ++r) {
        const int row = warp_index() * 16 + r;
        Acc sum = Acc(0);
        if (row < rows && map.row_weights)
            for (int i = lane_index(); i < map.d; i += 32) {
                const Acc xi = Acc(widen(x[row * static_cast<long long>(map.d) + i]));
                sum += map.row_weights[i] * xi * xi;
            }
        if (map.row_weights) sum = warp_sum(sum);
        if (lane_index() == 0) log_row[row] = row < rows && given ? given[row] : sum;
    }
}
