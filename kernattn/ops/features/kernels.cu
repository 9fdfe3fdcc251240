// phi (n, M) of the rows x (n, d), a tile of C rows a block; the feature tiles are spread over gridDim.y. T is the type of x and phi.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
features(const X* x, X* phi, const Acc* omega, const Acc* row_weights, const Acc* offset, Acc amplitude, Acc log_amplitude,
         int frequencies, int d, long long n) {
    const Map map{omega, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    Carver carver{shared_bytes};
    MapTiles tiles;
    tiles.carve(carver, 1);
    Acc* log_row = carver.take<Acc>(C);
    X* out = carver.take<X>(C * row_length<X, FB>());

    const long long first_row = blockIdx.x * static_cast<long long>(C);
    const int rows = n - first_row < C ? int(n - first_row) : C;
    const X* const inputs[1] = {x + first_row * d};
    row_scales(log_row, inputs[0], nullptr, rows, map);
    __syncwarp();

    const int g = lane_index() / 4, t = lane_index() % 4, features = map.count();
    bool fresh = true;
    for (int block = blockIdx.y; block < map.tiles() / parts; block += gridDim.y) {
        Acc u[1][FB / 8][4];
        project(u, inputs, rows, map, block * FB, fresh, tiles);
        fresh = false;
        for (int part = 0; part < parts; ++part) {
            const int tile = block * parts + part;
#pragma unroll
            for (int j = 0; j < FB / 8; ++j)
#pragma unroll
                for (int p = 0; p < 4; ++p) {
                    const int row = warp_index() * 16 + g + p / 2 * 8, column = 8 * j + 2 * t + p % 2;
                    const int feature = map.feature(tile, column);
                    const Acc y = feature >= 0 ? map.whole(part, u[0][j][p], log_row[row], feature) : Acc(0);
                    out[row * row_length<X, FB>() + column] = narrow<X>(y);
                }
            __syncwarp();
            const int low = map.feature(tile, 0), width = min(FB, frequencies - block * FB);
            for (int i = lane_index(); i < 16 * FB; i += 32) {
                const int row = warp_index() * 16 + i / FB, column = i % FB;
                if (row < rows && column < width) phi[(first_row + row) * features + low + column] = out[row * row_length<X, FB>() + column];
            }
            __syncwarp();
        }
    }
}
