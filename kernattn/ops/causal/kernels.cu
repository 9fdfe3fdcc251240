// Causal linear attention. A block walks along one slab of rows, C rows at a time, with the state of EB columns of v at hand:
//   1. tile of features by tile: phi(k) is stored, phi(q) weighs the state and gives the scores of the chunk's own keys;
//   2. the masked scores weigh the chunk's v;
//   3. the state takes up the chunk's keys.
// A chunk never crosses a segment's end. With a log scale per feature the features of a chunk are in units of its largest key; a row
// whose normaliser then nearly vanishes sees only keys that are far smaller than a later one, and the chunk is done again token by token.

constexpr bool ahead = !PROJECT && sizeof(Acc) == 4;  // are inputs read while the tile before them is worked on?

struct Walk {
    Map map;
    const X *q, *k;
    const V* v;
    const Acc* k_scale;
    V* out;
    int e, columns;
    MapTiles tiles{};
    E *values, *phi, *weights, *state_tile, *scores, *stored;
    Acc *column_top, *tile_peak, *tile_decay, *tile_z, *log_row, *run, *room;
    int *visible, *seen;
    Acc *s, *z, *peak, *next, *fresh, *weight;  // of every slot: slots = tiles * FB
    int slots;
    Acc unit;     // where the log scale is per row: the largest so far
    int loaded;   // has the state seen a key?
    int rough;    // are any of the chunk's values NaN or infinite?
    bool scaled;  // do rows have log scales of their own?

    __device__ __forceinline__ E* phi_of(int tile) const { return phi + (stored ? 0 : tile * C * phi_row); }

    __device__ __forceinline__ void copy_features(E* to, const E* from) const {
        using Wide = Packet<E, 16 / int(sizeof(E))>;
        for (int i = threadIdx.x; i < C * phi_row * int(sizeof(E)) / 16; i += blockDim.x)
            reinterpret_cast<Wide*>(to)[i] = reinterpret_cast<const Wide*>(from)[i];
    }

    __device__ __forceinline__ void reset() {
        for (int i = threadIdx.x; i < slots * EB; i += blockDim.x) s[i / EB * s_row + i % EB] = Acc(0);
        for (int i = threadIdx.x; i < slots; i += blockDim.x) z[i] = Acc(0), peak[i] = Limits<Acc>::lowest();
        unit = Limits<Acc>::lowest();
        loaded = 0;
    }

    __device__ __forceinline__ void load(const Acc* from_s, const Acc* from_z, const Acc* from_peak) {
        int any = 0;
        for (int i = threadIdx.x; i < slots * EB; i += blockDim.x) {
            const int slot = i / EB, column = i % EB, feature = map.feature(slot / FB, slot % FB);
            s[slot * s_row + column] = feature >= 0 && column < columns ? from_s[feature * static_cast<long long>(e) + column] : Acc(0);
        }
        for (int i = threadIdx.x; i < slots; i += blockDim.x) {
            const int feature = map.feature(i / FB, i % FB);
            z[i] = feature >= 0 ? from_z[feature] : Acc(0);
            peak[i] = per_feature && feature >= 0 ? from_peak[feature] : Limits<Acc>::lowest();
            any |= peak[i] > Limits<Acc>::lowest();
        }
        unit = per_feature ? Limits<Acc>::lowest() : from_peak[0];
        loaded = __syncthreads_or(any) || unit > Limits<Acc>::lowest();
    }

    __device__ __forceinline__ void save(Acc* to_s, Acc* to_z, Acc* to_peak, bool vectors) const {
        for (int i = threadIdx.x; i < slots * EB; i += blockDim.x) {
            const int slot = i / EB, column = i % EB, feature = map.feature(slot / FB, slot % FB);
            if (feature >= 0 && column < columns) to_s[feature * static_cast<long long>(e) + column] = s[slot * s_row + column];
        }
        if (!vectors) return;
        for (int i = threadIdx.x; i < slots; i += blockDim.x) {
            const int feature = map.feature(i / FB, i % FB);
            if (feature >= 0) to_z[feature] = z[i];
            if (feature >= 0 && per_feature) to_peak[feature] = peak[i];
        }
        if (!per_feature && threadIdx.x == 0) to_peak[0] = unit;
    }

    // The running maximum of the row log scales of visible keys, and whether there was any key. By one warp.
    __device__ __forceinline__ void running() {
        if (warp_index() > 0) return;
        Acc before = unit;
        int any = loaded;
        for (int i = lane_index(); i < C; i += 32) {
            int yes = visible[i];
            Acc top = yes ? log_row[i] : Limits<Acc>::lowest();
            for (int bits = 1; bits < 32; bits *= 2) {
                const Acc other = __shfl_up_sync(all_lanes, top, bits);
                const int others = __shfl_up_sync(all_lanes, yes, bits);
                if (lane_index() >= bits) top = larger(other, top), yes |= others;
            }
            run[i] = top = larger(before, top);
            seen[i] = yes |= any;
            before = __shfl_sync(all_lanes, top, 31);
            any = __shfl_sync(all_lanes, yes, 31);
        }
    }

    // The keys' features of one tile into phi; the tile's slots of the state, decayed, into state_tile and tile_z.
    __device__ __forceinline__ void key_tile(const Acc (&u)[FB / 8][4], int tile) {
        const int slot0 = tile * FB;
        Acc logs[FB / 8][4];
        if (per_feature) {
            log_features(logs, u, tile, map, log_row, visible, column_top);
            __syncthreads();
        }
        for (int i = threadIdx.x; i < FB; i += blockDim.x) {
            Acc top = peak[slot0 + i], decay = Acc(1);
            if (per_feature) {
                for (int w = 0; w < WARPS; ++w) top = larger(top, column_top[w * FB + i]);
                decay = relative(peak[slot0 + i], top);
            }
            tile_peak[i] = next[slot0 + i] = top;
            tile_decay[i] = decay;
            tile_z[i] = z[slot0 + i] * decay;
        }
        __syncthreads();
        E* const into = phi_of(tile);
        for_each_of_features([&](int j, int p, int row, int column) {
            const int feature = map.feature(tile, column);
            Acc y = Acc(0);
            if (per_feature) y = relative(logs[j][p], tile_peak[column]);
            else if (feature >= 0 && visible[row]) y = map.value(tile % parts, u[j][p], feature);
            into[row * phi_row + column] = narrow<E>(y);
        });
        for (int i = threadIdx.x; i < FB * EB / 4; i += blockDim.x) {
            const int row = i / (EB / 4), column = i % (EB / 4) * 4;
            auto part = *reinterpret_cast<const Packet<Acc, 4>*>(s + (slot0 + row) * s_row + column);
            for (Acc& x : part.x) x *= tile_decay[row];
            store(state_tile + row * v_row + column, part);
        }
    }

    // One chunk. Returns whether its rows have to be done again, in which case the state is as it was.
    __device__ __forceinline__ bool chunk(long long row0, int rows) {
        const int g = lane_index() / 4, t = lane_index() % 4, own = warp_index() * 16;
        Output output;
        output.start();
        Acc score[C / 8][4];
        clear(score);
        const X* const inputs[2] = {q + row0 * map.d, k + row0 * map.d};
        Acc u[2][FB / 8][4], next_u[2][FB / 8][4];
        if (ahead) project(next_u, inputs, rows, map, 0, true, tiles);
        for (int block = 0; block < map.tiles() / parts; ++block) {
            if (ahead) {
#pragma unroll
                for (int i = 0; i < 2 * (FB / 8) * 4; ++i) u[i / (FB / 2)][i / 4 % (FB / 8)][i % 4] = next_u[i / (FB / 2)][i / 4 % (FB / 8)][i % 4];
                if (block + 1 < map.tiles() / parts) project(next_u, inputs, rows, map, (block + 1) * FB, true, tiles);
            } else {
                project(u, inputs, rows, map, block * FB, block == 0, tiles);
            }
            for (int part = 0; part < parts; ++part) {
                const int tile = block * parts + part;
                key_tile(u[1], tile);
                Acc factor[2];
                weigh(output, weights, u[0], tile, map, tile_peak, tile_z, factor);
                if (per_feature)
#pragma unroll
                    for (int j = 0; j < C / 8; ++j)
#pragma unroll
                        for (int p = 0; p < 4; ++p) score[j][p] *= factor[p / 2];
                __syncthreads();
                const E* const mine = weights + own * phi_row;
                product<EB, FB, false, false>(output.num, mine, phi_row, state_tile, v_row);
                product<C, FB, false, true>(score, mine, phi_row, phi_of(tile), phi_row, own + 16);
                if (stored) {
                    copy_features(stored + tile * static_cast<long long>(C * phi_row), phi);
                }
            }
        }

        if (scaled) {
            const Acc factor[2] = {relative(unit, run[own + g]), relative(unit, run[own + g + 8])};
            output.scale(factor);
        }
        E* const own_scores = scores + own * score_row;
#pragma unroll
        for (int j = 0; j < C / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int row = own + g + p / 2 * 8, column = 8 * j + 2 * t + p % 2;
                Acc y = Acc(0);
                if (column <= row && visible[column]) y = scaled ? score[j][p] * relative(log_row[column], run[row]) : score[j][p];
                const E rounded = narrow<E>(y);
                own_scores[(row - own) * score_row + column] = rounded;
                output.den[p / 2] += Acc(widen(rounded));
            }
        __syncwarp();
        if (rough) output.add_seen(own_scores, values, {own + g, own + g + 8});
        else product<EB, C, false, false>(output.num, own_scores, score_row, values, v_row, EB, own + 16);
        output.den[0] = row_sum(output.den[0]);
        output.den[1] = row_sum(output.den[1]);
        if (per_feature) {
            bool lost = false;
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int row = own + g + 8 * r;
                lost |= row < rows && seen[row] && !(output.den[r] >= Limits<Acc>::faint());
            }
            if (__syncthreads_or(lost)) return true;
        }
        output.write(out + row0 * e, rows, e, columns);
        take_up(rows);
        return false;
    }

    // S <- decay S + phi(k)^T v, a strip of 16 slots a warp; z likewise.
    __device__ __forceinline__ void take_up(int rows) {
        const int g = lane_index() / 4, t = lane_index() % 4;
        const Acc top = per_feature ? Acc(0) : run[C - 1];
        const Acc row_decay = relative(unit, top);
        if (scaled || stored) __syncthreads();  // until all have read run, values and the last tile of phi
        if (scaled) {
            for (int i = threadIdx.x; i < C; i += blockDim.x) run[i] = visible[i] ? relative(log_row[i], top) : Acc(0);
            __syncthreads();
            for (int i = threadIdx.x; i < C * EB / 4; i += blockDim.x) {
                const int row = i / (EB / 4);
                auto& part = *reinterpret_cast<Packet<E, 4>*>(values + row * v_row + i % (EB / 4) * 4);
                for (E& x : part.x) x = narrow<E>(Acc(widen(x)) * run[row]);
            }
            __syncthreads();
        }
        const int span = stored ? 1 : map.tiles();
        for (int tile = 0; tile < map.tiles(); tile += span) {
            if (stored) {
                copy_features(phi, stored + tile * static_cast<long long>(C * phi_row));
                __syncthreads();
            }
            for (int strip = warp_index(); strip < span * (FB / 16); strip += WARPS) {
                const E* const from = phi + strip / (FB / 16) * (C * phi_row) + strip % (FB / 16) * 16;
                const int slot = tile * FB + strip * 16 + g;
                const Acc decay[2] = {per_feature ? relative(peak[slot], next[slot]) : row_decay,
                                      per_feature ? relative(peak[slot + 8], next[slot + 8]) : row_decay};
                Acc sum[EB / 8][4];
                const auto pair = [&](int j, int r) { return reinterpret_cast<Packet<Acc, 2>*>(s + (slot + 8 * r) * s_row + 8 * j + 2 * t); };
#pragma unroll
                for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                    for (int r = 0; r < 2; ++r) {
                        const Packet<Acc, 2> old = *pair(j, r);
                        sum[j][2 * r] = old.x[0] * decay[r], sum[j][2 * r + 1] = old.x[1] * decay[r];
                    }
                product<EB, C, true, false>(sum, from, phi_row, values, v_row, EB, (rows + 15) / 16 * 16);
#pragma unroll
                for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                    for (int r = 0; r < 2; ++r) *pair(j, r) = {sum[j][2 * r], sum[j][2 * r + 1]};
            }
            const auto column = [&](int i) { return phi + i / FB * (C * phi_row) + i % FB; };
            column_sums(span * FB, rows, phi_row, scaled ? run : nullptr, column, [&](int i, Acc sum) {
                const int slot = tile * FB + i;
                z[slot] = z[slot] * (per_feature ? relative(peak[slot], next[slot]) : row_decay) + sum;
            });
            if (stored) __syncthreads();
        }
        __syncthreads();
        for (int i = threadIdx.x; i < slots; i += blockDim.x) peak[i] = next[i];
        unit = top;
        loaded = seen[C - 1];
    }

    __device__ __forceinline__ Acc projection(const X* x, int feature) const {
        if (!PROJECT) return Acc(widen(x[feature]));
        const Acc* const w = map.omega + feature % map.frequencies * static_cast<long long>(map.d);
        Acc sum = Acc(0);
        for (int i = 0; i < map.d; ++i) sum += Acc(widen(x[i])) * w[i];
        return sum;
    }
};

// The same rows one by one, each in units of the largest key up to it. By value: the common path then keeps its copy in registers.
__device__ __noinline__ void token_by_token(Walk w, long long row0, int rows) {
    for (int row = 0; row < rows; ++row) {
        const X* const query = w.q + (row0 + row) * w.map.d;
        const X* const key = w.k + (row0 + row) * w.map.d;
        Acc top = Limits<Acc>::lowest();
        for (int i = threadIdx.x; i < w.slots; i += blockDim.x) {
            const int feature = w.map.feature(i / FB, i % FB), part = i / FB % parts;
            Acc log_q = Limits<Acc>::lowest(), log_k = log_q;
            if (feature >= 0) log_q = w.map.log(part, w.projection(query, feature), Acc(0), feature);
            if (feature >= 0 && w.visible[row]) log_k = w.map.log(part, w.projection(key, feature), w.log_row[row], feature);
            const Acc highest = larger(w.peak[i], log_k);
            w.next[i] = relative(w.peak[i], highest);
            w.fresh[i] = relative(log_k, highest);
            w.z[i] = w.z[i] * w.next[i] + w.fresh[i];
            w.peak[i] = highest;
            w.weight[i] = log_q + highest;
            top = larger(top, w.weight[i]);
        }
        top = block_max(top, w.room);
        Acc den = Acc(0);
        for (int i = threadIdx.x; i < w.slots; i += blockDim.x) {
            w.weight[i] = relative(w.weight[i], top);
            den += w.weight[i] * w.z[i];
        }
        __syncthreads();
        den = block_sum(den, w.room);
        for (int column = threadIdx.x; column < EB; column += blockDim.x) {
            const long long at = (row0 + row) * w.e + column;
            const Acc value = w.visible[row] && column < w.columns ? Acc(widen(w.v[at])) : Acc(0);
            Acc num = Acc(0);
            for (int i = 0; i < w.slots; ++i) {
                Acc& x = w.s[i * s_row + column];
                x = x * w.next[i] + w.fresh[i] * value;
                num += w.weight[i] * x;
            }
            if (column < w.columns) w.out[at] = narrow<V>(den == Acc(0) ? Acc(0) : num / den);
        }
        __syncthreads();
    }
}

// Blocks share out entries * slabs pieces of work and the columns of v: blockIdx.x = worker * e_blocks + e block, so that those that read the
// same q and k run side by side. start: a state an entry of the keys, or with starts_by_slab one a slab of it; end: that of the last slab.
// Null pointers: none.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
walk(const X* q, const X* k, const V* v, const Acc* k_scale, V* out, const Acc* omega, const E* omega_parts, const Acc* row_weights,
     const Acc* offset,
     Acc amplitude, Acc log_amplitude, int frequencies, int d, const unsigned char* mask, const int* segments, const Acc* start_s,
     const Acc* start_z, const Acc* start_peak, int starts_by_slab, Acc* end_s, Acc* end_z, Acc* end_peak, Acc* state_room, E* phi_room,
     long long n, int e, int entries, int slabs, long long slab_rows, int size0, int size1, int size2, int q0, int q1, int q2, int k0, int k1, int k2) {
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    const int e_blocks = (e + EB - 1) / EB, column0 = blockIdx.x % e_blocks * EB, workers = gridDim.x / e_blocks;
    const long long block = blockIdx.x;
    Walk w;
    w.map = Map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    w.e = e;
    w.columns = min(EB, e - column0);
    w.scaled = !per_feature && (row_weights || k_scale);
    w.slots = w.map.tiles() * FB;
    Carver carver{shared_bytes};
    w.tiles.carve(carver, 2);
    w.values = carver.take<E>(C * v_row);
    w.weights = carver.take<E>(C * phi_row);
    w.state_tile = carver.take<E>(FB * v_row);
    w.scores = carver.take<E>(C * score_row);
    w.column_top = carver.take<Acc>(WARPS * FB);
    w.tile_peak = carver.take<Acc>(FB);
    w.tile_decay = carver.take<Acc>(FB);
    w.tile_z = carver.take<Acc>(FB);
    w.log_row = carver.take<Acc>(C);
    w.run = carver.take<Acc>(C);
    w.room = carver.take<Acc>(WARPS);
    w.visible = carver.take<int>(C);
    w.seen = carver.take<int>(C);
    w.phi = carver.take<E>((phi_room ? 1 : w.map.tiles()) * C * phi_row);
    w.stored = phi_room ? phi_room + block * w.map.tiles() * C * phi_row : nullptr;
    Acc* const room = state_room ? state_room + block * w.slots * (s_row + 5) : carver.take<Acc>(w.slots * (s_row + 5));
    w.s = room;
    w.z = room + w.slots * s_row;
    w.peak = w.z + w.slots;
    w.next = w.peak + w.slots;
    w.fresh = w.next + w.slots;
    w.weight = w.fresh + w.slots;

    const long long features = w.map.count(), peaks = per_feature ? features : 1;
    for (int work = blockIdx.x / e_blocks; work < entries * slabs; work += workers) {
        const int entry = work / slabs, slab = work % slabs;
        const long long keys = batch.keys(entry), start = starts_by_slab ? keys * slabs + slab : keys;
        const long long first = slab * slab_rows, stop = min(n, first + slab_rows);
        const int* const ids = segments ? segments + keys * n : nullptr;
        w.q = q + batch.queries(entry) * n * d;
        w.k = k + keys * n * d;
        w.v = v + keys * n * e + column0;
        w.out = out + entry * n * e + column0;
        if (start_s) w.load(start_s + start * features * e + column0, start_z + start * features, start_peak + start * peaks);
        else w.reset();
        for (long long row = first; row < stop;) {
            int rows = stop - row < C ? int(stop - row) : C;
            if (ids) {
                if (row > 0 && ids[row] != ids[row - 1]) w.reset();
                rows = __syncthreads_count(int(threadIdx.x) < rows && ids[row + threadIdx.x] == ids[row]);
            }
            row_scales(w.log_row, w.k + row * d, k_scale ? k_scale + keys * n + row : nullptr, rows, w.map);
            load_visible(w.visible, mask ? mask + keys * n + row : nullptr, rows);
            __syncthreads();
            w.running();
            w.rough = __syncthreads_or(!load_values(w.values, w.v + row * e, rows, e, w.columns, w.visible));
            if (w.chunk(row, rows)) {
                token_by_token(w, row, rows);
                w.loaded = w.seen[C - 1];
            }
            row += rows;
        }
        if (end_s && slab == slabs - 1 && batch.first(entry))
            w.save(end_s + keys * features * e + column0, end_z + keys * features, end_peak + keys * peaks, column0 == 0);
    }
}
