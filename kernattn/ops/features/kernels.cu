// phi (n, M) of the rows x (n, d), a tile of C rows a block; the feature tiles are spread over gridDim.y.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
features(const X* x, X* phi, const Acc* omega, const E* omega_parts, const Acc* row_weights, const Acc* offset, Acc amplitude, Acc log_amplitude,
         int frequencies, int d, long long n) {
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    Carver carver{shared_bytes};
    MapTiles tiles{};
    tiles.carve(carver, 1);
    Acc* log_row = carver.take<Acc>(C);
    X* out = carver.take<X>(C * row_length<X, FB>());

    const long long first_row = blockIdx.x * static_cast<long long>(C);
    const int rows = n - first_row < C ? int(n - first_row) : C;
    const X* const inputs[1] = {x + first_row * d};
    row_scales(log_row, inputs[0], nullptr, rows, map);
    __syncwarp();

    const int g = lane_index() / 4, t = lane_index() % 4, features = map.count();
    constexpr int wide = 16 / int(sizeof(X));
    const bool wholly = frequencies % wide == 0 && reinterpret_cast<unsigned long long>(phi) % 16 == 0;  // in packets
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
            const int width = min(FB, frequencies - block * FB);
            X* const to = phi + first_row * features + map.feature(tile, 0);
            const X* const own = out + warp_index() * 16 * row_length<X, FB>();
            const int own_rows = rows - warp_index() * 16;
            if (wholly) {
                for (int i = lane_index(); i < 16 * width / wide; i += 32) {
                    const int row = i / (width / wide), column = i % (width / wide) * wide;
                    if (row < own_rows)
                        *reinterpret_cast<Packet<X, wide>*>(to + (warp_index() * 16 + row) * static_cast<long long>(features) + column) =
                            *reinterpret_cast<const Packet<X, wide>*>(own + row * row_length<X, FB>() + column);
                }
            } else {
                for (int i = lane_index(); i < 16 * FB; i += 32) {
                    const int row = i / FB, column = i % FB;
                    if (row < own_rows && column < width)
                        to[(warp_index() * 16 + row) * static_cast<long long>(features) + column] = own[row * row_length<X, FB>() + column];
                }
            }
            __syncwarp();
        }
    }
}
