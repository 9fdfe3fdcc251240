// The way back through causal attention: a block walks along slabs of rows of back.cuh, forwards where its readers are the queries, backwards
// where they are the keys. A chunk ends with its segment, and before a token that writes far above what the chunk's first one reads.

static_assert(walks, "this kernel writes");

// The chunk's tokens are open: sets the units that they would have, and returns how many of them may share these, in the order of the walk.
__device__ __forceinline__ int shared_units(Back& b, long long row, int rows) {
    const Map& map = b.writers.map;
    const Tokens& tokens = b.writing;
    const int first = backwards ? rows - 1 : 0;
    int count = rows;
    if (!per_feature) {
        Acc top = tokens.seen[first] ? larger(b.row_unit, unit_of(tokens.log_row[first])) : b.row_unit;
        const Acc most = top + Limits<Acc>::rise();
        for (int turn = 1; turn < count; ++turn) {
            const int i = backwards ? rows - 1 - turn : turn;
            const Acc own = tokens.seen[i] ? unit_of(tokens.log_row[i]) : Limits<Acc>::lowest();
            if (own <= most) top = larger(top, own);
            else count = turn;
        }
        b.next_row_unit = top;
        return count;
    }
    const X* const inputs[2] = {b.readers.x + row * b.readers.map.d, b.writers.x + row * map.d};
    for (int block = 0; block < map.tiles() / parts; ++block) {
        Acc u[2][FB / 8][4], logs[FB / 8][4];
        project<1, 2>(u, inputs, rows, map, block * FB, block == 0, b.tiles);
        for (int part = 0; part < parts; ++part) {
            const int tile = block * parts + part;
            __syncthreads();
            log_features(logs, u[1], tile, map, tokens.log_row, tokens.seen, b.column_top, b.row_top, first);
            __syncthreads();
            for (int i = threadIdx.x; i < FB; i += blockDim.x) {
                const int feature = map.feature(tile, i);
                if (feature >= 0) b.next[feature] = raised(b.unit[feature], b.column_top, i);
            }
            for_each_of_features([&](int j, int p, int i, int column) {
                const int feature = map.feature(tile, column), turn = backwards ? rows - 1 - i : i;
                if (feature < 0 || turn <= 0 || turn >= count) return;
                const Acc log = b.row_top[column], unit = b.unit[feature];
                const Acc read = log == log ? larger(unit, unit_of(log)) : -Limits<Acc>::lowest();
                if (!(unit_of(logs[j][p]) <= read + Limits<Acc>::rise())) count = turn;
            });
        }
    }
    __syncthreads();
    return -block_max(-count, reinterpret_cast<int*>(b.column_top));
}

// Blocks share out entries * slabs pieces of work. q_scale, h, mask (n,) and g (n, e) of an entry of the outputs; k_scale (null: none), k_mask,
// segments and v of one of the keys. start: sums an entry of the writers, or with starts_by_slab one a slab of it; end: those of an entry of
// the outputs when its walk is done. dx, dr, d_omega, d_offset and read as in key_state_vjp; room: the sums of each block, or null.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
walk_back(const X* q, const X* k, const V* g, const V* v, const Acc* q_scale, const Acc* h, const unsigned char* q_mask, const Acc* k_scale,
          const unsigned char* k_mask, const int* segments, R* dx, Acc* dr, Acc* d_omega, Acc* d_offset, R* read, const Acc* q_omega,
          const E* q_omega_parts, const Acc* q_row_weights, const Acc* q_offset, Acc q_amplitude, Acc q_log_amplitude, int q_frequencies, int q_d,
          const Acc* k_omega, const E* k_omega_parts, const Acc* k_row_weights, const Acc* k_offset, Acc k_amplitude, Acc k_log_amplitude,
          int k_frequencies, int k_d, const Acc* start_s, const Acc* start_z, const Acc* start_peak, int starts_by_slab, Acc* end_s, Acc* end_z,
          Acc* end_peak, Acc* room, long long n, int e, int entries, int slabs, long long slab_rows, int size0, int size1, int size2, int q0,
          int q1, int q2, int k0, int k1, int k2) {
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    const Map q_map{q_omega, q_omega_parts, q_row_weights, q_offset, q_amplitude, q_log_amplitude, q_frequencies, q_d};
    const Map k_map{k_omega, k_omega_parts, k_row_weights, k_offset, k_amplitude, k_log_amplitude, k_frequencies, k_d};
    const long long features = k_map.count(), peaks = per_feature ? features : 1;
    Carver carver{shared_bytes};
    Back b{};
    b.carve(carver);
    Acc* const sums = room ? room + blockIdx.x * features * (e + 3) : carver.take<Acc>(int(features) * (e + 3));
    b.s = sums;
    b.z = sums + features * e;
    b.unit = b.z + features;
    b.next = b.unit + features;
    b.e = e;
    b.learnt = Learnt{d_omega ? d_omega + blockIdx.x * static_cast<long long>((keys_read ? k_map : q_map).frequencies) * (keys_read ? k_d : q_d) : nullptr,
                      d_offset ? d_offset + blockIdx.x * features : nullptr};
    const auto clear_sums = [&] {
        __syncthreads();
        for (long long i = threadIdx.x; i < features * (e + 1); i += blockDim.x) sums[i] = Acc(0);
        for (int i = threadIdx.x; i < features; i += blockDim.x) b.unit[i] = Limits<Acc>::lowest();
        b.row_unit = Limits<Acc>::lowest();
        __syncthreads();
    };
    for (int work = blockIdx.x; work < entries * slabs; work += gridDim.x) {
        const int entry = work / slabs, slab = work % slabs, keys = batch.keys(entry);
        const long long out = entry * n, of_keys = keys * n;
        const Side asking{q_map, q + batch.queries(entry) * n * q_d, g + out * e, q_scale + out, h + out, q_mask + out};
        const Side seen{k_map, k + of_keys * k_d, v + of_keys * e, k_scale ? k_scale + of_keys : nullptr, nullptr, k_mask ? k_mask + of_keys : nullptr};
        b.readers = keys_read ? seen : asking;
        b.writers = keys_read ? asking : seen;
        b.dx = dx + out * b.readers.map.d;
        b.dr = dr ? dr + out : nullptr;
        b.read = read ? read + out * e : nullptr;
        const int* const ids = segments ? segments + of_keys : nullptr;
        clear_sums();
        if (start_s) {
            const long long from = starts_by_slab ? (keys_read ? entry : keys) * static_cast<long long>(slabs) + slab : keys_read ? entry : keys;
            const auto rest = [&](int feature) { return rest_of_log(start_peak[from * peaks + (per_feature ? feature : 0)]); };
            for (long long i = threadIdx.x; i < features * e; i += blockDim.x) b.s[i] = start_s[from * features * e + i] * rest(int(i / e));
            for (int i = threadIdx.x; i < features; i += blockDim.x) {
                b.z[i] = start_z[from * features + i] * rest(i);
                b.unit[i] = unit_of_log(start_peak[from * peaks + (per_feature ? i : 0)]);
            }
            b.row_unit = unit_of_log(start_peak[from * peaks]);
        }
        for (long long low = slab * slab_rows, high = min(n, low + slab_rows); low < high;) {
            int rows = high - low < C ? int(high - low) : C;
            if (ids) {
                const long long first = backwards ? high - 1 : low, before = backwards ? min(n - 1, high) : max(0ll, low - 1);
                if (ids[first] != ids[before]) clear_sums();
                rows = __syncthreads_count(int(threadIdx.x) < rows && ids[backwards ? first - threadIdx.x : first + threadIdx.x] == ids[first]);
            }
            for (int count = 0;; rows = count) {
                b.open(backwards ? high - rows : low, rows);
                count = shared_units(b, backwards ? high - rows : low, rows);
                if (count == rows) break;
            }
            b.chunk(backwards ? high - rows : low, rows);
            __syncthreads();
            if (per_feature)
                for (int i = threadIdx.x; i < features; i += blockDim.x) b.unit[i] = b.next[i];
            b.row_unit = b.next_row_unit;
            if (backwards) high -= rows;
            else low += rows;
        }
        __syncthreads();
        if (end_s && slab == (backwards ? 0 : slabs - 1)) {
            for (long long i = threadIdx.x; i < features * e; i += blockDim.x) end_s[entry * features * e + i] = b.s[i];
            for (int i = threadIdx.x; i < features; i += blockDim.x) {
                end_z[entry * features + i] = b.z[i];
                if (i < peaks) end_peak[entry * peaks + i] = log_of(per_feature ? b.unit[i] : b.row_unit);
            }
        }
    }
}
