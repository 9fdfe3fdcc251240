// Cotangents of the rows x (n, d) from those of their features, g (n, M): tiles of C rows blockIdx.x, blockIdx.x + gridDim.x, ... a block, and
// DB columns, blockIdx.y. dr (n,) or null: of the rows' log scales. d_omega (gridDim.x, D, d), d_offset (gridDim.x, M): sums of the blocks, or null.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
features_vjp(const X* x, const X* g, const Acc* x_scale, R* dx, Acc* dr, Acc* d_omega, Acc* d_offset, const Acc* omega, const E* omega_parts,
             const Acc* row_weights, const Acc* offset, Acc amplitude, Acc log_amplitude, int frequencies, int d, long long n) {
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    Carver carver{shared_bytes};
    MapTiles tiles{};
    tiles.carve(carver, 1);
    E* const room = carver.take<E>(C * phi_row);
    Acc* const log_row = carver.take<Acc>(C);
    Acc* const column_sum = carver.take<Acc>(WARPS * FB);

    const int d0 = blockIdx.y * DB, features = map.count();
    const Learnt learnt{d_omega ? d_omega + blockIdx.x * static_cast<long long>(frequencies) * d : nullptr,
                        d_offset && d0 == 0 ? d_offset + blockIdx.x * static_cast<long long>(features) : nullptr};
    for (long long row0 = blockIdx.x * static_cast<long long>(C); row0 < n; row0 += gridDim.x * static_cast<long long>(C)) {
        const int rows = n - row0 < C ? int(n - row0) : C;
        const X* const inputs[1] = {x + row0 * d};
        __syncwarp();
        row_scales(log_row, inputs[0], x_scale ? x_scale + row0 : nullptr, rows, map);
        __syncwarp();
        Pulled sums;
        sums.start();
        for (int block = 0; block < map.tiles() / parts; ++block) {
            Acc u[1][FB / 8][4], du[FB / 8][4];
            project<0, 1>(u, inputs, rows, map, block * FB, block == 0, tiles);
            clear(du);
            for (int part = 0; part < parts; ++part) {
                const int tile = block * parts + part;
                Acc f[FB / 8][4];
                for_each_of_features([&](int j, int p, int row, int column) {
                    const int feature = map.feature(tile, column);
                    f[j][p] = feature >= 0 && row < rows ? Acc(widen(g[(row0 + row) * features + feature])) : Acc(0);
                    if (f[j][p] == Acc(0)) return;
                    if (per_feature) f[j][p] *= exponential(map.log(part, u[0][j][p], log_row[row], feature));
                    else if (Nonlinearity::scaled) f[j][p] *= exponential(log_row[row]);
                });
                sums.take(du, f, u[0], tile, map);
                if (learnt.offset && per_feature) learnt.add_offset(f, column_sum, map, tile);
            }
            if (learnt.offset && !per_feature) learnt.add_offset(du, column_sum, map, block);
            sums.add(du, room, inputs[0], rows, nullptr, map, block, d0, tiles, learnt, dx + row0 * d);
        }
        sums.write(dx + row0 * d, dr ? dr + row0 : nullptr, inputs[0], rows, map, d0, Nonlinearity::scaled);
    }
}
