// What the kernels of linear attention share: features of keys and weights of queries, a tile at a time.

constexpr int s_row = EB + 8;  // accumulators of a row of the state; 8 more keep the banks apart

// The log features of keys from their projections, -infinity where a key is not visible; each warp's largest of every column goes to
// column_top (WARPS, FB), NaN if one is, and those of row `first` to row_top (FB), unless null. A barrier must follow.
__device__ __forceinline__ void log_features(Acc (&logs)[FB / 8][4], const Acc (&u)[FB / 8][4], int tile, const Map& map,
                                             const Acc* log_row, const int* visible, Acc* column_top, Acc* row_top = nullptr, int first = 0) {
    const Acc lowest = Limits<Acc>::lowest();
    Acc top[FB / 8][2];
#pragma unroll
    for (int j = 0; j < FB / 8; ++j) top[j][0] = top[j][1] = lowest;
    for_each_of_features([&](int j, int p, int row, int column) {
        const int feature = map.feature(tile, column);
        logs[j][p] = feature >= 0 && visible[row] ? map.log(tile % parts, u[j][p], log_row[row], feature) : lowest;
        top[j][p % 2] = larger_or_nan(top[j][p % 2], logs[j][p]);
        if (row_top && row == first) row_top[column] = logs[j][p];
    });
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            const Acc x = column_max(top[j][p]);
            if (lane_index() < 4) column_top[warp_index() * FB + 8 * j + 2 * lane_index() + p] = x;
        }
}

// The unit of a feature's sums once the keys of column_top are among them: +infinity from a NaN on, which keeps what follows NaN.
__device__ __forceinline__ Acc raised(Acc unit, const Acc* column_top, int column) {
    Acc top = Limits<Acc>::lowest();
    for (int w = 0; w < WARPS; ++w) top = larger_or_nan(top, column_top[w * FB + column]);
    return top == top ? larger(unit, unit_of(top)) : -Limits<Acc>::lowest();
}

// The weights of a tile of features into `weights` (C, FB), and sums.den += weights z. With a log scale per feature the unit is that of
// the largest weight so far, and `factor` what everything summed before was multiplied by. unit and z are those of the tile's slots.
__device__ __forceinline__ void weigh(Output& sums, E* weights, const Acc (&u)[FB / 8][4], int tile, const Map& map, const Acc* unit,
                                      const Acc* z, Acc (&factor)[2]) {
    Acc w[FB / 8][4];
    factor[0] = factor[1] = Acc(1);
    if (per_feature) {
        Acc top[2] = {sums.unit[0], sums.unit[1]};
        for_each_of_features([&](int j, int p, int row, int column) {
            const int feature = map.feature(tile, column);
            w[j][p] = feature >= 0 ? map.log(tile % parts, u[j][p], Acc(0), feature) : Limits<Acc>::lowest();
            top[p / 2] = larger(top[p / 2], octaves(w[j][p]) + unit[column]);
        });
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            top[r] = row_max(top[r]);
            factor[r] = change(sums.unit[r], top[r]);
            sums.unit[r] = top[r];
        }
        sums.scale(factor);
    }
    for_each_of_features([&](int j, int p, int row, int column) {
        const int feature = map.feature(tile, column);
        const Acc y = per_feature ? weight(w[j][p], unit[column], sums.unit[p / 2]) : feature >= 0 ? map.value(tile % parts, u[j][p], feature) : Acc(0);
        const E rounded = narrow<E>(y);
        weights[row * phi_row + column] = rounded;
        sums.den[p / 2] += Acc(widen(rounded)) * z[column];
    });
}
