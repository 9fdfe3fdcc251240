// Causal linear attention. A block walks along one slab of rows, C rows at a time, with the state of EB columns of v at hand:
//   1. tile of features by tile: one group of warps makes phi(q), the other phi(k), each for all columns of v; phi(q) weighs the state and
//      gives the scores of the chunk's own keys;
//   2. the masked scores weigh the chunk's v;
//   3. the state takes up the chunk's keys.
// In products each group has half of the columns of v, and every other 16 columns of the scores.
//
// A chunk never crosses a segment's end. All sums are in units that are whole powers of two (octaves.cuh), so that those which the keys of
// a chunk share change no digit of its rows. Lest a row's own terms underflow, a chunk ends before a key that lies far above what its
// first row sees, and before values that are NaN or infinite: where, the rows before do not depend on.

struct Walk : Rows {
    // The unit of a feature that the first row of a chunk sees: of the state and of its own key.
    static __device__ __forceinline__ Acc seen_first(Acc unit, Acc log) {
        return log == log ? larger(unit, unit_of(log)) : -Limits<Acc>::lowest();
    }

    // The units of a tile's slots once the chunk's keys are among the others. Returns whether this thread's change what the state has.
    __device__ __forceinline__ bool raise(int tile) {
        bool rose = false;
        for (int i = threadIdx.x; i < FB; i += blockDim.x) {
            const int slot = tile * FB + i;
            const Acc before = state.unit[slot], after = raised(before, column_top, i), decay = change(before, after);
            if (after > seen_first(before, row_top[i]) + Limits<Acc>::rise()) *high = 1;
            tile_unit[i] = state.next[slot] = after;
            tile_decay[i] = decay;
            tile_z[i] = state.z[slot] * decay;
            state.show_z(slot, tile_z[i]);
            rose |= before > Limits<Acc>::lowest() && decay != Acc(1);
        }
        return rose;
    }

    // The features of a tile, of queries by one group and of keys by the other, and the state that the former weigh. Barriers must lie before,
    // since the tile before was read, and after.
    __device__ __forceinline__ void features(Output& output, const Acc (&u)[FB / 8][4], int tile) {
        const int g = lane_index() / 4, t = lane_index() % 4, own = strip_index() * 16, group = group_index();
        const bool seen[2] = {!group || visible[own + g], !group || visible[own + g + 8]};
        Pair<E> made[FB / 8][2];
        bool rose = false;
        if (per_feature) {
            Acc logs[FB / 8][4], factor[2];
            feature_logs(logs, u, tile, own_map, {group ? log_row[own + g] : Acc(0), group ? log_row[own + g + 8] : Acc(0)});
            hide(logs, seen[0], seen[1]);
            const Acc top = column_max(logs);
            if (group) column_top[strip_index() * FB + column_of_lane()] = top;
            if (group && own + g == 0) copy_row(row_top, logs, 0);
            __syncthreads();
            rose = __syncthreads_or(raise(tile));
            raise_rows(output.unit, logs, tile_unit, factor);
            if (!rides) output.den[0] *= factor[0], output.den[1] *= factor[1];
            if (!group && t == 0) row_factor[own + g] = factor[0], row_factor[own + g + 8] = factor[1];
            weight_pairs(made, logs, tile_unit, group ? Acc(-1) : Acc(1), {group ? Acc(0) : output.unit[0], group ? Acc(0) : output.unit[1]});
        } else {
            feature_pairs(made, u, tile, own_map);
            hide(made, seen[0], seen[1]);
        }
        store_pairs((group ? phi_of(tile) : weights + tile % rooms * C * phi_row) + own * phi_row, phi_row, made);
        if (!rides && !group) add_normalisers(output, made, per_feature ? tile_z : state.z + tile * FB);
        state.prepare(tile, tile_decay, rose);
    }

    // The chunk's scores, masked and weighed, into their tile; a lane's part of their sums to `sum`.
    __device__ __forceinline__ void write_scores(const Acc (&score)[C / 16][4], Acc (&sum)[2]) const {
        const int g = lane_index() / 4, t = lane_index() % 4, own = strip_index() * 16;
#pragma unroll
        for (int block = 0; block < C / 32; ++block) {
            const int first = block * 32 + group_index() * 16;
            if (first > own) break;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = own + g + i % 2 * 8, column = first + i / 2 * 8 + 2 * t;
                const Acc(&from)[4] = score[2 * block + i / 2];
                Acc y[2] = {from[i % 2 * 2], from[i % 2 * 2 + 1]};
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    if (may_scale && scaled) y[p] = visible[column + p] ? y[p] * row_weight(column + p, run[row]) : Acc(0);
                    if (first == own && column + p > row) y[p] = Acc(0);
                }
                const Pair<E> rounded = Pairs<E>::of(y[0], y[1]);
                pair_at(scores + row * score_row + column) = rounded;
                if (!rides) sum[i % 2] += Acc(Pairs<E>::low(rounded)) + Acc(Pairs<E>::high(rounded));
            }
        }
    }

    // The weights of a tile of queries times the state and times the chunk's keys; tail: times the two parts of z, where it rides.
    template <class T> __device__ __forceinline__ void multiply_tile(Output& output, Acc (&score)[C / 16][4], Acc (&tail)[4], int tile) const {
        const int own = strip_index() * 16, group = group_index(), met = (strip_index() + 2 - group) / 2 * 16;  // columns up to the rows'
        const T *const mine = weights + (tile % rooms * C + own) * phi_row, *const sums = state.tile_of(tile);
        const T *const own_sums = sums + group * own_columns, *const keys_of = phi_of(tile) + group * 16 * phi_row;
        if constexpr (HELD > 0 && sizeof(T) == 2) {  // it rides
            static_assert(FB == 32, "four matrices of 8 slots");
            unsigned z[4];
            load_matrices<true>(z, sums + lane_index() * v_row + EB);
#pragma unroll
            for (int k = 0; k < FB; k += 16) {
                unsigned left[4];
                load_left<false>(left, mine, phi_row, k);
                product_step<own_columns, false, 16>(output.num, left, own_sums, v_row, k, own_columns);
                mma(tail, left, {z[k / 8], z[k / 8 + 1]}, T{});
                product_step<C / 2, true, 32>(score, left, keys_of, phi_row, k, met);
            }
        } else {
            product<own_columns, FB, false, false>(output.num, mine, phi_row, own_sums, v_row);
            product<C / 2, FB, false, true, 32>(score, mine, phi_row, keys_of, phi_row, met);
        }
    }

    // The rows' scores times the chunk's values, and the sums of both groups' scores.
    template <class T> __device__ __forceinline__ void multiply_scores(Output& output) const {
        const int own = strip_index() * 16, g = lane_index() / 4;
        const T *const mine = scores + own * score_row, *const own_values = values + group_index() * own_columns;
        if constexpr (HELD > 0 && sizeof(T) == 2) {
            Acc total[4] = {output.den[0], Acc(0), output.den[1], Acc(0)};
#pragma unroll
            for (int k = 0; k < C; k += 16) {
                if (k > own) break;
                unsigned left[4];
                load_left<false>(left, mine, score_row, k);
                product_step<own_columns, false, 16>(output.num, left, own_values, v_row, k, own_columns);
                mma(total, left, {ones<T>, ones<T>}, T{});
            }
            output.den[0] = total[0], output.den[1] = total[2];
        } else {
            product<own_columns, C, false, false>(output.num, mine, score_row, own_values, v_row, own_columns, own + 16);
#pragma unroll
            for (int r = 0; r < 2; ++r) output.den[r] = den[own + g + 8 * r] + den[C + own + g + 8 * r];
        }
    }

    // One chunk. Returns how many rows were done, or where it has to end earlier, how many it may have: then nothing has been written, and the state
    // is as it was.
    __device__ __forceinline__ int chunk(int rows) {
        const int g = lane_index() / 4, t = lane_index() % 4, own = strip_index() * 16, group = group_index();
        Output output;
        output.start();
        Acc score[C / 16][4], tail[4] = {};
        clear(score);
        if (STREAM && fetched != row) request_rows(row);
        const int blocks = k_map().tiles() / parts;
        for (int block = ahead && fetched != row ? -1 : 0; block < blocks; ++block) {  // -1: only fetches
            Acc u[FB / 8][4];
            project_own(u, rows, block);
            if (ahead && block < 0) continue;
            for (int part = 0; part < parts; ++part) {
                const int tile = block * parts + part;
                if (!HELD && !per_feature) __syncthreads();
                features(output, u, tile);
                __syncthreads();
                if (per_feature) {
                    const Acc factor[2] = {row_factor[own + g], row_factor[own + g + 8]};
                    output.scale_num(factor);
#pragma unroll
                    for (int p = 0; p < 4; ++p) {
                        tail[p] *= factor[p / 2];
#pragma unroll
                        for (int j = 0; j < C / 16; ++j) score[j][p] *= factor[p / 2];
                    }
                }
                multiply_tile<E>(output, score, tail, tile);
                if (outside()) copy_features(stored + tile * static_cast<long long>(C * phi_row), phi);
            }
        }
        if (per_feature && *high && rows > 1) {
            take_back();
            const int fewer = first_high(rows);
            start_stream();
            return fewer;
        }
        wait_for_copies();
        if (rides) output.den[0] = tail[0] + tail[1], output.den[1] = tail[2] + tail[3];
        if (may_scale && scaled) {
            const Acc factor[2] = {change(state.row_unit, run[own + g]), change(state.row_unit, run[own + g + 8])};
            output.scale(factor);
        }
        write_scores(score, output.den);
        if (!rides)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const Acc sum = row_sum(output.den[r]);
                if (t == 0) den[group * C + own + g + 8 * r] = sum;
            }
        if (__syncthreads_or(rough())) {
            const int finite = first_rough(rows);
            if (finite < rows) {
                take_back();
                fetched = -1;
                return finite;
            }
        }
        if (STREAM && row + rows < stop) request_rows(row + rows);
        multiply_scores<E>(output);
        output.write(out + out_row() * e + column0 + group * own_columns, rows, e, columns() - group * own_columns);
        if (log_z && column0 == 0 && !group && t == 0)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int i = own + g + 8 * r;
                normalisers()[i] = output.den[r];
                normalisers()[C + i] = unit_of_row(i, output.unit[r]);
            }
        take_up(rows);
        return rows;
    }

    // What was shown of the state is shown again. Who still reads it is at work on a chunk that nobody keeps.
    __device__ __forceinline__ void take_back() {
        if (!HELD || !per_feature) return;
        for (int i = threadIdx.x; i < state.slots; i += blockDim.x) state.show_z(i, state.z[i]);
        state.show();
    }

    // The normalisers of the chunk's rows, and their units: where its weights were.
    __device__ __forceinline__ Acc* normalisers() const { return reinterpret_cast<Acc*>(weights); }

    // S <- decay S + phi(k)^T v; z likewise.
    __device__ __forceinline__ void take_up(int rows) {
        const Acc top = next_row_unit(), row_decay = change(state.row_unit, top);
        if (may_scale && scaled) {
            __syncthreads();  // until all have read run and values
            for (int i = threadIdx.x; i < C; i += blockDim.x) run[i] = visible[i] ? row_weight(i, top) : Acc(0);
            __syncthreads();
            for (int i = threadIdx.x; i < C * EB / 4; i += blockDim.x) {
                const int row = i / (EB / 4);
                auto& part = *reinterpret_cast<Packet<E, 4>*>(values + row * v_row + i % (EB / 4) * 4);
                for (E& x : part.x) x = narrow<E>(Acc(widen(x)) * run[row]);
            }
            __syncthreads();
        }
        const int span = outside() ? 1 : k_map().tiles();
        for (int tile = 0; tile < k_map().tiles(); tile += span) {
            if (outside()) {
                copy_features(phi, stored + tile * static_cast<long long>(C * phi_row));
                __syncthreads();
            }
            state.add(phi, tile * FB, span, values, rows, row_decay);
            if (!counts) {
                const auto column = [&](int i) { return phi + i / FB * (C * phi_row) + i % FB; };
                column_sums(span * FB, C, phi_row, may_scale && scaled ? run : nullptr, column, [&](int i, Acc sum) {
                    const int slot = tile * FB + i;
                    state.put_z(slot, state.z[slot] * state.decay(slot, row_decay) + sum);
                });
            }
            if (outside()) __syncthreads();
        }
        state.show();
        __syncthreads();
        if (per_feature)
            for (int i = threadIdx.x; i < state.slots; i += blockDim.x) state.unit[i] = state.next[i];
        state.row_unit = top;
    }

    // The first row past 0 with a key that lies far above what row 0 sees: there is one.
    __device__ __forceinline__ int first_high(int rows) {
        const X* const inputs[2] = {nullptr, k + key_row() * k_map().d};
        int first = rows - 1;
        wait_for_copies();
        for (int block = 0; block < k_map().tiles() / parts; ++block) {
            Acc u[2][FB / 8][4], logs[FB / 8][4];
            project<1, 2>(u, inputs, rows, k_map(), block * FB, true, tiles);
            for (int part = 0; part < parts; ++part) {
                const int tile = block * parts + part;
                __syncthreads();
                if (group_index()) log_features(logs, u[1], tile, k_map(), log_row, visible, column_top, row_top);
                __syncthreads();
                if (!group_index()) continue;
                for_each_of_features([&](int j, int p, int i, int column) {
                    const Acc seen = seen_first(state.unit[tile * FB + column], row_top[column]), own = unit_of(logs[j][p]);
                    if (i > 0 && i < first && !(own <= seen + Limits<Acc>::rise())) first = i;
                });
            }
        }
        return max(1, min(rows - 1, -block_max(-first, reinterpret_cast<int*>(column_top))));  // the walk goes on, whatever happens
    }

    // The first row past 0 whose values are not all finite, or `rows`.
    __device__ __forceinline__ int first_rough(int rows) {
        int first = rows;
        for (int i = 1 + threadIdx.x; i < rows; i += blockDim.x) {
            Acc sum = Acc(0);
#pragma unroll 1
            for (int column = 0; column < EB; ++column) sum += Acc(widen(values[i * v_row + column])) * Acc(0);
            if (sum != Acc(0) && i < first) first = i;
        }
        return max(1, min(rows, -block_max(-first, reinterpret_cast<int*>(row_top))));
    }
};

// The logarithms and signs of the normalisers of a chunk's rows.
__device__ __forceinline__ void write_normalisers(const Walk& w, int rows, const Acc* scale) {
    row_scales(w.log_row, w.q + w.query_row() * w.of_queries().d, scale ? scale + w.query_row() : nullptr, rows, w.of_queries());
    __syncthreads();
    for (int row = threadIdx.x; row < rows; row += blockDim.x) {
        const long long to = w.out_row() + row;
        write_normaliser(w.log_z + to, w.sign_z + to, w.normalisers()[row], w.normalisers()[C + row], w.log_row[row]);
    }
    __syncthreads();
}
