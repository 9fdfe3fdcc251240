// Feature maps inside a kernel. Compile-time, beside those of types.cuh and kinds.cuh: PROJECT, FB, DB.
//
// Features are made a tile at a time: tile b = block * parts + part holds the features part * D + block * FB + (0 .. FB - 1).
// A block of FB frequencies serves both parts of a pair ([cos, sin] or exp of [u, -u]).

constexpr int x_row = row_length<E, DB>();
constexpr int phi_row = row_length<E, FB>();

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
    __device__ __forceinline__ Acc shift(int feature) const { return offset ? offset[feature] : Acc(0); }
    // Where the log scale is per row: phi but for that.
    __device__ __forceinline__ Acc value(int part, Acc u, int feature) const { return amplitude * Nonlinearity::value(part, u, shift(feature)); }
    // Where it is per feature: log phi; row is the row's own log scale.
    __device__ __forceinline__ Acc log(int part, Acc u, Acc row, int feature) const {
        return Nonlinearity::log(part, u, shift(feature)) + (row + log_amplitude);
    }
    // What f, the cotangent of that value or of that log, adds to the cotangent of u.
    __device__ __forceinline__ Acc pull(int part, Acc u, int feature, Acc f) const {
        const Acc y = Nonlinearity::pull(part, u, shift(feature), f);
        return per_feature ? y : amplitude * y;
    }
    // phi itself, the log scale multiplied in.
    __device__ __forceinline__ Acc whole(int part, Acc u, Acc row, int feature) const {
        if (per_feature) return exponential(log(part, u, row, feature));
        const Acc y = value(part, u, feature);
        return Nonlinearity::scaled && row_weights ? y * exponential(row) : y;
    }
};

// Calls put(j, p, row, column) for the accumulators of a lane: element p of group j of a (16, FB) tile stands at that row and column.
template <class Put> __device__ __forceinline__ void for_each_of_features(Put put) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p) put(j, p, warp_index() * 16 + g + p / 2 * 8, 8 * j + 2 * t + p % 2);
}

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

// u = omega x for the FB frequencies from `first`, this warp's 16 rows of the inputs from `low` to before `high`. A barrier before the
// tiles are overwritten.
template <int low, int high, int inputs>
__device__ __forceinline__ void project(Acc (&u)[inputs][FB / 8][4], const X* const (&x)[inputs], int rows, const Map& map, int first,
                                        bool fresh, const MapTiles& tiles) {
#pragma unroll
    for (int i = low; i < high; ++i) clear(u[i]);
    if (PROJECT) {
        for (int d0 = 0; d0 < map.d; d0 += DB) {
            __syncthreads();
            if (fresh || map.d > DB)
#pragma unroll
                for (int i = low; i < high; ++i) load_tile<C, DB>(tiles.x[i], x[i] + d0, map.d, rows, map.d - d0);
            load_omega(tiles.high, tiles.low, map, first, d0);
            __syncthreads();
#pragma unroll
            for (int i = low; i < high; ++i) {
                const E* own = tiles.x[i] + warp_index() * 16 * x_row;
                product<FB, DB, false, true>(u[i], own, x_row, tiles.high, x_row);
                if (SPLIT) product<FB, DB, false, true>(u[i], own, x_row, tiles.low, x_row);
            }
        }
    } else {
        const int g = lane_index() / 4, t = lane_index() % 4, f = map.frequencies;
#pragma unroll
        for (int i = low; i < high; ++i) {
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

// sum_i w_i (s x_i)^2 of a row, by a warp.
__device__ __forceinline__ Acc square_form(const X* x, Acc s, const Map& map) {
    Acc sum = Acc(0);
    for (int i = lane_index(); i < map.d; i += 32) {
        const Acc xi = s * Acc(widen(x[i]));
        sum += map.row_weights[i] * xi * xi;
    }
    return warp_sum(sum);
}

// sum_i w_i x_i^2, held where it is larger than logs may be: rows further out count alike.
__device__ __forceinline__ Acc row_scale(const X* x, const Map& map) {
    const Acc sum = square_form(x, Acc(1), map), held = Limits<Acc>::held();
    if (fabs(sum) <= held) return sum;
    const Acc part = square_form(x, Limits<Acc>::shrunk(), map);
    return fabs(part) < held ? grown(part) : sum;  // or the row is not finite
}

// The log scale of each of the block's C rows into log_row: the one given, or sum_i w_i x_i^2, or 0. A barrier must follow.
__device__ __forceinline__ void row_scales(Acc* log_row, const X* x, const Acc* given, int rows, const Map& map) {
    const bool summed = Nonlinearity::scaled && map.row_weights && !given;
    for (int r = 0; r < 16; ++r) {
        const int row = warp_index() * 16 + r;
        const Acc own = row < rows && summed ? row_scale(x + row * static_cast<long long>(map.d), map) : Acc(0);
        if (lane_index() == 0) log_row[row] = row < rows && given ? given[row] : own;
    }
}
