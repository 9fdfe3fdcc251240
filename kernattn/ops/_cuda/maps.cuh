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
    // The same, past the last that of the last; and does a tile hold none but features?
    __device__ __forceinline__ int feature_or_last(int tile, int i) const {
        return tile % parts * frequencies + min(tile / parts * FB + i, frequencies - 1);
    }
    __device__ __forceinline__ bool full(int tile) const { return (tile / parts + 1) * FB <= frequencies; }
    __device__ __forceinline__ Acc shift(int feature) const { return Nonlinearity::shifted && offset ? offset[feature] : Acc(0); }
    // Where the log scale is per row: phi but for that.
    __device__ __forceinline__ Acc shifted_value(int part, Acc u, Acc shift) const { return amplitude * Nonlinearity::value(part, u, shift); }
    __device__ __forceinline__ Acc value(int part, Acc u, int feature) const { return shifted_value(part, u, shift(feature)); }
    // Where it is per feature: log phi; row is the row's own log scale.
    __device__ __forceinline__ Acc shifted_log(int part, Acc u, Acc row, Acc shift) const {
        return Nonlinearity::log(part, u, shift) + (row + log_amplitude);
    }
    __device__ __forceinline__ Acc log(int part, Acc u, Acc row, int feature) const { return shifted_log(part, u, row, shift(feature)); }
    // What f, the cotangent of that value or of that log, adds to the cotangent of u.
    __device__ __forceinline__ Acc pull(int part, Acc u, int feature, Acc f) const {
        const Acc y = Nonlinearity::pull(part, u, shift(feature), f);
        return per_feature ? y : amplitude * y;
    }
    // phi itself, the log scale multiplied in.
    __device__ __forceinline__ Acc whole(int part, Acc u, Acc row, Acc shift) const {
        if (per_feature) return exponential(shifted_log(part, u, row, shift));
        const Acc y = shifted_value(part, u, shift);
        return Nonlinearity::scaled && row_weights ? y * exponential(row) : y;
    }
};

// Calls put(j, p, row, column) for the accumulators of a lane: element p of group j of a (16, FB) tile stands at that row and column.
template <class Put> __device__ __forceinline__ void for_each_of_features(Put put) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p) put(j, p, strip_index() * 16 + g + p / 2 * 8, 8 * j + 2 * t + p % 2);
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

// Fills the tiles of the inputs from `low` to before `high`, the columns from d0 on, and those of omega, for the FB frequencies from `first`. `fresh`:
// the inputs are not there yet. A barrier before the tiles are overwritten.
template <int low, int high, int inputs>
__device__ __forceinline__ void fill(const X* const (&x)[inputs], int rows, const Map& map, int first, int d0, bool fresh, const MapTiles& tiles) {
    __syncthreads();
    if (fresh || map.d > DB)
#pragma unroll
        for (int i = low; i < high; ++i) load_tile<C, DB>(tiles.x[i], x[i] + d0, map.d, rows, map.d - d0);
    load_omega(tiles.high, tiles.low, map, first, d0);
    __syncthreads();
}

// u += omega x for the warp's rows of an input's tile.
template <class T>
__device__ __forceinline__ void multiply(Acc (&u)[FB / 8][4], const T* x, const T* high, const T* low) {
    const T* const own = x + strip_index() * 16 * x_row;
    if constexpr (sizeof(T) == 2) {
#pragma unroll 2
        for (int k = 0; k < DB; k += 16) {
            unsigned left[4];
            load_left<false>(left, own, x_row, k);
            product_step<FB, true, 16>(u, left, high, x_row, k, FB);
            if (SPLIT) product_step<FB, true, 16>(u, left, low, x_row, k, FB);
        }
    } else {
        product<FB, DB, false, true>(u, own, x_row, high, x_row);
        if (SPLIT) product<FB, DB, false, true>(u, own, x_row, low, x_row);
    }
}

// Do all rows begin with a pair that can be loaded at once?
__device__ __forceinline__ bool paired(const X* x, int columns) {
    return columns % 2 == 0 && reinterpret_cast<unsigned long long>(x) % sizeof(Pair<X>) == 0;
}

// Without a projection: the pairs of a tile of columns, straight from the warp's rows, which are paired() or not; zeros outside the array.
__device__ __forceinline__ void load_pairs(Pair<X> (&to)[FB / 8][2], const X* x, bool pairs, int rows, const Map& map, int first) {
    const int row0 = strip_index() * 16 + lane_index() / 4, column0 = first + 2 * (lane_index() % 4), f = map.frequencies;
    const bool direct = pairs && first + FB <= f;
    const bool there[2] = {row0 < rows, row0 + 8 < rows};
    const X* const first_row = x + (row0 * static_cast<long long>(f) + column0);
    const X* const at[2] = {first_row, first_row + 8 * static_cast<long long>(f)};
    if (direct)
#pragma unroll
        for (int j = 0; j < FB / 8; ++j)
#pragma unroll
            for (int r = 0; r < 2; ++r) to[j][r] = there[r] ? pair_at(at[r] + 8 * j) : Pair<X>{};
    else
#pragma unroll
        for (int j = 0; j < FB / 8; ++j)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int last = f - 1 - column0 - 8 * j;  // of the columns from here on
                to[j][r] = Pairs<X>::join(there[r] && last >= 0 ? at[r][8 * j] : X{}, there[r] && last >= 1 ? at[r][8 * j + 1] : X{});
            }
}

template <int J>
__device__ __forceinline__ void widen_pairs(Acc (&u)[J][4], const Pair<X> (&from)[J][2]) {
#pragma unroll
    for (int j = 0; j < J; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) u[j][2 * r] = Acc(Pairs<X>::low(from[j][r])), u[j][2 * r + 1] = Acc(Pairs<X>::high(from[j][r]));
}

// u = omega x for the FB frequencies from `first`, this warp's 16 rows of the inputs from `low` to before `high`.
template <int low, int high, int inputs>
__device__ __forceinline__ void project(Acc (&u)[inputs][FB / 8][4], const X* const (&x)[inputs], int rows, const Map& map, int first,
                                        bool fresh, const MapTiles& tiles) {
    if (PROJECT) {
#pragma unroll
        for (int i = low; i < high; ++i) clear(u[i]);
        for (int d0 = 0; d0 < map.d; d0 += DB) {
            fill<low, high>(x, rows, map, first, d0, fresh, tiles);
#pragma unroll
            for (int i = low; i < high; ++i) multiply(u[i], tiles.x[i], tiles.high, tiles.low);
        }
    } else {
#pragma unroll
        for (int i = low; i < high; ++i) {
            Pair<X> rows_of[FB / 8][2];
            load_pairs(rows_of, x[i], paired(x[i], map.frequencies), rows, map, first);
            widen_pairs(u[i], rows_of);
        }
    }
}

// sum_i w_i (s x_i)^2 of a row, by four neighbouring lanes: `lane` of them; 0 where there is no row.
__device__ __forceinline__ Acc square_form(const X* x, bool there, int lane, Acc s, const Map& map) {
    constexpr int wide = 16 / int(sizeof(X));
    Acc sum = Acc(0);
    const auto add = [&](Acc w, Acc y) { sum += w * (s * y) * (s * y); };
    if (there && map.d % wide == 0 && reinterpret_cast<unsigned long long>(x) % 16 == 0) {
#pragma unroll 2
        for (int i = lane * wide; i < map.d; i += 4 * wide) {
            const Wide<X> packet = *reinterpret_cast<const Wide<X>*>(x + i);
            const auto weights = *reinterpret_cast<const Packet<Acc, wide>*>(map.row_weights + i);
            const Acc* w = weights.x;
            look_at_each(packet, [&](auto y) { add(*w++, Acc(y)); });
        }
    } else if (there) {
        for (int i = lane; i < map.d; i += 4) add(map.row_weights[i], Acc(widen(x[i])));
    }
    return row_sum(sum);
}

// sum_i w_i x_i^2, held where it is larger than logs may be: rows further out count alike. By a warp: four lanes have a row of their own, or all the
// same one.
__device__ __forceinline__ Acc row_scale(const X* x, const Map& map, bool there = true) {
    const int lane = lane_index() % 4;
    const Acc sum = square_form(x, there, lane, Acc(1), map), held = Limits<Acc>::held();
    if (__any_sync(all_lanes, !(fabs(sum) <= held))) {
        const Acc part = square_form(x, there, lane, Limits<Acc>::shrunk(), map);
        if (!(fabs(sum) <= held) && fabs(part) < held) return grown(part);  // else the row is not finite
    }
    return sum;
}

// The log scale of each of the block's C rows into log_row: the one given, or sum_i w_i x_i^2, or 0; each warp does as many rows. A barrier must follow.
__device__ __forceinline__ void row_scales(Acc* log_row, const X* x, const Acc* given, int rows, const Map& map) {
    constexpr int each = C / WARPS;
    static_assert(each % 8 == 0, "four lanes a row");
    const int first = warp_index() * each;
    if (!Nonlinearity::scaled || !map.row_weights || given) {
        const int row = first + lane_index();
        if (lane_index() < each) log_row[row] = given && row < rows ? given[row] : Acc(0);
        return;
    }
#pragma unroll 1
    for (int r = first; r < first + each; r += 8) {
        const int row = r + lane_index() / 4;
        const Acc own = row_scale(x + row * static_cast<long long>(map.d), map, row < rows);
        if (lane_index() % 4 == 0) log_row[row] = own;
    }
}

// ---- pairs of features ----------------------------------------------------------------------------------------------------------

// Where the log scale is per row: a tile of features but for that, a lane's two rows times `by`; zeros in padding.
__device__ __forceinline__ void feature_pairs(Pair<E> (&phi)[FB / 8][2], const Acc (&u)[FB / 8][4], int tile, const Map& map,
                                              const Acc (&by)[2] = {Acc(1), Acc(1)}) {
    const int t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < FB / 8; ++j) {
        const int column = 8 * j + 2 * t;
        const Acc shift[2] = {map.shift(map.feature_or_last(tile, column)), map.shift(map.feature_or_last(tile, column + 1))};
#pragma unroll
        for (int r = 0; r < 2; ++r)
            phi[j][r] = Pairs<E>::of(map.shifted_value(tile % parts, u[j][2 * r], shift[0]) * by[r],
                                     map.shifted_value(tile % parts, u[j][2 * r + 1], shift[1]) * by[r]);
    }
    if (map.full(tile)) return;
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int column = 8 * j + 2 * t;
            phi[j][r] = Pairs<E>::keep(phi[j][r], map.feature(tile, column) >= 0, map.feature(tile, column + 1) >= 0);
        }
}

// Nothing in the lane's rows that are not there.
__device__ __forceinline__ void hide(Pair<E> (&phi)[FB / 8][2], bool upper, bool lower) {
#pragma unroll
    for (int j = 0; j < FB / 8; ++j) {
        phi[j][0] = Pairs<E>::keep(phi[j][0], upper, upper);
        phi[j][1] = Pairs<E>::keep(phi[j][1], lower, lower);
    }
}

// Where it is per feature: the logarithms of a tile of features, those of a lane's two rows lifted by `row`, -infinity in padding.
__device__ __forceinline__ void feature_logs(Acc (&logs)[FB / 8][4], const Acc (&u)[FB / 8][4], int tile, const Map& map, const Acc (&row)[2]) {
    const int t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            const Acc shift = map.shift(map.feature_or_last(tile, 8 * j + 2 * t + p));
            logs[j][p] = map.shifted_log(tile % parts, u[j][p], row[0], shift);
            logs[j][2 + p] = map.shifted_log(tile % parts, u[j][2 + p], row[1], shift);
        }
    if (map.full(tile)) return;
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p)
            if (map.feature(tile, 8 * j + 2 * t + p % 2) < 0) logs[j][p] = Limits<Acc>::lowest();
}
