// Readers x (n, d) of sums s (M, e), z (M,), peak (M,) or (1,): tiles of C rows blockIdx.x, blockIdx.x + gridDim.x, ... of all entries a block.
// v (n, e), scale, h, mask (n,) of an entry of the readers, or null; x of that which batch.queries tells, sums of that of batch.keys. dx and dr as
// in features_vjp; read (n, e) or null, where the readers are no keys.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
read_back(const X* x, const V* v, const Acc* scale, const Acc* h, const unsigned char* mask, Acc* s, Acc* z, const Acc* peak, R* dx, Acc* dr, Acc* d_omega,
          Acc* d_offset, R* read, const Acc* omega, const E* omega_parts, const Acc* row_weights, const Acc* offset, Acc amplitude, Acc log_amplitude,
          int frequencies, int d, long long n, int e, int entries, int size0, int size1, int size2, int q0, int q1, int q2, int k0, int k1, int k2) {
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    const long long features = map.count(), peaks = per_feature ? features : 1, row_tiles = (n + C - 1) / C;
    Carver carver{shared_bytes};
    Back back{};
    back.carve(carver);
    back.e = e;
    back.learnt = Learnt{d_omega ? d_omega + blockIdx.x * static_cast<long long>(frequencies) * d : nullptr, d_offset ? d_offset + blockIdx.x * features : nullptr};
    for (long long work = blockIdx.x; work < entries * row_tiles; work += gridDim.x) {
        const int entry = int(work / row_tiles);
        const long long first = entry * n, keys = batch.keys(entry), row0 = work % row_tiles * C;
        const int rows = n - row0 < C ? int(n - row0) : C;
        back.readers = Side{map, x + batch.queries(entry) * n * d, v + first * e, scale ? scale + first : nullptr, h ? h + first : nullptr, mask ? mask + first : nullptr};
        back.s = s + keys * features * e;
        back.z = z + keys * features;
        back.peak = peak + keys * peaks;
        back.dx = dx + first * d;
        back.dr = dr ? dr + first : nullptr;
        back.read = read ? read + first * e : nullptr;
        back.open(row0, rows);
        back.chunk(row0, rows);
    }
}
