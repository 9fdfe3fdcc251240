// What the kernels of linear attention share: which keys a query's batch entry reads, feature tiles of keys, weights of queries.
// Compile-time, beside those of maps.cuh: VALUE (type of v and of the outputs), EB (columns of v a block holds).

using V = VALUE;
constexpr int v_row = row_length<E, EB>();
constexpr int score_row = row_length<E, C>();
constexpr int s_row = EB + 8;  // accumulators of a row of the state; 8 more keep the banks apart

// Leading axes merged into at most three: an entry of the outputs -> the entries of the queries and of the keys it comes from.
struct Batch {
    int size0, size1, size2, q0, q1, q2, k0, k1, k2;
    __device__ __forceinline__ int queries(int i) const { return i / (size1 * size2) * q0 + i / size2 % size1 * q1 + i % size2 * q2; }
    __device__ __forceinline__ int keys(int i) const { return i / (size1 * size2) * k0 + i / size2 % size1 * k1 + i % size2 * k2; }
    // The entries that share their keys, and number `member` of those with these keys.
    __device__ __forceinline__ int group() const { return (k0 ? 1 : size0) * (k1 ? 1 : size1) * (k2 ? 1 : size2); }
    __device__ __forceinline__ int entry(int keys, int member) const {
        const int i2 = k2 ? keys / k2 % size2 : member % size2;
        member = k2 ? member : member / size2;
        const int i1 = k1 ? keys / k1 % size1 : member % size1;
        member = k1 ? member : member / size1;
        return ((k0 ? keys / k0 % size0 : member) * size1 + i1) * size2 + i2;
    }
    // Of all the entries with the same keys, is this the first?
    __device__ __forceinline__ bool first(int i) const {
        return (k0 != 0 || i / (size1 * size2) == 0) && (k1 != 0 || i / size2 % size1 == 0) && (k2 != 0 || i % size2 == 0);
    }
};

// Are the rows' keys there? Also false past the last row.
__device__ __forceinline__ void load_visible(int* visible, const unsigned char* mask, int rows) {
    for (int i = threadIdx.x; i < C; i += blockDim.x) visible[i] = i < rows && (!mask || mask[i]);
}

__device__ __forceinline__ void load_values(E* tile, const V* v, int rows, int e, int columns, const int* visible) {
    for_each_of_tile(v, e, C, EB, rows, columns, [=](int row, int column, auto x) {
        tile[row * v_row + column] = narrow<E>(visible[row] ? Acc(x) : Acc(0));
    });
}

// Calls put(row, column, p) for the accumulators of a lane: element p of group j of a (16, FB) tile stands at that row and column.
template <class Put> __device__ __forceinline__ void for_each_of_features(Put put) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p) put(j, p, warp_index() * 16 + g + p / 2 * 8, 8 * j + 2 * t + p % 2);
}

// The log features of keys from their projections, -infinity where a key is not visible; each warp's largest of every column goes to
// column_top (WARPS, FB). A barrier must follow.
__device__ __forceinline__ void log_features(Acc (&logs)[FB / 8][4], const Acc (&u)[FB / 8][4], int tile,
                                             const Map& map, const Acc* log_row, const int* visible, Acc* column_top) {
    const Acc lowest = Limits<Acc>::lowest();
    Acc top[FB / 8][2];
#pragma unroll
    for (int j = 0; j < FB / 8; ++j) top[j][0] = top[j][1] = lowest;
    for_each_of_features([&](int j, int p, int row, int column) {
        const int feature = map.feature(tile, column);
        logs[j][p] = feature >= 0 && visible[row] ? map.log(tile % parts, u[j][p], log_row[row], feature) : lowest;
        top[j][p % 2] = larger(top[j][p % 2], logs[j][p]);
    });
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            const Acc x = column_max(top[j][p]);
            if (lane_index() < 4) column_top[warp_index() * FB + 8 * j + 2 * lane_index() + p] = x;
        }
}

// The outputs of a warp's 16 rows while they are summed: a lane has rows g and g + 8. Both sums are in units of exp(unit).
struct Output {
    Acc num[EB / 8][4], den[2], unit[2];

    __device__ __forceinline__ void start() {
        clear(num);
        den[0] = den[1] = Acc(0);
        unit[0] = unit[1] = Limits<Acc>::lowest();
    }
    __device__ __forceinline__ void scale(const Acc (&factor)[2]) {
#pragma unroll
        for (int j = 0; j < EB / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) num[j][p] *= factor[p / 2];
        den[0] *= factor[0];
        den[1] *= factor[1];
    }

    // The weights of a tile of features into `weights` (C, FB), and den += weights z. With a log scale per feature the unit is the
    // largest weight so far, and `factor` what everything summed before was multiplied by. peak and z are those of the tile's slots.
    __device__ __forceinline__ void weigh(E* weights, const Acc (&u)[FB / 8][4], int tile, const Map& map, const Acc* peak, const Acc* z, Acc (&factor)[2]) {
        Acc w[FB / 8][4];
        factor[0] = factor[1] = Acc(1);
        if (per_feature) {
            Acc top[2] = {unit[0], unit[1]};
            for_each_of_features([&](int j, int p, int row, int column) {
                const int feature = map.feature(tile, column);
                w[j][p] = feature >= 0 ? map.log(tile % parts, u[j][p], Acc(0), feature) + peak[column] : Limits<Acc>::lowest();
                top[p / 2] = larger(top[p / 2], w[j][p]);
            });
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                top[r] = row_max(top[r]);
                factor[r] = relative(unit[r], top[r]);
                unit[r] = top[r];
            }
            scale(factor);
        }
        for_each_of_features([&](int j, int p, int row, int column) {
            const int feature = map.feature(tile, column);
            const Acc y = per_feature ? relative(w[j][p], unit[p / 2]) : feature >= 0 ? map.value(tile % parts, u[j][p], feature) : Acc(0);
            const E rounded = narrow<E>(y);
            weights[row * phi_row + column] = rounded;
            den[p / 2] += Acc(widen(rounded)) * z[column];
        });
    }

    // num / den into the rows of out below `rows`; 0 where den is 0. den must be whole: summed over the row's lanes.
    __device__ __forceinline__ void write(V* out, int rows, int e, int columns) const {
        const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
        for (int j = 0; j < EB / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int row = warp_index() * 16 + g + p / 2 * 8, column = 8 * j + 2 * t + p % 2;
                const Acc y = den[p / 2] == Acc(0) ? Acc(0) : num[j][p] / den[p / 2];
                if (row < rows && column < columns) out[row * static_cast<long long>(e) + column] = narrow<V>(y);
            }
    }
};
