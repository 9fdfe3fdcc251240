// Summaries of keys and values. `summarise`: S, z and peaks of each slab of rows. `scan`: their running merge over the slabs.

// One tile of FB features, EB columns of v and one slab: blockIdx.x = (piece * tiles + tile) * e_blocks + e block, where a piece is an entry
// and one of its first `summarised` slabs, in reverse the last ones, piece = entry * summarised + slab: blocks that read the same rows run side by side.
// With segment numbers only the slab's last segment counts, in reverse the first. z sums features times h, or 1 where that is null. s (entries, slabs, M, e), z (.., M), peak (.., M) or (.., 1).
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
summarise(const X* k, const V* v, const Acc* k_scale, const Acc* h, const Acc* omega, const E* omega_parts, const Acc* row_weights, const Acc* offset, Acc amplitude,
          Acc log_amplitude, int frequencies, int d, const unsigned char* mask, const int* segments, Acc* s, Acc* z, Acc* peak,
          long long n, int e, int slabs, int summarised, long long slab_rows, int reverse) {
    constexpr int strips = FB / 16, groups = WARPS / strips, width = EB / groups;
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    Carver carver{shared_bytes};
    MapTiles tiles{};
    tiles.carve(carver, 1);
    E* values = carver.take<E>(C * v_row);
    E* phi = carver.take<E>(C * phi_row);
    Acc* log_row = carver.take<Acc>(C);
    int* visible = carver.take<int>(C);
    Acc* column_top = carver.take<Acc>(WARPS * FB);
    Acc* tile_unit = carver.take<Acc>(FB);
    Acc* tile_decay = carver.take<Acc>(FB);
    Acc* tile_z = carver.take<Acc>(FB);

    const int e_blocks = (e + EB - 1) / EB, column0 = blockIdx.x % e_blocks * EB, columns = min(EB, e - column0);
    const int tile = blockIdx.x / e_blocks % map.tiles(), piece = blockIdx.x / e_blocks / map.tiles(), slab = piece % summarised + (reverse ? slabs - summarised : 0);
    const long long entry = piece / summarised, state = entry * slabs + slab;
    const X* const keys = k + entry * n * d;
    long long row0 = slab * slab_rows, stop = min(n, row0 + slab_rows);
    if (segments) {
        const int* const ids = segments + entry * n;
        int same = 0;
        for (long long i = row0 + threadIdx.x; i < stop; i += blockDim.x) same += ids[i] == ids[reverse ? row0 : stop - 1];
        same = block_sum(same, reinterpret_cast<int*>(column_top));
        if (reverse) stop = row0 + same;
        else row0 = stop - same;
    }

    const int g = lane_index() / 4, t = lane_index() % 4, strip = warp_index() % strips, group = warp_index() / strips;
    Acc sum[width / 8][4];
    clear(sum);
    Acc unit = Limits<Acc>::lowest();  // of all rows, where the log scale is per row
    for (int i = threadIdx.x; i < FB; i += blockDim.x) tile_unit[i] = Limits<Acc>::lowest(), tile_z[i] = Acc(0);
    for (; row0 < stop; row0 += C) {
        const int rows = stop - row0 < C ? int(stop - row0) : C;
        row_scales(log_row, keys + row0 * d, k_scale ? k_scale + entry * n + row0 : nullptr, rows, map);
        load_visible(visible, mask ? mask + entry * n + row0 : nullptr, rows);
        __syncthreads();
        load_values(values, v + (entry * n + row0) * e + column0, rows, e, columns, visible);
        Acc u[1][FB / 8][4], logs[FB / 8][4];
        const X* const inputs[1] = {keys + row0 * d};
        project<0, 1>(u, inputs, rows, map, tile / parts * FB, true, tiles);
        Acc decay = Acc(1);
        if (per_feature) {
            log_features(logs, u[0], tile, map, log_row, visible, column_top);
            __syncthreads();
            for (int i = threadIdx.x; i < FB; i += blockDim.x) {
                const Acc before = tile_unit[i];
                tile_unit[i] = raised(before, column_top, i);
                tile_decay[i] = change(before, tile_unit[i]);
            }
            __syncthreads();
        } else {
            Acc top = unit;
            for (int i = 0; i < rows; ++i)
                if (visible[i]) top = larger(top, unit_of(log_row[i]));
            decay = change(unit, top);
            unit = top;
        }
        for_each_of_features([&](int j, int p, int row, int column) {
            const int feature = map.feature(tile, column);
            Acc y = Acc(0);
            if (per_feature) y = weight(logs[j][p], tile_unit[column]);
            else if (feature >= 0 && visible[row]) y = map.value(tile % parts, u[0][j][p], feature) * weight(log_row[row], unit);
            phi[row * phi_row + column] = narrow<E>(y);
        });
        __syncthreads();
#pragma unroll
        for (int j = 0; j < width / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) sum[j][p] *= per_feature ? tile_decay[strip * 16 + g + p / 2 * 8] : decay;
        product<width, C, true, false>(sum, phi + strip * 16, phi_row, values + group * width, v_row);
        column_sums<Acc>(FB, rows, phi_row, h ? h + entry * n + row0 : nullptr, [=](int i) { return phi + i; },
                         [&](int i, Acc total) { tile_z[i] = tile_z[i] * (per_feature ? tile_decay[i] : decay) + total; });
    }
    __syncthreads();

    const int features = map.count();
    const long long at = state * features;
#pragma unroll
    for (int j = 0; j < width / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const int feature = map.feature(tile, strip * 16 + g + p / 2 * 8), column = group * width + 8 * j + 2 * t + p % 2;
            if (feature >= 0 && column < columns) s[(at + feature) * e + column0 + column] = sum[j][p];
        }
    if (column0 == 0)
        for (int i = threadIdx.x; i < FB; i += blockDim.x) {
            const int feature = map.feature(tile, i);
            if (feature >= 0) {
                z[at + feature] = tile_z[i];
                if (per_feature) peak[at + feature] = log_of(tile_unit[i]);
            }
            if (!per_feature && tile == 0 && i == 0) peak[state] = log_of(unit);
        }
}

// A thread an element (feature, column), column e standing for z; `blocks` blocks an entry. With `prefixes` s and z become what each slab finds before
// it, and before gets its peaks: the last slab's own sums are not read. Else end gets the total. The slabs' own peaks are only read. In reverse
// the last slab comes first.
extern "C" __global__ void scan(Acc* s, Acc* z, const Acc* peak, Acc* before, const Acc* start_s, const Acc* start_z, const Acc* start_peak,
                                Acc* end_s, Acc* end_z, Acc* end_peak, const int* segments, long long n, int slabs, long long slab_rows,
                                int features, int e, int peaks, int prefixes, int blocks, int reverse) {
    const long long i = blockIdx.x % blocks * static_cast<long long>(blockDim.x) + threadIdx.x, entry = blockIdx.x / blocks;
    if (i >= features * static_cast<long long>(e + 1)) return;
    const int feature = int(i / (e + 1)), column = int(i % (e + 1)), lane = peaks == 1 ? 0 : feature;
    const bool is_z = column == e, keeps_peak = is_z && lane == feature;
    const long long row = entry * features + feature;
    Acc total = Acc(0), unit = Limits<Acc>::lowest();
    if (start_s) {
        const Acc start = start_peak[entry * peaks + lane];
        total = (is_z ? start_z[row] : start_s[row * e + column]) * rest_of_log(start);
        unit = unit_of_log(start);
    }
    for (int turn = 0; turn < slabs; ++turn) {
        const int slab = reverse ? slabs - 1 - turn : turn;
        const long long here = (entry * slabs + slab) * features + feature, peak_at = (entry * slabs + slab) * peaks + lane;
        Acc* const at = is_z ? z + here : s + here * e + column;
        const bool read = !prefixes || turn < slabs - 1;
        const Acc part = read ? *at : Acc(0), part_unit = read ? unit_of_log(peak[peak_at]) : Limits<Acc>::lowest();
        if (prefixes) {
            *at = total;
            if (keeps_peak) before[peak_at] = log_of(unit);
            if (!read) return;
        }
        if (segments) {
            const long long first = slab * slab_rows, last = min(n, first + slab_rows) - 1;
            const long long end = reverse ? first : last, neighbour = reverse ? min(n, last + 2) - 1 : max(0ll, first - 1);
            if (segments[entry * n + end] != segments[entry * n + neighbour]) total = Acc(0), unit = Limits<Acc>::lowest();
        }
        const Acc top = larger(unit, part_unit);
        total = total * change(unit, top) + part * change(part_unit, top);
        unit = top;
    }
    *(is_z ? end_z + row : end_s + row * e + column) = total;
    if (keeps_peak) end_peak[entry * peaks + lane] = log_of(unit);
}
