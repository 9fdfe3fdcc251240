// A is in registers, in the layout of store_pairs(): that of 16-bit operands. Others pass through the warp's rows of a tile.
template <int N, int K, class E, class A>
__device__ __forceinline__ void product_of_pairs(A (&c)[N / 8][4], const Pair<E> (&a)[K / 8][2], E* rows, int row_length, const E* b, int b_row) {
    if constexpr (sizeof(E) == 2) {
#pragma unroll
        for (int k = 0; k < K; k += 16) product_step<N, false, 16>(c, {a[k / 8][0], a[k / 8][1], a[k / 8 + 1][0], a[k / 8 + 1][1]}, b, b_row, k, N);
    } else {
        store_pairs(rows, row_length, a);
        __syncwarp();
        product<N, K, false, false>(c, rows, row_length, b, b_row);
    }
}

// Queries against a state: C rows and EB columns a block; blockIdx.x = entry * row tiles + row tile, blockIdx.y = e block.
// s (entries of keys, M, e), z (.., M), peak (.., M) or (.., 1). log_z, sign_z: null where normalisers are not wanted.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
attend(const X* q, const Acc* q_scale, const Acc* s, const Acc* z, const Acc* peak, V* out, Acc* log_z, Acc* sign_z, const Acc* omega, const E* omega_parts, const Acc* row_weights,
       const Acc* offset, Acc amplitude, Acc log_amplitude, int frequencies, int d, long long n, int e, int size0, int size1, int size2, int q0, int q1, int q2, int k0,
       int k1, int k2) {
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    Carver carver{shared_bytes};
    MapTiles tiles{};
    tiles.carve(carver, 1);
    E* weights = sizeof(E) == 2 ? nullptr : carver.take<E>(C * phi_row);
    E* state = carver.take<E>(FB * v_row);
    Acc* tile_unit = carver.take<Acc>(FB);
    Acc* tile_z = carver.take<Acc>(FB);
    Acc* query_log = carver.take<Acc>(C);

    const int row_tiles = int((n + C - 1) / C), entry = blockIdx.x / row_tiles, column0 = blockIdx.y * EB, columns = min(EB, e - column0);
    const long long row0 = blockIdx.x % row_tiles * static_cast<long long>(C);
    const int rows = n - row0 < C ? int(n - row0) : C, features = map.count();
    const long long keys = batch.keys(entry) * static_cast<long long>(features);
    const X* const inputs[1] = {q + (batch.queries(entry) * n + row0) * d};

    Output output;
    output.start();
    for (int block = 0; block < map.tiles() / parts; ++block) {
        Acc u[1][FB / 8][4];
        project<0, 1>(u, inputs, rows, map, block * FB, block == 0, tiles);
        for (int part = 0; part < parts; ++part) {
            const int tile = block * parts + part;
            __syncthreads();
            const int first = map.feature(tile, 0);
            load_tile<FB, EB>(state, s + (keys + first) * e + column0, e, map.frequencies - block * FB, columns);
            bool odd = false;
            for (int i = threadIdx.x; i < FB; i += blockDim.x) {
                const int feature = map.feature(tile, i);
                const bool own = feature >= 0 && per_feature;
                const Acc rest = own ? rest_of_log(peak[keys + feature]) : Acc(1);
                tile_z[i] = feature >= 0 ? z[keys + feature] * rest : Acc(0);
                tile_unit[i] = own ? unit_of_log(peak[keys + feature]) : Limits<Acc>::lowest();
                odd |= rest != Acc(1);
            }
            if (__syncthreads_or(odd)) {
                for (int i = threadIdx.x; i < FB * EB; i += blockDim.x) {
                    const int feature = map.feature(tile, i / EB);
                    E& x = state[i / EB * v_row + i % EB];
                    if (feature >= 0) x = narrow<E>(Acc(widen(x)) * rest_of_log(peak[keys + feature]));
                }
                __syncthreads();
            }
            Pair<E> phi[FB / 8][2];
            if (per_feature) {
                Acc logs[FB / 8][4], factor[2];
                feature_logs(logs, u[0], tile, map, {Acc(0), Acc(0)});
                raise_rows(output.unit, logs, tile_unit, factor);
                output.scale(factor);
                weight_pairs(phi, logs, tile_unit, Acc(1), output.unit);
            } else {
                feature_pairs(phi, u[0], tile, map);
            }
            add_normalisers(output, phi, tile_z);
            product_of_pairs<EB, FB>(output.num, phi, weights + strip_index() * 16 * phi_row, phi_row, state, v_row);
        }
    }
    output.den[0] = row_sum(output.den[0]);
    output.den[1] = row_sum(output.den[1]);
    if (log_z && column0 == 0) {
        row_scales(query_log, inputs[0], q_scale ? q_scale + batch.queries(entry) * n + row0 : nullptr, rows, map);
        __syncwarp();
        const Acc own = per_feature ? Acc(0) : peak[batch.keys(entry)];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = strip_index() * 16 + lane_index() / 4 + 8 * r;
            const long long to = entry * n + row0 + row;
            if (lane_index() % 4 == 0 && row < rows)
                write_normaliser(log_z + to, sign_z + to, output.den[r], per_feature ? output.unit[r] : Acc(0), query_log[row] + own);
        }
    }
    output.write(out + (entry * n + row0) * e + column0, rows, e, columns);
}
