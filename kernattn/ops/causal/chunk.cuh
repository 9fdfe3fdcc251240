// Causal linear attention. A block walks along one slab of rows, C rows at a time, with the state of EB columns of v at hand:
//   1. tile of features by tile: phi(k) is stored, phi(q) weighs the state and gives the scores of the chunk's own keys;
//   2. the masked scores weigh the chunk's v;
//   3. the state takes up the chunk's keys.
// A chunk never crosses a segment's end. All sums are in units that are whole powers of two (octaves.cuh), so that those which the keys of
// a chunk share change no digit of its rows. Lest a row's own terms underflow, a chunk ends before a key that lies far above what its
// first row sees, and before values that are NaN or infinite: where, the rows before do not depend on.
//
// Compile-time, beside those of types.cuh, maps.cuh and output.cuh: MAPS, 2 where queries have a map of their own.

constexpr bool ahead = !PROJECT && sizeof(Acc) == 4;  // are inputs read while the tile before them is worked on?
constexpr bool one_map = MAPS == 1;
static_assert(FB * WARPS >= 2 * C, "column_top holds two numbers a row");

struct Walk {
    Map q_map, k_map;
    const X *q, *k;
    const V* v;
    V* out;
    Acc *log_z, *sign_z;  // null: not wanted
    int e, column0;
    MapTiles tiles{};
    E *values, *phi, *weights, *state_tile, *scores, *stored;
    Acc *column_top, *row_top, *tile_unit, *tile_decay, *tile_z, *log_row, *run;
    int *visible, *high;  // high: does a key of the chunk lie far above what its first row sees?
    Acc *s, *z, *unit, *next;  // of every slot: slots = tiles * FB
    int slots;
    Acc row_unit;  // where the log scale is per row
    bool scaled;   // do rows have log scales of their own?
    int queries, keys, entry;  // of q, of k and v, of out
    long long n;               // rows of an entry
    int row;                   // the next of them

    __device__ __forceinline__ long long query_row() const { return queries * n + row; }
    __device__ __forceinline__ long long key_row() const { return keys * n + row; }
    __device__ __forceinline__ long long out_row() const { return entry * n + row; }
    __device__ __forceinline__ int columns() const { return min(EB, e - column0); }
    __device__ __forceinline__ const Map& of_queries() const { return one_map ? k_map : q_map; }
    __device__ __forceinline__ E* phi_of(int tile) const { return phi + (stored ? 0 : tile * C * phi_row); }

    __device__ __forceinline__ void copy_features(E* to, const E* from) const {
        using Wide = Packet<E, 16 / int(sizeof(E))>;
        for (int i = threadIdx.x; i < C * phi_row * int(sizeof(E)) / 16; i += blockDim.x)
            reinterpret_cast<Wide*>(to)[i] = reinterpret_cast<const Wide*>(from)[i];
    }

    __device__ __forceinline__ void reset() {
        for (int i = threadIdx.x; i < slots * EB; i += blockDim.x) s[i / EB * s_row + i % EB] = Acc(0);
        for (int i = threadIdx.x; i < slots; i += blockDim.x) z[i] = Acc(0), unit[i] = Limits<Acc>::lowest();
        row_unit = Limits<Acc>::lowest();
    }

    __device__ __forceinline__ void load(const Acc* from_s, const Acc* from_z, const Acc* from_peak) {
        const bool units = per_feature || scaled;  // without them sums are in units of 1
        const auto rest = [=](int feature) {
            const Acc peak = from_peak[per_feature ? feature : 0];
            return units ? rest_of_log(peak) : weight(peak, Acc(0));
        };
        for (int i = threadIdx.x; i < slots * EB; i += blockDim.x) {
            const int slot = i / EB, column = i % EB, feature = k_map.feature(slot / FB, slot % FB);
            const bool there = feature >= 0 && column < columns();
            s[slot * s_row + column] = there ? from_s[feature * static_cast<long long>(e) + column] * rest(feature) : Acc(0);
        }
        for (int i = threadIdx.x; i < slots; i += blockDim.x) {
            const int feature = k_map.feature(i / FB, i % FB);
            z[i] = feature >= 0 ? from_z[feature] * rest(feature) : Acc(0);
            unit[i] = per_feature && feature >= 0 ? unit_of_log(from_peak[feature]) : Limits<Acc>::lowest();
        }
        const bool nothing = from_peak[0] == Limits<Acc>::lowest();
        row_unit = per_feature || nothing ? Limits<Acc>::lowest() : scaled ? unit_of_log(from_peak[0]) : Acc(0);
    }

    __device__ __forceinline__ void save(Acc* to_s, Acc* to_z, Acc* to_peak, bool vectors) const {
        for (int i = threadIdx.x; i < slots * EB; i += blockDim.x) {
            const int slot = i / EB, column = i % EB, feature = k_map.feature(slot / FB, slot % FB);
            if (feature >= 0 && column < columns()) to_s[feature * static_cast<long long>(e) + column] = s[slot * s_row + column];
        }
        if (!vectors) return;
        for (int i = threadIdx.x; i < slots; i += blockDim.x) {
            const int feature = k_map.feature(i / FB, i % FB);
            if (feature >= 0) to_z[feature] = z[i];
            if (feature >= 0 && per_feature) to_peak[feature] = log_of(unit[i]);
        }
        if (!per_feature && threadIdx.x == 0) to_peak[0] = log_of(row_unit);
    }

    // Log scales, visibility and values of a chunk. Returns whether any of the values is NaN or infinite.
    __device__ __forceinline__ bool open(int rows, const Acc* scale, const unsigned char* mask) {
        row_scales(log_row, k + key_row() * k_map.d, scale ? scale + key_row() : nullptr, rows, k_map);
        load_visible(visible, mask ? mask + key_row() : nullptr, rows);
        if (threadIdx.x == 0) *high = 0;
        __syncthreads();
        if (!per_feature) running();
        return __syncthreads_or(!load_values(values, v + key_row() * e + column0, rows, e, columns(), visible));
    }

    // Where the log scale is per row: exp of it is fraction 2^octaves. In the room of column_top, which has no other use then.
    __device__ __forceinline__ Acc& row_fraction(int row) const { return column_top[row]; }
    __device__ __forceinline__ Acc& row_octaves(int row) const { return column_top[C + row]; }
    __device__ __forceinline__ Acc row_weight(int row, Acc unit) const { return row_fraction(row) * power(row_octaves(row) - unit); }

    // Those of the chunk's keys, and the running units of the visible ones. By one warp.
    __device__ __forceinline__ void running() {
        if (warp_index() > 0) return;
        Acc before = row_unit;
        for (int i = lane_index(); i < C; i += 32) {
            row_octaves(i) = octaves(log_row[i]);
            row_fraction(i) = weight(log_row[i], row_octaves(i));
            Acc top = visible[i] ? unit_of(log_row[i]) : Limits<Acc>::lowest();
            for (int bits = 1; bits < 32; bits *= 2) {
                const Acc other = __shfl_up_sync(all_lanes, top, bits);
                if (lane_index() >= bits) top = larger(other, top);
            }
            run[i] = top = larger(before, top);
            before = __shfl_sync(all_lanes, top, 31);
        }
    }

    // Projections of the chunk's queries and keys, of the FB frequencies of a block.
    __device__ __forceinline__ void project_both(Acc (&u)[2][FB / 8][4], const X* const (&inputs)[2], int rows, int block, bool fresh) {
        if (one_map) {
            project<0, 2>(u, inputs, rows, k_map, block * FB, fresh, tiles);
        } else {
            project<0, 1>(u, inputs, rows, q_map, block * FB, fresh, tiles);
            project<1, 2>(u, inputs, rows, k_map, block * FB, fresh, tiles);
        }
    }

    // The keys' features of one tile into phi; the tile's slots of the state, decayed, into state_tile and tile_z.
    __device__ __forceinline__ void key_tile(const Acc (&u)[FB / 8][4], int tile) {
        const int slot0 = tile * FB;
        Acc logs[FB / 8][4];
        if (per_feature) {
            log_features(logs, u, tile, k_map, log_row, visible, column_top, row_top);
            __syncthreads();
        }
        for (int i = threadIdx.x; i < FB; i += blockDim.x) {
            const Acc before = unit[slot0 + i], after = per_feature ? raised(before, column_top, i) : before;
            if (per_feature && after > seen_first(before, row_top[i]) + Limits<Acc>::rise()) *high = 1;
            tile_unit[i] = next[slot0 + i] = after;
            tile_decay[i] = per_feature ? change(before, after) : Acc(1);
            tile_z[i] = z[slot0 + i] * tile_decay[i];
        }
        __syncthreads();
        E* const into = phi_of(tile);
        for_each_of_features([&](int j, int p, int row, int column) {
            const int feature = k_map.feature(tile, column);
            Acc y = Acc(0);
            if (per_feature) y = weight(logs[j][p], tile_unit[column]);
            else if (feature >= 0 && visible[row]) y = k_map.value(tile % parts, u[j][p], feature);
            into[row * phi_row + column] = narrow<E>(y);
        });
        for (int i = threadIdx.x; i < FB * EB / 4; i += blockDim.x) {
            const int row = i / (EB / 4), column = i % (EB / 4) * 4;
            auto part = *reinterpret_cast<const Packet<Acc, 4>*>(s + (slot0 + row) * s_row + column);
            for (Acc& x : part.x) x *= tile_decay[row];
            store(state_tile + row * v_row + column, part);
        }
    }

    // The unit of a feature that the first row of a chunk sees: of the state and of its own key.
    static __device__ __forceinline__ Acc seen_first(Acc unit, Acc log) {
        return log == log ? larger(unit, unit_of(log)) : -Limits<Acc>::lowest();
    }

    // One chunk. Returns false where it has to end earlier: then nothing has been written, and the state is as it was.
    __device__ __forceinline__ bool chunk(int rows) {
        const int g = lane_index() / 4, t = lane_index() % 4, own = int(threadIdx.x) / 32 * 16;  // signed: nothing spills
        Output output;
        output.start();
        Acc score[C / 8][4];
        clear(score);
        const X* const inputs[2] = {q + query_row() * of_queries().d, k + key_row() * k_map.d};
        Acc u[2][FB / 8][4], next_u[2][FB / 8][4];
        if (ahead) project_both(next_u, inputs, rows, 0, true);
        for (int block = 0; block < k_map.tiles() / parts; ++block) {
            if (ahead) {
#pragma unroll
                for (int i = 0; i < 2 * (FB / 8) * 4; ++i) u[i / (FB / 2)][i / 4 % (FB / 8)][i % 4] = next_u[i / (FB / 2)][i / 4 % (FB / 8)][i % 4];
                if (block + 1 < k_map.tiles() / parts) project_both(next_u, inputs, rows, block + 1, true);
            } else {
                project_both(u, inputs, rows, block, block == 0);
            }
            for (int part = 0; part < parts; ++part) {
                const int tile = block * parts + part;
                key_tile(u[1], tile);
                Acc factor[2];
                weigh(output, weights, u[0], tile, of_queries(), tile_unit, tile_z, factor);
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
        if (per_feature && *high && rows > 1) return false;

        if (scaled) {
            const Acc factor[2] = {change(row_unit, run[own + g]), change(row_unit, run[own + g + 8])};
            output.scale(factor);
        }
        E* const own_scores = scores + own * score_row;
#pragma unroll
        for (int j = 0; j < C / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int row = own + g + p / 2 * 8, column = 8 * j + 2 * t + p % 2;
                Acc y = Acc(0);
                if (column <= row && visible[column]) y = scaled ? score[j][p] * row_weight(column, run[row]) : score[j][p];
                const E rounded = narrow<E>(y);
                own_scores[(row - own) * score_row + column] = rounded;
                output.den[p / 2] += Acc(widen(rounded));
            }
        __syncwarp();
        product<EB, C, false, false>(output.num, own_scores, score_row, values, v_row, EB, own + 16);
        output.den[0] = row_sum(output.den[0]);
        output.den[1] = row_sum(output.den[1]);
        output.write(out + out_row() * e + column0, rows, e, columns());
        if (log_z && column0 == 0 && t == 0)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                normalisers()[g + 8 * r] = output.den[r];
                normalisers()[16 + g + 8 * r] = per_feature ? output.unit[r] : run[own + g + 8 * r];
            }
        take_up(rows);
        return true;
    }

    // The normalisers of the warp's rows, and their units: where its weights were.
    __device__ __forceinline__ Acc* normalisers() const { return reinterpret_cast<Acc*>(weights + int(threadIdx.x) / 32 * 16 * phi_row); }

    // S <- decay S + phi(k)^T v, a strip of 16 slots a warp; z likewise.
    __device__ __forceinline__ void take_up(int rows) {
        const int g = lane_index() / 4, t = lane_index() % 4;
        const Acc top = per_feature ? Acc(0) : run[C - 1];
        const Acc row_decay = change(row_unit, top);
        if (scaled || stored) __syncthreads();  // until all have read run, values and the last tile of phi
        if (scaled) {
            for (int i = threadIdx.x; i < C; i += blockDim.x) run[i] = visible[i] ? row_weight(i, top) : Acc(0);
            __syncthreads();
            for (int i = threadIdx.x; i < C * EB / 4; i += blockDim.x) {
                const int row = i / (EB / 4);
                auto& part = *reinterpret_cast<Packet<E, 4>*>(values + row * v_row + i % (EB / 4) * 4);
                for (E& x : part.x) x = narrow<E>(Acc(widen(x)) * run[row]);
            }
            __syncthreads();
        }
        const int span = stored ? 1 : k_map.tiles();
        for (int tile = 0; tile < k_map.tiles(); tile += span) {
            if (stored) {
                copy_features(phi, stored + tile * static_cast<long long>(C * phi_row));
                __syncthreads();
            }
            for (int strip = warp_index(); strip < span * (FB / 16); strip += WARPS) {
                const E* const from = phi + strip / (FB / 16) * (C * phi_row) + strip % (FB / 16) * 16;
                const int slot = tile * FB + strip * 16 + g;
                const Acc decay[2] = {per_feature ? change(unit[slot], next[slot]) : row_decay,
                                      per_feature ? change(unit[slot + 8], next[slot + 8]) : row_decay};
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
                z[slot] = z[slot] * (per_feature ? change(unit[slot], next[slot]) : row_decay) + sum;
            });
            if (stored) __syncthreads();
        }
        __syncthreads();
        for (int i = threadIdx.x; i < slots; i += blockDim.x) unit[i] = next[i];
        row_unit = top;
    }
};

// The first row past 0 with a key that lies far above what row 0 sees: there is one.
__device__ __forceinline__ int first_high(const Walk& w, int rows) {
    const X* const inputs[2] = {nullptr, w.k + w.key_row() * w.k_map.d};
    int first = rows - 1;
    for (int block = 0; block < w.k_map.tiles() / parts; ++block) {
        Acc u[2][FB / 8][4], logs[FB / 8][4];
        project<1, 2>(u, inputs, rows, w.k_map, block * FB, true, w.tiles);
        for (int part = 0; part < parts; ++part) {
            const int tile = block * parts + part;
            __syncthreads();
            log_features(logs, u[1], tile, w.k_map, w.log_row, w.visible, w.column_top, w.row_top);
            __syncthreads();
            for_each_of_features([&](int j, int p, int row, int column) {
                const Acc seen = Walk::seen_first(w.unit[tile * FB + column], w.row_top[column]), own = unit_of(logs[j][p]);
                if (row > 0 && row < first && !(own <= seen + Limits<Acc>::rise())) first = row;
            });
        }
    }
    return max(1, min(rows - 1, -block_max(-first, reinterpret_cast<int*>(w.column_top))));  // the walk goes on, whatever happens
}

// The first row past 0 whose values are not all finite, or `rows`.
__device__ __forceinline__ int first_rough(const E* values, int rows, int* room) {
    int first = rows;
    for (int row = 1 + threadIdx.x; row < rows; row += blockDim.x) {
        Acc rough = Acc(0);
        for (int column = 0; column < EB; ++column) rough += Acc(widen(values[row * v_row + column])) * Acc(0);
        if (rough != Acc(0) && row < first) first = row;
    }
    return max(1, min(rows, -block_max(-first, room)));
}

// The logarithms and signs of the normalisers of a chunk's rows.
__device__ __forceinline__ void write_normalisers(const Walk& w, int rows, const Acc* scale) {
    row_scales(w.log_row, w.q + w.query_row() * w.of_queries().d, scale ? scale + w.query_row() : nullptr, rows, w.of_queries());
    __syncwarp();
    const int lane = lane_index(), row = warp_index() * 16 + lane;
    const long long to = w.out_row() + row;
    if (lane < 16 && row < rows) write_normaliser(w.log_z + to, w.sign_z + to, w.normalisers()[lane], w.normalisers()[16 + lane], w.log_row[row]);
    __syncwarp();
}
