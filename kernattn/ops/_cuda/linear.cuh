// What the kernels of linear attention share: features of keys and weights of queries, a tile at a time.

constexpr int s_row = EB + 8;  // accumulators of a row of the state; 8 more keep the banks apart

// -infinity in the lane's rows that are not there.
__device__ __forceinline__ void hide(Acc (&logs)[FB / 8][4], bool upper, bool lower) {
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p)
            if (!(p < 2 ? upper : lower)) logs[j][p] = Limits<Acc>::lowest();
}

// The lane's logs of row r of its two, to their columns of a row.
__device__ __forceinline__ void copy_row(Acc* to, const Acc (&logs)[FB / 8][4], int r) {
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 2; ++p) to[8 * j + lane_index() % 4 * 2 + p] = logs[j][2 * r + p];
}

// The log features of keys from their projections, -infinity where a key is not visible; each strip's largest of every column goes to
// column_top (STRIPS, FB), NaN if one is, and those of row `first` to row_top (FB), unless null. A barrier must follow.
__device__ __forceinline__ void log_features(Acc (&logs)[FB / 8][4], const Acc (&u)[FB / 8][4], int tile, const Map& map,
                                             const Acc* log_row, const int* visible, Acc* column_top, Acc* row_top = nullptr, int first = 0) {
    const int own = strip_index() * 16 + lane_index() / 4;
    feature_logs(logs, u, tile, map, {log_row[own], log_row[own + 8]});
    hide(logs, visible[own], visible[own + 8]);
    column_top[strip_index() * FB + column_of_lane()] = column_max(logs);
    if (row_top && first == own) copy_row(row_top, logs, 0);
    if (row_top && first == own + 8) copy_row(row_top, logs, 1);
}

// The unit of a feature's sums once the keys of column_top are among them: +infinity from a NaN on, which keeps what follows NaN.
__device__ __forceinline__ Acc raised(Acc unit, const Acc* column_top, int column) {
    Acc top = Limits<Acc>::lowest();
    for (int strip = 0; strip < STRIPS; ++strip) top = larger_or_nan(top, column_top[strip * FB + column]);
    return top == top ? larger(unit, unit_of(top)) : -Limits<Acc>::lowest();
}

// The unit of each row's weights so far, raised to that of the largest in a tile; returns in `factor` what everything summed before is to be
// multiplied by. unit: that of the tile's slots.
__device__ __forceinline__ void raise_rows(Acc (&row_unit)[2], const Acc (&logs)[FB / 8][4], const Acc* unit, Acc (&factor)[2]) {
    Acc top[2] = {row_unit[0], row_unit[1]};
    for_each_of_features([&](int j, int p, int, int column) { top[p / 2] = larger(top[p / 2], octaves(logs[j][p]) + unit[column]); });
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        top[r] = row_max(top[r]);
        factor[r] = change(row_unit[r], top[r]);
        row_unit[r] = top[r];
    }
}

// exp(logs) in units of 2^(down - side unit): side = 1 for queries, which weigh what is in the units of slots, -1 for keys, that come into them.
__device__ __forceinline__ void weight_pairs(Pair<E> (&to)[FB / 8][2], const Acc (&logs)[FB / 8][4], const Acc* unit, Acc side, const Acc (&down)[2]) {
#pragma unroll
    for (int j = 0; j < FB / 8; ++j) {
        const auto slots = *reinterpret_cast<const Packet<Acc, 2>*>(unit + 8 * j + lane_index() % 4 * 2);
#pragma unroll
        for (int r = 0; r < 2; ++r)
            to[j][r] = Pairs<E>::of(weight(logs[j][2 * r], side * slots.x[0], down[r]), weight(logs[j][2 * r + 1], side * slots.x[1], down[r]));
    }
}

// sums.den += weights z, z being that of the tile's slots.
__device__ __forceinline__ void add_normalisers(Output& sums, const Pair<E> (&weights)[FB / 8][2], const Acc* z) {
#pragma unroll
    for (int j = 0; j < FB / 8; ++j) {
        const auto of = *reinterpret_cast<const Packet<Acc, 2>*>(z + 8 * j + lane_index() % 4 * 2);
#pragma unroll
        for (int r = 0; r < 2; ++r)
            sums.den[r] += Acc(Pairs<E>::low(weights[j][r])) * of.x[0] + Acc(Pairs<E>::high(weights[j][r])) * of.x[1];
    }
}
