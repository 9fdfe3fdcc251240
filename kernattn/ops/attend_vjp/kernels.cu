// Queries on the way back, a warp a row of the outputs: blockIdx.x * WARPS + warp of rows = entries * n. h = -g.o; scale, the log of what the
// features are multiplied by to be over |Z|, Z = z e^peak; mask, whether the row counts: it has a normaliser and a cotangent; signed_g (null: not wanted),
// g times the sign of Z. Whatever stands in a row that does not count, h is 0.
// Compile-time, beside those of output.cuh: OUTPUT, the type of outputs, which may not be rounded: g.v and g.o nearly cancel.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
ask(const X* q, const Acc* q_scale, const OUTPUT* out, const V* g, const Acc* peak, const Acc* z, Acc* scale, Acc* h, unsigned char* mask, V* signed_g,
    const Acc* omega, const E* omega_parts, const Acc* row_weights, const Acc* offset, Acc amplitude, Acc log_amplitude, int frequencies, int d,
    long long n, int e, long long rows, int size0, int size1, int size2, int q0, int q1, int q2, int k0, int k1, int k2) {
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    const long long row = blockIdx.x * static_cast<long long>(WARPS) + warp_index();
    if (row >= rows) return;
    const long long query = batch.queries(int(row / n)) * n + row % n;
    const Acc size = fabs(z[row]), sign = z[row] > Acc(0) ? Acc(1) : z[row] < Acc(0) ? Acc(-1) : z[row];
    Acc dot = Acc(0), any = Acc(0);
    for (int i = lane_index(); i < e; i += 32) {
        const Acc y = Acc(widen(g[row * e + i]));
        if (y != Acc(0)) any = Acc(1);
        dot += y * Acc(widen(out[row * e + i]));
        if (signed_g) signed_g[row * e + i] = narrow<V>(y * sign);
    }
    dot = warp_sum(dot);
    const bool counts = warp_max(any) > Acc(0) && sign != Acc(0);
    const Acc own = q_scale ? q_scale[query] : Nonlinearity::scaled && row_weights ? row_scale(q + query * d, map) : Acc(0);
    if (lane_index() > 0) return;
    scale[row] = counts ? own - peak[row] - log(size) : Acc(0);
    h[row] = counts ? -sign * dot : Acc(0);
    mask[row] = counts;
}
