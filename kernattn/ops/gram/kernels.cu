// phi^T phi and phi^T y, sums over the rows of x (batch, n, d) and y (batch, n, c), without writing phi. A block adds up one tile of FB
// features against one of FB features or columns of y: blockIdx.x = (entry * left tiles + left tile) * right tiles + right tile, the tiles
// of y after those of features. Of two tiles of features only one order is computed, and written twice.

// The features of one tile of C rows, zeros past the last row.
__device__ __forceinline__ void feature_tile(E* phi, const X* x, int rows, int tile, const Map& map, const Acc* log_row, bool fresh, const MapTiles& tiles) {
    Acc u[1][FB / 8][4];
    const X* const inputs[1] = {x};
    project(u, inputs, rows, map, tile / parts * FB, fresh, tiles);
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < FB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const int row = warp_index() * 16 + g + p / 2 * 8, column = 8 * j + 2 * t + p % 2, feature = map.feature(tile, column);
            phi[row * phi_row + column] =
                narrow<E>(row < rows && feature >= 0 ? map.whole(tile % parts, u[0][j][p], log_row[row], feature) : Acc(0));
        }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
gram(const X* x, const X* y, Acc* outer, Acc* moment, const Acc* omega, const Acc* row_weights, const Acc* offset, Acc amplitude,
     Acc log_amplitude, int frequencies, int d, long long n, int c) {
    constexpr int strips = FB / 16, groups = WARPS / strips, width = FB / groups;
    const Map map{omega, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    const int all = map.tiles(), right_tiles = all + (c + FB - 1) / FB, left = blockIdx.x / right_tiles % all, right = blockIdx.x % right_tiles;
    if (right < left) return;
    Carver carver{shared_bytes};
    MapTiles tiles{};
    tiles.carve(carver, 1);
    E* const first = carver.take<E>(C * phi_row);
    E* const second = carver.take<E>(C * phi_row);
    Acc* const log_row = carver.take<Acc>(C);

    const int g = lane_index() / 4, t = lane_index() % 4, strip = warp_index() % strips, group = warp_index() / strips;
    const int features = map.count(), column0 = (right - all) * FB;
    const long long entry = blockIdx.x / right_tiles / all;
    Acc sum[width / 8][4];
    clear(sum);
    for (long long row0 = 0; row0 < n; row0 += C) {
        const int rows = n - row0 < C ? int(n - row0) : C;
        const X* const at = x + (entry * n + row0) * d;
        __syncthreads();
        row_scales(log_row, at, nullptr, rows, map);
        __syncwarp();
        feature_tile(first, at, rows, left, map, log_row, true, tiles);
        if (right >= all)
            for_each_of_tile(y + (entry * n + row0) * c + column0, c, C, FB, rows, c - column0,
                             [=](int row, int column, auto value) { second[row * phi_row + column] = narrow<E>(value); });
        else if (right != left)
            feature_tile(second, at, rows, right, map, log_row, false, tiles);
        __syncthreads();
        product<width, C, true, false>(sum, first + strip * 16, phi_row, (right == left ? first : second) + group * width, phi_row);
    }
#pragma unroll
    for (int j = 0; j < width / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const int a = map.feature(left, strip * 16 + g + p / 2 * 8), i = group * width + 8 * j + 2 * t + p % 2;
            if (a < 0) continue;
            if (right >= all) {
                if (column0 + i < c) moment[(entry * features + a) * c + column0 + i] = sum[j][p];
            } else if (const int b = map.feature(right, i); b >= 0) {
                outer[(entry * features + a) * features + b] = sum[j][p];
                if (right != left) outer[(entry * features + b) * features + a] = sum[j][p];
            }
        }
}
