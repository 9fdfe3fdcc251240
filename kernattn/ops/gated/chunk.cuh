// A chunk of 16 tokens in shared memory, beside rows.cuh.
//
// Compile-time: GROUPS = WARPS, so that a tile has 16 rows; EB, columns of v that a block has.

constexpr int READERS = RULE == 0 ? 1 : 2;  // q, and what the rule reads with: k or a
constexpr int WRITERS = RULE == 2 ? 2 : 1;  // k, and b
constexpr int DEPTH = C * WRITERS;

constexpr int s_row = EB + 8;  // accumulators of a row of the state; 8 more keep the banks apart
constexpr int v_row = row_length<E, EB>(), p_row = row_length<E, DEPTH>(), pieces = EB / 16;
constexpr bool shows = !same<E, Acc>;                          // is the state rounded before products read it?
constexpr bool apart = RULE == 2 || (RULE == 1 && CHANNELS);  // has what the rule reads with a tile of its own?
static_assert(pieces <= WARPS, "a warp keeps 16 columns of outputs");

struct Chunk {
    Rows rows;
    int d, wide, t_row, columns;  // d, and in whole 16s; from row to row of a tile; columns of v
    int tokens;                   // that the chunk has
    E *reads, *writes;            // what reads the state: q, and that of the rule; k and b
    Acc* decay;                   // (16, wide), where channels have their own
    Acc *last, *since, *between;  // decays over the chunk, a channel or all; from the start to i; from j to i
    Acc *strength, *row_q, *row_k;
    int *stops, *alone;  // does a chunk end before a row, and is it a chunk of its own?
    E* p;                // (16, DEPTH), scores of q
    Acc *m, *known;      // (16, DEPTH), those of what the rule reads with, and what that reads of the state at the start
    E *u, *left;         // (DEPTH, EB), what tokens write, and that at the end
    Acc* s;
    E* shown;

    __device__ __forceinline__ void carve(Carver& carver) {
        reads = carver.take<E>((1 + apart + WRITERS) * C * t_row);
        writes = reads + (1 + apart) * C * t_row;
        decay = carver.take<Acc>(CHANNELS ? C * wide : 0);
        last = carver.take<Acc>(CHANNELS ? wide : 0);
        since = carver.take<Acc>(C);
        between = carver.take<Acc>(C * C);
        strength = carver.take<Acc>(C);
        row_q = carver.take<Acc>(C);
        row_k = carver.take<Acc>(C);
        stops = carver.take<int>(C);
        alone = carver.take<int>(C);
        p = carver.take<E>(C * p_row);
        m = carver.take<Acc>(C * DEPTH);
        known = carver.take<Acc>(C * s_row);
        u = carver.take<E>(DEPTH * v_row);
        left = carver.take<E>(DEPTH * v_row);
        s = carver.take<Acc>(wide * s_row);
        shown = carver.take<E>(shows ? wide * v_row : 0);
    }

    // The state before all tokens, the `which`-th.
    __device__ __forceinline__ void start(const Given& given, int which, int column0) {
        const long long state = which * static_cast<long long>(d) * given.e + column0;
        for (int i = threadIdx.x; i < wide * EB; i += blockDim.x) {
            const int channel = i / EB, column = i % EB;
            const Acc y = given.before && channel < d && column < columns ? given.before[state + channel * static_cast<long long>(given.e) + column] : Acc(0);
            s[channel * s_row + column] = y;
            if (shows) shown[channel * v_row + column] = narrow<E>(y);
        }
        for (int i = threadIdx.x; i < C; i += blockDim.x) stops[i] = alone[i] = 0;
    }

    __device__ __forceinline__ E* reader(int r) const { return r == 0 ? reads : apart ? reads + C * t_row : writes; }
    __device__ __forceinline__ const E* state() const { return shows ? shown : reinterpret_cast<const E*>(s); }
    __device__ __forceinline__ Acc from_start(int i) const { return CHANNELS ? Acc(1) : since[i]; }

    // Rows of x as operands into one tile or two, zeros where a token has none; a row that is not finite is a chunk of its own.
    template <class T, class There> __device__ __forceinline__ void load(E* tile, E* again, const T* x, int count, bool look, There there) {
        for_each_of_tile(x, d, C, wide, count, d, [&](int row, int column, auto packet) {
            if (!there(row)) packet = {};
            if (look) {
                Acc rough = Acc(0);
                look_at_each(packet, [&](auto y) { rough += Acc(y) * Acc(0); });
                if (rough != Acc(0)) stops[row] = alone[row] = 1;
            }
            store(tile + row * t_row + column, packet);
            if (again) store(again + row * t_row + column, packet);
        });
    }

    // Nothing is left of a channel of the state, whatever there was.
    __device__ __forceinline__ void forget(int c) const {
        for (int i = 0; i < EB; ++i) {
            s[c * s_row + i] = Acc(0);
            if (shows) shown[c * v_row + i] = E{};
        }
    }

    // All that is read of `count` tokens: values of a thread's column come back in x.
    __device__ __forceinline__ void load(const Given& given, Acc (&x)[C], int count) {
        const auto always = [](int) { return true; };
        const auto keys = [&](int i) { return i < count && rows.there(i); };
        load(reads, nullptr, rows.q, count, false, always);
        load(writes, RULE == 1 && apart ? reader(1) : nullptr, rows.k, count, true, keys);
        if (RULE == 2) {
            load(reader(1), nullptr, rows.read, count, true, [&](int i) { return keys(i) && !rows.begins(i); });
            load(writes + C * t_row, nullptr, rows.write, count, true, keys);
            for (int c = threadIdx.x; c < wide; c += blockDim.x)
                if (c >= d || (decayed(rows.log_of(0, c)) == Acc(0) && (rows.begins(0) || rows.read[c] == Acc(0)))) forget(c);
        }
        const int column = threadIdx.x;
#pragma unroll
        for (int i = 0; i < C; ++i) {
            x[i] = column < columns && keys(i) ? Acc(widen(rows.v[i * static_cast<long long>(given.e) + column])) : Acc(0);
            if (!finite(x[i])) stops[i] = alone[i] = 1;
        }
        for (int i = threadIdx.x; i < C; i += blockDim.x) {
            if (RULE == 1) {
                strength[i] = i < count ? rows.strength(i) : Acc(0);
                if (!finite(strength[i])) stops[i] = alone[i] = 1;
            }
            if (i < count && rows.begins(i)) stops[i] = 1;
            row_q[i] = row_k[i] = Acc(1);
            overflowed(i) = Acc(0);
        }
        if (CHANNELS) {
            for (int i = threadIdx.x; i < C * wide; i += blockDim.x) {
                const int row = i / wide, channel = i % wide;
                const Acc log = row < count && channel < d ? rows.log_of(row, channel) : Acc(0);
                if (!finite(log)) stops[row] = 1;
                if (log != log) alone[row] = 1;
                decay[i] = decayed(log);
            }
        } else if (threadIdx.x <= C) {  // sums of logs from j on, and those from the start
            const int j = int(threadIdx.x) - 1;
            Acc total = Acc(0);
            for (int i = 0; i < C; ++i) {
                const Acc log = i < count ? rows.log_of(i, 0) : Acc(0);
                if (j < 0 && !finite(log)) stops[i] = 1;
                if (j < 0 && log != log) alone[i] = 1;
                if (i > j) total += log;
                if (j < 0) since[i] = decayed(total);
                else between[i * C + j] = i < j ? Acc(0) : decayed(total);
            }
        }
    }

    // How many tokens the chunk has; what others would write is made zeros, which the state takes up.
    __device__ __forceinline__ int close(Acc (&x)[C], int loaded) {
        int count = loaded;
        for (int i = loaded - 1; i > 0; --i)
            if (stops[i]) count = i;
        if (alone[0]) count = 1;
#pragma unroll
        for (int i = 0; i < C; ++i)
            if (i >= count) x[i] = Acc(0);
        for (int i = count; i < loaded; ++i)
            for (int c = threadIdx.x; c < t_row; c += blockDim.x)
#pragma unroll
                for (int w = 0; w < WRITERS; ++w) writes[(w * C + i) * t_row + c] = E{};
        tokens = count;
        return count;
    }

    __device__ __forceinline__ void norms(int count) const {
        for (int i = warp_index(); i < count; i += WARPS) {
            const Acc of_q = inverse_norm(reads + i * t_row, d), of_k = inverse_norm(writes + i * t_row, d);
            if (lane_index() == 0) row_q[i] = of_q, row_k[i] = of_k;
        }
        __syncthreads();
    }

    // A score of row i of reader r by what token j writes: `decay` is 0 where there is none.
    __device__ __forceinline__ void put(int r, int w, int i, int j, Acc x, Acc by, Acc scale) const {
        if (j > i - (r && RULE) || i >= tokens) by = Acc(0);
        x = fade(by, x) * (w == 0 ? row_k[j] : Acc(1));
        if (r == 0) p[i * p_row + w * C + j] = narrow<E>(x * (row_q[i] * scale));
        else m[i * DEPTH + w * C + j] = RULE == 1 ? x * row_k[i] : x;
    }

    // Where all channels have one decay: products, decayed. By a warp.
    __device__ __forceinline__ void score(int r, int w, Acc scale) const {
        Acc c[2][4];
        clear(c);
        for (int k = 0; k < wide; k += 64)
            product<16, 64, false, true>(c, reader(r) + k, t_row, writes + w * C * t_row + k, t_row, 16, min(64, wide - k));
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = lane_index() / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane_index() % 4 * 2 + i % 2, until = RULE == 2 ? row - r : row;
            put(r, w, row, column, c[i / 4][i % 4], until < 0 ? Acc(0) : between[until * C + column], scale);
        }
    }

    // Where channels have their own: what j writes fades from token to token. A thread has a j and every 2 WARPS-th channel.
    __device__ __forceinline__ void score_channels(Acc scale) const {
        constexpr int groups = 2 * WARPS;
        const int j = threadIdx.x / groups, group = threadIdx.x % groups, first = warp_index() * (32 / groups);
        Acc sum[READERS][WRITERS][C] = {};
        for (int c = group; c < wide; c += groups) {
            Acc faded[WRITERS];
#pragma unroll
            for (int w = 0; w < WRITERS; ++w) faded[w] = Acc(widen(writes[(w * C + j) * t_row + c]));
#pragma unroll
            for (int i = 0; i < C; ++i) {
                if (i < first) continue;
                const Acc by = i > j ? decay[i * wide + c] : Acc(1), query = Acc(widen(reads[i * t_row + c]));
                const Acc other = READERS > 1 ? Acc(widen(reader(1)[i * t_row + c])) : Acc(0);
#pragma unroll
                for (int w = 0; w < WRITERS; ++w) {
                    if (RULE == 2) sum[READERS - 1][w][i] += other * faded[w];
                    faded[w] *= by;
                    if (RULE == 1) sum[READERS - 1][w][i] += other * faded[w];
                    sum[0][w][i] += query * faded[w];
                }
            }
        }
#pragma unroll
        for (int i = 0; i < C; ++i) {
            if (i < first) continue;
#pragma unroll
            for (int r = 0; r < READERS; ++r)
#pragma unroll
                for (int w = 0; w < WRITERS; ++w) {
                    Acc x = sum[r][w][i];
#pragma unroll
                    for (int bits = groups / 2; bits > 0; bits /= 2) x += __shfl_xor_sync(all_lanes, x, bits);
                    if (group == 0 && i >= j) put(r, w, i, j, x, Acc(1), scale);
                }
        }
        for (int i = threadIdx.x; i < C * C; i += blockDim.x)  // above the diagonal
            if (i % C > i / C)
                for (int w = 0; w < WRITERS; ++w) p[i / C * p_row + w * C + i % C] = E{};
    }

    // Rows that read get the decay from the start, those that write that to the end. A thread a channel.
    __device__ __forceinline__ void decay_channels(int count) {
        for (int c = threadIdx.x; c < wide; c += blockDim.x) {
            Acc total = Acc(0), before = Acc(1), after = Acc(1);
            for (int i = 0; i < count; ++i) {
                total += c < d ? rows.log_of(i, c) : Acc(0);
                const Acc now = decayed(total);
                E* const at = reads + i * t_row + c;
                *at = narrow<E>(now * Acc(widen(*at)));
                if (RULE) at[C * t_row] = narrow<E>((RULE == 1 ? now : before) * Acc(widen(at[C * t_row])));
                before = now;
            }
            last[c] = before;
            for (int i = count - 1; i >= 0; --i) {
#pragma unroll
                for (int w = 0; w < WRITERS; ++w) {
                    E* const at = writes + (w * C + i) * t_row + c;
                    *at = narrow<E>(after * Acc(widen(*at)));
                }
                after *= decay[i * wide + c];
            }
            if (RULE < 2 && (c >= d || decay[c] == Acc(0))) forget(c);
        }
    }

    // What rows read of the state at the start, 16 columns of it. By a warp.
    __device__ __forceinline__ void read_start(Acc (&c)[2][4], int r, int piece) const {
        constexpr int row = shows ? v_row : s_row;
        clear(c);
        for (int k = 0; k < wide; k += 64)
            product<16, 64, false, false>(c, reader(r) + k, t_row, state() + k * row + piece * 16, row, 16, min(64, wide - k));
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int at = lane_index() / 4 + i % 4 / 2 * 8;
            const Acc by = RULE == 2 && r ? (at ? from_start(at - 1) : Acc(1)) : from_start(at);
            c[i / 4][i % 4] = fade(by, c[i / 4][i % 4]);
        }
    }
    __device__ __forceinline__ void read_known(int piece) const {
        Acc c[2][4];
        read_start(c, READERS - 1, piece);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int row = lane_index() / 4 + i % 4 / 2 * 8;
            known[row * s_row + piece * 16 + i / 4 * 8 + lane_index() % 4 * 2 + i % 2] = c[i / 4][i % 4] * (RULE == 1 ? row_k[row] : Acc(1));
        }
    }

    // What tokens write, from their values; row after row, a thread a column.
    __device__ __forceinline__ void substitute(const Acc (&x)[C], int count) const {
        const int column = threadIdx.x;
        Acc y[DEPTH];
#pragma unroll
        for (int i = 0; i < C; ++i) y[i] = x[i];
        if (RULE)
#pragma unroll
            for (int i = 0; i < C; ++i) {
                Acc sum = known[i * s_row + column];
#pragma unroll
                for (int j = 0; j < i; ++j)
#pragma unroll
                    for (int w = 0; w < WRITERS; ++w) sum += m[i * DEPTH + w * C + j] * y[w * C + j];
                if (i >= count) sum = Acc(0);
                y[DEPTH - C + i] = RULE == 1 ? strength[i] * (y[i] - sum) : sum;
                if (i >= count) y[DEPTH - C + i] = Acc(0);
            }
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            u[i * v_row + column] = narrow<E>(y[i]);
            if (RULE && !finite(Acc(widen(u[i * v_row + column])))) overflowed(i % C) = Acc(1);
            const Acc tail = CHANNELS ? Acc(1) : between[(count - 1) * C + i % C];
            left[i * v_row + column] = narrow<E>(i % C < count ? fade(tail, y[i]) * (i < C ? row_k[i] : Acc(1)) : Acc(0));
        }
    }

    // Does a token write what is no float? In the room between rows of `known`.
    __device__ __forceinline__ Acc& overflowed(int i) const { return known[i * s_row + EB]; }
    __device__ __forceinline__ int finite_rows(int count) const {
        for (int i = 0; i < count; ++i)
            if (overflowed(i) != Acc(0)) return i;
        return count;
    }

    // The state at the end: decayed, and with what tokens write by `keys`. A warp has strips of 16 channels.
    __device__ __forceinline__ void carry(int count, const E* keys, const E* values) const {
        const int g = lane_index() / 4, t = lane_index() % 4;
        for (int first = warp_index() * 16; first < wide; first += WARPS * 16) {
            const Acc by[2] = {CHANNELS ? last[first + g] : since[count - 1], CHANNELS ? last[first + g + 8] : since[count - 1]};
            const auto pair = [&](int j, int r) { return reinterpret_cast<Packet<Acc, 2>*>(s + (first + g + 8 * r) * s_row + 8 * j + 2 * t); };
            Acc sum[EB / 8][4];
#pragma unroll
            for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const Packet<Acc, 2> old = *pair(j, r);
                    sum[j][2 * r] = fade(by[r], old.x[0]), sum[j][2 * r + 1] = fade(by[r], old.x[1]);
                }
            product<EB, DEPTH, true, false>(sum, keys + first, t_row, values, v_row, EB, DEPTH);
#pragma unroll
            for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    *pair(j, r) = {sum[j][2 * r], sum[j][2 * r + 1]};
                    if (shows) pair_at(shown + (first + g + 8 * r) * v_row + 8 * j + 2 * t) = Pairs<E>::of(sum[j][2 * r], sum[j][2 * r + 1]);
                }
        }
    }
};
