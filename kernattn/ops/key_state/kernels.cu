// Summaries of keys and values. `summarise`: S, z and peaks of each slab of rows. `scan`: their running merge over the slabs.

// Compile-time, beside those of types.cuh, maps.cuh and output.cuh: HELD, how many strips of 16 slots, features or padding, each warp sums;
// SCALED, whether rows come with log scales of their own, as on the way back, whatever the map.
constexpr bool scales = Nonlinearity::scaled || SCALED;
constexpr int span = HELD * WARPS * 16 / FB;  // tiles of features of a block
static_assert(span * FB == HELD * WARPS * 16, "whole tiles");
constexpr int blocks_of_sums = HELD * EB * int(sizeof(Acc)) <= 512 ? 2 : 1;  // on a multiprocessor: sums fill half of the registers

// sum += phi^T values for a strip of 16 slots; count: the sums of phi alone.
template <class T> __device__ __forceinline__ void add_strip(Acc (&sum)[EB / 8][4], Acc (&count)[4], const T* phi, const T* values) {
    if constexpr (sizeof(T) == 2) {
#pragma unroll
        for (int k = 0; k < C; k += 16) {
            unsigned left[4];
            load_left<true>(left, phi, phi_row, k);
            product_step<EB, false, 16>(sum, left, values, v_row, k, EB);
            mma(count, left, {ones<T>, ones<T>}, T{});
        }
    } else {
        product<EB, C, true, false>(sum, phi, phi_row, values, v_row);
    }
}

// `span` tiles of features, EB columns of v and one slab: blockIdx.x = (piece * spans + span) * e_blocks + e block, where a piece is an entry
// and one of its first `summarised` slabs, in reverse the last ones, piece = entry * summarised + slab: blocks that read the same rows run side by side.
// With segment numbers only the slab's last segment counts, in reverse the first. z sums features times h, or 1 where that is null.
// s (entries, slabs, M, e), z (.., M), peak (.., M) or (.., 1).
extern "C" __global__ void __launch_bounds__(32 * WARPS, blocks_of_sums)
summarise(const X* k, const V* v, const Acc* k_scale, const Acc* h, const Acc* omega, const E* omega_parts, const Acc* row_weights, const Acc* offset,
          Acc amplitude, Acc log_amplitude, int frequencies, int d, const unsigned char* mask, const int* segments, Acc* s, Acc* z, Acc* peak,
          long long n, int e, int slabs, int summarised, long long slab_rows, int reverse) {
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    Carver carver{shared_bytes};
    MapTiles tiles{};
    tiles.carve(carver, 1);
    E* values = carver.take<E>(C * v_row);
    E* phi = carver.take<E>(span * C * phi_row);
    Acc* log_row = carver.take<Acc>(C);
    int* visible = carver.take<int>(C);
    Acc* column_top = carver.take<Acc>(WARPS * FB);
    Acc* slot_unit = carver.take<Acc>(span * FB);
    Acc* slot_decay = carver.take<Acc>(span * FB);
    Acc* slot_z = carver.take<Acc>(span * FB);

    const int e_blocks = (e + EB - 1) / EB, column0 = blockIdx.x % e_blocks * EB, columns = min(EB, e - column0), spans = (map.tiles() + span - 1) / span;
    const int tile0 = blockIdx.x / e_blocks % spans * span, own_tiles = min(span, map.tiles() - tile0), piece = blockIdx.x / e_blocks / spans;
    const int slab = piece % summarised + (reverse ? slabs - summarised : 0);
    const long long entry = piece / summarised, state = entry * slabs + slab;
    const X* const keys = k + entry * n * d;
    long long row0 = slab * slab_rows, stop = min(n, row0 + slab_rows);
    if (segments) {
        const int* const ids = segments + entry * n;
        int same_ids = 0;
        for (long long i = row0 + threadIdx.x; i < stop; i += blockDim.x) same_ids += ids[i] == ids[reverse ? row0 : stop - 1];
        same_ids = block_sum(same_ids, reinterpret_cast<int*>(column_top));
        if (reverse) stop = row0 + same_ids;
        else row0 = stop - same_ids;
    }

    const int g = lane_index() / 4, t = lane_index() % 4, own = warp_index() * 16 + g;
    const auto slot_of = [=](int strip) { return (warp_index() + strip * WARPS) * 16 + g; };
    Acc sum[HELD][EB / 8][4];
#pragma unroll
    for (int i = 0; i < HELD; ++i) clear(sum[i]);
    Acc unit = Limits<Acc>::lowest();  // of all rows, where the log scale is per row
    for (int i = threadIdx.x; i < span * FB; i += blockDim.x) slot_unit[i] = Limits<Acc>::lowest(), slot_z[i] = Acc(0);
    for (; row0 < stop; row0 += C) {
        const int rows = stop - row0 < C ? int(stop - row0) : C;
        if (scales) row_scales(log_row, keys + row0 * d, k_scale ? k_scale + entry * n + row0 : nullptr, rows, map);
        load_visible(visible, mask ? mask + entry * n + row0 : nullptr, rows);
        __syncthreads();
        load_values(values, v + (entry * n + row0) * e + column0, rows, e, columns, visible);
        const bool seen[2] = {visible[own] != 0, visible[own + 8] != 0};
        Acc decay = Acc(1), by[2] = {Acc(1), Acc(1)};
        if (!per_feature) {
            Acc top = unit;
            for (int i = lane_index(); i < rows; i += 32)
                if (visible[i]) top = larger(top, scales ? unit_of(log_row[i]) : Acc(0));
            top = warp_max(top);
            decay = change(unit, top);
            unit = top;
            if (scales) by[0] = weight(log_row[own], unit), by[1] = weight(log_row[own + 8], unit);
        }
        const X* const inputs[1] = {keys + row0 * d};
        Acc u[1][FB / 8][4];
        for (int i = 0; i < own_tiles; ++i) {
            const int tile = tile0 + i;
            if (i == 0 || tile % parts == 0) project<0, 1>(u, inputs, rows, map, tile / parts * FB, i == 0, tiles);
            Pair<E> made[FB / 8][2];
            if (per_feature) {
                Acc logs[FB / 8][4];
                log_features(logs, u[0], tile, map, log_row, visible, column_top);
                __syncthreads();
                for (int j = threadIdx.x; j < FB; j += blockDim.x) {
                    const Acc before = slot_unit[i * FB + j], after = raised(before, column_top, j);
                    slot_unit[i * FB + j] = after;
                    slot_decay[i * FB + j] = change(before, after);
                }
                __syncthreads();
                weight_pairs(made, logs, slot_unit + i * FB, Acc(-1), {Acc(0), Acc(0)});
            } else {
                feature_pairs(made, u[0], tile, map, by);
                hide(made, seen[0], seen[1]);
            }
            store_pairs(phi + (i * C + warp_index() * 16) * phi_row, phi_row, made);
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < HELD; ++i) {
            const int slot = slot_of(i);
            if (slot - g >= own_tiles * FB) break;
            const Acc down[2] = {per_feature ? slot_decay[slot] : decay, per_feature ? slot_decay[slot + 8] : decay};
            if (scales)
#pragma unroll
                for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                    for (int p = 0; p < 4; ++p) sum[i][j][p] *= down[p / 2];
            Acc count[4] = {};
            add_strip(sum[i], count, phi + slot / FB * (C * phi_row) + (slot - g) % FB, values);
            if (sizeof(E) == 2 && !h && t == 0) {
                slot_z[slot] = slot_z[slot] * down[0] + count[0];
                slot_z[slot + 8] = slot_z[slot + 8] * down[1] + count[2];
            }
        }
        if (sizeof(E) > 2 || h)
            column_sums<Acc>(own_tiles * FB, rows, phi_row, h ? h + entry * n + row0 : nullptr, [=](int i) { return phi + i / FB * (C * phi_row) + i % FB; },
                             [&](int i, Acc total) { slot_z[i] = slot_z[i] * (per_feature ? slot_decay[i] : decay) + total; });
        __syncthreads();
    }

    const long long at = state * map.count();
#pragma unroll
    for (int i = 0; i < HELD; ++i)
#pragma unroll
        for (int j = 0; j < EB / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int slot = slot_of(i) + p / 2 * 8, feature = map.feature(tile0 + slot / FB, slot % FB), column = 8 * j + 2 * t + p % 2;
                if (slot < own_tiles * FB && feature >= 0 && column < columns) s[(at + feature) * e + column0 + column] = sum[i][j][p];
            }
    if (column0 > 0) return;
    for (int i = threadIdx.x; i < own_tiles * FB; i += blockDim.x) {
        const int feature = map.feature(tile0 + i / FB, i % FB);
        if (feature < 0) continue;
        z[at + feature] = slot_z[i];
        if (per_feature) peak[at + feature] = log_of(slot_unit[i]);
    }
    if (!per_feature && tile0 == 0 && threadIdx.x == 0) peak[state] = log_of(unit);
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
