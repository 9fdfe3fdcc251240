// Gated linear attention. `tokens` takes a few tokens one by one, and `chunks` walks along a sequence, 16 tokens at a time. Blocks share out the
// entries and the columns of v: columns of a state do not see each other. blockIdx.x = entry * e_blocks + e block.

// A lane a column, 32 of them; a warp has every WARPS-th row of the state, which is read and written once.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
tokens(const X* q, const X* k, const X* v, const Acc* logs, const Acc* beta, const Acc* read, const Acc* write, const unsigned char* mask,
       const unsigned char* fresh, const Acc* before, const int* table, Acc scale, int normalise, long long n, int d, int e, X* out, Acc* after) {
    const Given given{q, k, v, logs, beta, read, write, mask, fresh, before, table, scale, normalise, n, d, e};
    const int e_blocks = (e + 31) / 32, lane = lane_index(), column = blockIdx.x % e_blocks * 32 + lane, entry = blockIdx.x / e_blocks;
    const int* const at = table + entry * PLACES;
    const bool own = column < e;
    Carver carver{shared_bytes};
    Acc* const s = carver.take<Acc>(d * 32) + lane;
    Acc* const vectors = carver.take<Acc>((1 + READERS + WRITERS) * d);
    Acc *const query = vectors, *const key = vectors + d, *const decay = vectors + 2 * d, *const a = vectors + 3 * d, *const b = vectors + 4 * d;
    Acc *const sums = carver.take<Acc>(2 * WARPS * 32), *const norms = carver.take<Acc>(2);
    const long long state = at[STATE_AT] * static_cast<long long>(d) * e + column;
#pragma unroll 8
    for (int c = warp_index(); c < d; c += WARPS) s[c * 32] = before && own ? before[state + c * static_cast<long long>(e)] : Acc(0);
    if (threadIdx.x < 2) norms[threadIdx.x] = Acc(1);

    for (long long t = 0; t < n; ++t) {
        const Rows row(given, at, t);
        const bool there = row.there(0);
        for (int c = threadIdx.x; c < d; c += blockDim.x) {
            query[c] = Acc(widen(row.q[c]));
            key[c] = there ? Acc(widen(row.k[c])) : Acc(0);
            decay[c] = decayed(row.log_of(0, c));
            if (RULE == 2) a[c] = there && !row.begins(0) ? row.read[c] : Acc(0), b[c] = there ? row.write[c] : Acc(0);
        }
        const Acc value = own && there ? Acc(widen(row.v[column])) : Acc(0);
        __syncthreads();
        if (normalise && warp_index() < 2) {
            const Acc of = inverse_norm(warp_index() ? key : query, d);
            if (lane == 0) norms[warp_index()] = of;
        }
        Acc known = Acc(0);
        for (int c = warp_index(); c < d; c += WARPS) {
            const Acc x = s[c * 32], y = fade(decay[c], x);
            if (RULE) known += RULE == 1 ? key[c] * y : a[c] * x;
            s[c * 32] = y;
        }
        sums[threadIdx.x] = known;
        __syncthreads();
        if (RULE) {
            known = Acc(0);
            for (int w = 0; w < WARPS; ++w) known += sums[w * 32 + lane];
        }
        Acc u = RULE == 1 ? row.strength(0) * (value - norms[1] * known) : value;
        u *= norms[1];
        Acc sum = Acc(0);
        for (int c = warp_index(); c < d; c += WARPS) {
            const Acc x = s[c * 32] + key[c] * u + (RULE == 2 ? b[c] * known : Acc(0));
            s[c * 32] = x;
            sum += query[c] * x;
        }
        sums[WARPS * 32 + threadIdx.x] = sum;
        __syncthreads();
        if (warp_index() == 0 && own) {
            sum = Acc(0);
            for (int w = 0; w < WARPS; ++w) sum += sums[(WARPS + w) * 32 + lane];
            out[(entry * n + t) * e + column] = narrow<X>(scale * norms[0] * sum);
        }
    }
    if (at[KEPT_AT] < 0 || !own) return;
    for (int c = warp_index(); c < d; c += WARPS) after[state + c * static_cast<long long>(e)] = s[c * 32];
}

constexpr int s_row = EB + 8;  // accumulators of a row of the state; 8 more keep the banks apart
constexpr int v_row = row_length<E, EB>(), p_row = row_length<E, DEPTH>(), pieces = EB / 16;
constexpr bool shows = !same<E, Acc>;                          // is the state rounded before products read it?
constexpr bool apart = RULE == 2 || (RULE == 1 && CHANNELS);  // has what the rule reads with a tile of its own?
static_assert(pieces <= WARPS, "a warp keeps 16 columns of outputs");

struct Chunk {
    Rows rows;
    int d, wide, t_row, columns;  // d, and in whole 16s; from row to row of a tile; columns of v
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

    // All that is read of `count` tokens: values of a thread's column come back in x.
    __device__ __forceinline__ void load(const Given& given, Acc (&x)[C], int count) {
        const auto always = [](int) { return true; };
        const auto keys = [&](int i) { return i < count && rows.there(i); };
        load(reads, nullptr, rows.q, count, false, always);
        load(writes, RULE == 1 && apart ? reader(1) : nullptr, rows.k, count, true, keys);
        if (RULE == 2) {
            load(reader(1), nullptr, rows.read, count, true, [&](int i) { return keys(i) && !rows.begins(i); });
            load(writes + C * t_row, nullptr, rows.write, count, true, keys);
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
    __device__ __forceinline__ int close(Acc (&x)[C], int loaded) const {
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
        if (j > i - (r && RULE)) by = Acc(0);
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
    __device__ __forceinline__ void decay_channels(int count, bool begins) {
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
            if (c >= d || (decay[c] == Acc(0) && (RULE < 2 || begins)))  // nothing is left, whatever there was
                for (int i = 0; i < EB; ++i) {
                    s[c * s_row + i] = Acc(0);
                    if (shows) shown[c * v_row + i] = E{};
                }
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
            const Acc tail = CHANNELS ? Acc(1) : between[(count - 1) * C + i % C];
            left[i * v_row + column] = narrow<E>(i % C < count ? fade(tail, y[i]) * (i < C ? row_k[i] : Acc(1)) : Acc(0));
        }
    }

    // The state at the end. A warp has strips of 16 channels.
    __device__ __forceinline__ void carry(int count) const {
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
            product<EB, DEPTH, true, false>(sum, writes + first, t_row, left, v_row, EB, DEPTH);
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

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
chunks(const X* q, const X* k, const X* v, const Acc* logs, const Acc* beta, const Acc* read, const Acc* write, const unsigned char* mask,
       const unsigned char* fresh, const Acc* before, const int* table, Acc scale, int normalise, long long n, int d, int e, X* out, Acc* after) {
    const Given given{q, k, v, logs, beta, read, write, mask, fresh, before, table, scale, normalise, n, d, e};
    const int e_blocks = (e + EB - 1) / EB, column0 = blockIdx.x % e_blocks * EB, entry = blockIdx.x / e_blocks;
    const int* const at = table + entry * PLACES;
    const int wide = (d + 15) / 16 * 16, t_row = wide + padding<E>();
    Carver carver{shared_bytes};
    Chunk x{{given, at, 0}, d, wide, t_row, min(EB, e - column0)};
    x.reads = carver.take<E>((1 + apart + WRITERS) * C * t_row);
    x.writes = x.reads + (1 + apart) * C * t_row;
    x.decay = carver.take<Acc>(CHANNELS ? C * wide : 0);
    x.last = carver.take<Acc>(CHANNELS ? wide : 0);
    x.since = carver.take<Acc>(C);
    x.between = carver.take<Acc>(C * C);
    x.strength = carver.take<Acc>(C);
    x.row_q = carver.take<Acc>(C);
    x.row_k = carver.take<Acc>(C);
    x.stops = carver.take<int>(C);
    x.alone = carver.take<int>(C);
    x.p = carver.take<E>(C * p_row);
    x.m = carver.take<Acc>(C * DEPTH);
    x.known = carver.take<Acc>(C * s_row);
    x.u = carver.take<E>(DEPTH * v_row);
    x.left = carver.take<E>(DEPTH * v_row);
    x.s = carver.take<Acc>(wide * s_row);
    x.shown = carver.take<E>(shows ? wide * v_row : 0);

    const long long state = at[STATE_AT] * static_cast<long long>(d) * e + column0;
    for (int i = threadIdx.x; i < wide * EB; i += blockDim.x) {
        const int channel = i / EB, column = i % EB;
        const Acc y = before && channel < d && column < x.columns ? before[state + channel * static_cast<long long>(e) + column] : Acc(0);
        x.s[channel * s_row + column] = y;
        if (shows) x.shown[channel * v_row + column] = narrow<E>(y);
    }
    for (int i = threadIdx.x; i < C; i += blockDim.x) x.stops[i] = x.alone[i] = 0;
    for (long long row = 0; row < n;) {
        __syncthreads();
        Acc values[C], own[2][4];
        const int loaded = int(min(n - row, static_cast<long long>(C)));
        x.rows = Rows(given, at, row);
        x.rows.v += column0;
        x.load(given, values, loaded);
        __syncthreads();
        const int count = x.close(values, loaded);
        if (normalise) x.norms(count);
        if (CHANNELS) {
            x.score_channels(scale);
            __syncthreads();
            x.decay_channels(count, x.rows.begins(0));
            __syncthreads();
        }
        if (warp_index() < pieces) x.read_start(own, 0, warp_index());
        constexpr int scores = CHANNELS ? 0 : READERS * WRITERS, others = scores + (RULE ? pieces : 0);
        for (int task = (warp_index() + WARPS - pieces) % WARPS; task < others; task += WARPS) {
            if (task < scores) x.score(task / WRITERS, task % WRITERS, scale);
            else x.read_known(task - scores);
        }
        __syncthreads();
        if (threadIdx.x < EB) x.substitute(values, count);
        for (int i = threadIdx.x; i < C; i += blockDim.x) x.stops[i] = x.alone[i] = 0;
        __syncthreads();
        if (warp_index() < pieces) {
            const int g = lane_index() / 4, first = warp_index() * 16 + lane_index() % 4 * 2;
#pragma unroll
            for (int i = 0; i < 8; ++i) own[i / 4][i % 4] *= x.row_q[g + i % 4 / 2 * 8] * scale;
            product<16, DEPTH, false, false>(own, x.p, p_row, x.u + warp_index() * 16, v_row, 16, DEPTH);
            X* const to = out + (entry * n + row) * e + column0;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int at_row = g + i % 4 / 2 * 8, column = first + i / 4 * 8 + i % 2;
                if (at_row < count && column < x.columns) to[at_row * static_cast<long long>(e) + column] = narrow<X>(own[i / 4][i % 4]);
            }
        }
        x.carry(count);
        row += count;
    }
    __syncthreads();
    if (at[KEPT_AT] < 0) return;
    for (int i = threadIdx.x; i < d * EB; i += blockDim.x)
        if (i % EB < x.columns) after[state + i / EB * static_cast<long long>(e) + i % EB] = x.s[i / EB * s_row + i % EB];
}
