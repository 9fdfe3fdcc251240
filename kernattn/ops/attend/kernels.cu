// Queries against a state: C rows and EB columns a block; blockIdx.x = entry * row tiles + row tile, blockIdx.y = e block.
// s (entries of keys, M, e), z (.., M), peak (.., M), read only where the log scale is per feature.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
attend(const X* q, const Acc* s, const Acc* z, const Acc* peak, V* out, const Acc* omega, const E* omega_parts, const Acc* row_weights,
       const Acc* offset, Acc amplitude, Acc log_amplitude, int frequencies, int d, long long n, int e, int size0, int size1, int size2, int q0, int q1, int q2, int k0,
       int k1, int k2) {
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    Carver carver{shared_bytes};
    MapTiles tiles{};
    tiles.carve(carver, 1);
    E* weights = carver.take<E>(C * phi_row);
    E* state = carver.take<E>(FB * v_row);
    Acc* tile_peak = carver.take<Acc>(FB);
    Acc* tile_z = carver.take<Acc>(FB);

    const int row_tiles = int((n + C - 1) / C), entry = blockIdx.x / row_tiles, column0 = blockIdx.y * EB, columns = min(EB, e - column0);
    const long long row0 = blockIdx.x % row_tiles * static_cast<long long>(C);
    const int rows = n - row0 < C ? int(n - row0) : C, features = map.count();
    const long long keys = batch.keys(entry) * static_cast<long long>(features);
    const X* const inputs[1] = {q + (batch.queries(entry) * n + row0) * d};

    Output output;
    output.start();
    for (int block = 0; block < map.tiles() / parts; ++block) {
        Acc u[1][FB / 8][4];
        project(u, inputs, rows, map, block * FB, block == 0, tiles);
        for (int part = 0; part < parts; ++part) {
            const int tile = block * parts + part;
            __syncthreads();
            const int first = map.feature(tile, 0);
            load_tile<FB, EB>(state, s + (keys + first) * e + column0, e, map.frequencies - block * FB, columns);
            for (int i = threadIdx.x; i < FB; i += blockDim.x) {
                const int feature = map.feature(tile, i);
                tile_z[i] = feature >= 0 ? z[keys + feature] : Acc(0);
                tile_peak[i] = feature >= 0 && per_feature ? peak[keys + feature] : Limits<Acc>::lowest();
            }
            __syncthreads();
            Acc factor[2];
            weigh(output, weights, u[0], tile, map, tile_peak, tile_z, factor);
            __syncwarp();
            product<EB, FB, false, false>(output.num, weights + warp_index() * 16 * phi_row, phi_row, state, v_row);
        }
    }
    output.den[0] = row_sum(output.den[0]);
    output.den[1] = row_sum(output.den[1]);
    output.write(out + (entry * n + row0) * e + column0, rows, e, columns);
}
