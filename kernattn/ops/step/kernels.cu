// One token. `prepare` makes all that is a vector: features, peaks, z, weights; `stream` passes once over the state.

// A block an entry of the keys. decay, fresh (entries of keys, M): S <- decay S + fresh v; weights (entries, M), den (entries):
// out = weights S / den. z and peak may be written over themselves.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 4)
prepare(const X* q, const X* k, const Acc* k_scale, const Acc* q_omega, const E* q_omega_parts, const Acc* q_row_weights, const Acc* q_offset,
        Acc q_amplitude, Acc q_log_amplitude, int q_frequencies, int q_d, const Acc* k_omega, const E* k_omega_parts, const Acc* k_row_weights,
        const Acc* k_offset, Acc k_amplitude, Acc k_log_amplitude, int k_frequencies, int k_d, const unsigned char* mask, const Acc* z,
        const Acc* peak, Acc* z_after, Acc* peak_after, Acc* decay, Acc* fresh, Acc* weights, Acc* den, int size0, int size1, int size2, int q0,
        int q1, int q2, int k0, int k1, int k2) {
    const Map q_map{q_omega, q_omega_parts, q_row_weights, q_offset, q_amplitude, q_log_amplitude, q_frequencies, q_d};
    const Map k_map{k_omega, k_omega_parts, k_row_weights, k_offset, k_amplitude, k_log_amplitude, k_frequencies, k_d};
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    Acc* const room = reinterpret_cast<Acc*>(shared_bytes);
    const int keys = blockIdx.x, features = k_map.count(), frequencies = k_map.frequencies, lane = lane_index(), group = batch.group();
    const bool visible = !mask || mask[keys];
    const long long at = keys * static_cast<long long>(features);
    const X* const key = k + keys * static_cast<long long>(k_d);

    Acc row_log = Acc(0);
    if (k_scale) {
        row_log = k_scale[keys];
    } else if (Nonlinearity::scaled && k_row_weights) {
        row_log = row_scale(key, k_map);
    }
    // Where the log scale is per row
    const Acc old_peak = per_feature ? Acc(0) : peak[keys], old_unit = unit_of_log(old_peak);
    const Acc unit = per_feature || !visible ? old_unit : larger(old_unit, unit_of(row_log));

    // member -1 stands for the key
    for (int member = -1; member < group; ++member) {
        const int entry = member < 0 ? 0 : batch.entry(keys, member);
        const Map& map = member < 0 ? k_map : q_map;
        const X* const x = member < 0 ? key : q + batch.queries(entry) * static_cast<long long>(q_d);
        const long long to = entry * static_cast<long long>(features);
        Acc top = Limits<Acc>::lowest();
        for (int first = warp_index() * 32; first < frequencies; first += 32 * WARPS) {
            Acc u = Acc(0);
            if (PROJECT) {
                for (int i = 0; i < 32 && first + i < frequencies; ++i) {
                    const Acc* const w = map.omega + (first + i) * static_cast<long long>(map.d);
                    Acc sum = Acc(0);
                    for (int j = lane; j < map.d; j += 32) sum += w[j] * Acc(widen(x[j]));
                    sum = warp_sum(sum);
                    if (lane == i) u = sum;
                }
            } else if (first + lane < frequencies) {
                u = Acc(widen(x[first + lane]));
            }
            if (first + lane >= frequencies) continue;
            for (int part = 0; part < parts; ++part) {
                const int feature = part * frequencies + first + lane;
                if (member < 0) {
                    Acc fade, add;
                    if (per_feature) {
                        const Acc log = visible ? map.log(part, u, row_log, feature) : Limits<Acc>::lowest();
                        const Acc old = peak[at + feature], before = unit_of_log(old), after = larger(before, unit_of(log));
                        fade = change(before, after) * rest_of_log(old);
                        add = weight(log, after);
                        peak_after[at + feature] = log_of(after);
                    } else {
                        fade = change(old_unit, unit) * rest_of_log(old_peak);
                        add = visible ? map.value(part, u, feature) * weight(row_log, unit) : Acc(0);
                    }
                    decay[at + feature] = fade;
                    fresh[at + feature] = add;
                    z_after[at + feature] = z[at + feature] * fade + add;
                } else {
                    const Acc w = per_feature ? map.log(part, u, Acc(0), feature) : map.value(part, u, feature);
                    weights[to + feature] = w;
                    if (per_feature) top = larger(top, octaves(w) + unit_of_log(peak_after[at + feature]));
                }
            }
        }
        __syncthreads();
        if (member < 0) continue;
        if (per_feature) {
            top = block_max(top, room);
            __syncthreads();
        }
        Acc sum = Acc(0);
        for (int i = threadIdx.x; i < features; i += blockDim.x) {
            const Acc w = per_feature ? weight(weights[to + i], unit_of_log(peak_after[at + i]), top) : weights[to + i];
            weights[to + i] = w;
            sum += w * z_after[at + i];
        }
        sum = block_sum(sum, room);
        if (threadIdx.x == 0) den[entry] = sum;
    }
    if (!per_feature && threadIdx.x == 0) peak_after[keys] = log_of(unit);
}

constexpr int stream_columns = 32;

// `wide` columns a thread: S of one entry of the keys and stream_columns columns, a row of the state for every 32 / wide threads.
template <int wide>
__device__ __forceinline__ void stream_state(const Acc* s, Acc* s_after, const V* v, V* out, const Acc* decay, const Acc* fresh,
                                             const Acc* weights, const Acc* den, int features, int e, const Batch& batch, bool visible) {
    struct __align__(wide * sizeof(Acc)) Packet { Acc x[wide]; };
    constexpr int across = stream_columns / wide;
    Acc* const room = reinterpret_cast<Acc*>(shared_bytes);  // (rows, stream_columns)
    const int keys = blockIdx.x, column0 = blockIdx.y * stream_columns, lane = threadIdx.x % across, row0 = threadIdx.x / across;
    const int rows = blockDim.x / across, column = column0 + lane * wide, group = batch.group();
    const long long at = keys * static_cast<long long>(features);
    const bool there = column < e;
    Acc value[wide];
#pragma unroll
    for (int i = 0; i < wide; ++i) value[i] = there && visible ? Acc(widen(v[keys * static_cast<long long>(e) + column + i])) : Acc(0);
    for (int member = 0; member < group; ++member) {
        const int entry = batch.entry(keys, member);
        const Acc* const w = weights + entry * static_cast<long long>(features);
        Acc sum[wide];
#pragma unroll
        for (int i = 0; i < wide; ++i) sum[i] = Acc(0);
        if (there)
#pragma unroll 4
            for (int a = row0; a < features; a += rows) {
                Packet x;
                if (member == 0) {
                    x = *reinterpret_cast<const Packet*>(s + (at + a) * e + column);
#pragma unroll
                    for (int i = 0; i < wide; ++i) x.x[i] = x.x[i] * decay[at + a] + fresh[at + a] * value[i];
                    *reinterpret_cast<Packet*>(s_after + (at + a) * e + column) = x;
                } else {
                    x = *reinterpret_cast<const Packet*>(s_after + (at + a) * e + column);
                }
#pragma unroll
                for (int i = 0; i < wide; ++i) sum[i] += w[a] * x.x[i];
            }
#pragma unroll
        for (int i = 0; i < wide; ++i) room[row0 * stream_columns + lane * wide + i] = sum[i];
        __syncthreads();
        for (int c = threadIdx.x; c < stream_columns && column0 + c < e; c += blockDim.x) {
            Acc num = Acc(0);
            for (int r = 0; r < rows; ++r) num += room[r * stream_columns + c];
            const Acc whole = den[entry];
            out[entry * static_cast<long long>(e) + column0 + c] = narrow<V>(whole == Acc(0) ? Acc(0) : num / whole);
        }
        __syncthreads();
    }
}

// blockIdx.x = entry of the keys, blockIdx.y = block of columns. s may be written over itself.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
stream(const Acc* s, Acc* s_after, const V* v, V* out, const Acc* decay, const Acc* fresh, const Acc* weights, const Acc* den,
       const unsigned char* mask, int features, int e, int size0, int size1, int size2, int q0, int q1, int q2, int k0, int k1, int k2) {
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    const bool visible = !mask || mask[blockIdx.x];
    constexpr int widest = 16 / int(sizeof(Acc));
    const bool aligned = (reinterpret_cast<unsigned long long>(s) | reinterpret_cast<unsigned long long>(s_after)) % 16 == 0;
    if (e % widest == 0 && aligned) stream_state<widest>(s, s_after, v, out, decay, fresh, weights, den, features, e, batch, visible);
    else stream_state<1>(s, s_after, v, out, decay, fresh, weights, den, features, e, batch, visible);
}
