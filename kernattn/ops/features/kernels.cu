// phi (n, M) of the rows x (n, d), a tile of C rows a block; the feature tiles are spread over gridDim.y.
extern "C" __global__ void __launch_bounds__(32 * WARPS, PROJECT ? 4 : 8)
features(const X* x, X* phi, const Acc* omega, const E* omega_parts, const Acc* row_weights, const Acc* offset, Acc amplitude, Acc log_amplitude,
         int frequencies, int d, long long n) {
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    const long long row0 = blockIdx.x * static_cast<long long>(C);
    const int rows = n - row0 < C ? int(n - row0) : C, features = map.count();
    write_features<X>(x + row0 * d, rows, map, blockIdx.y, gridDim.y, [=](int tile) {
        return Place<X>{phi + row0 * features + map.feature(tile, 0), features, min(FB, frequencies - tile / parts * FB)};
    });
}
