// Cotangents of gated linear attention. A block has some columns of the states of an entry: it walks to the end, and back, 16 tokens at a time,
// from states that it keeps on the way. What a delta rule subtracts is a reading of keys by keys, with the cotangent -dy in place of an output's.
//
// Runs on gated/chunk.cuh, with RULE 0 or 1. A block writes its columns of dv and of the state's cotangent, and its part of the others, which
// are sums over all columns: (e blocks, entries, n, ...).

constexpr int GROUP = 8;  // windows of 16 tokens between states that are kept for good

struct Pull : Chunk {
    E *q_start, *k_start, *k_end;  // (16, d), rows times the decay from the start, or to the end
    E *d_out, *d_known;            // (16, EB), cotangents of what q and k read
    Acc *of_scores, *wide_rows;    // (2, 16, 16); (3, 16, wide): what q, k and writing take of the states
    Acc *d_s, *terms;              // the cotangent of the state; (16, EB)
    E* d_shown;

    __device__ __forceinline__ void carve_more(Carver& carver) {
        q_start = carver.take<E>(3 * C * t_row);
        k_start = q_start + C * t_row;
        k_end = k_start + C * t_row;
        d_out = carver.take<E>(2 * C * v_row);
        d_known = d_out + C * v_row;
        of_scores = carver.take<Acc>(2 * C * C);
        wide_rows = carver.take<Acc>(3 * C * wide);
        d_s = carver.take<Acc>(wide * s_row);
        terms = carver.take<Acc>(C * s_row);
        d_shown = carver.take<E>(shows ? wide * v_row : 0);
    }
    __device__ __forceinline__ const E* d_state() const { return shows ? d_shown : reinterpret_cast<const E*>(d_s); }

    // Rows over their norms; these are 1 from now on.
    __device__ __forceinline__ void unit_rows(int count) const {
        norms(count);
        for (int i = threadIdx.x; i < count * wide; i += blockDim.x) {
            E &x = reads[i / wide * t_row + i % wide], &y = writes[i / wide * t_row + i % wide];
            x = narrow<E>(row_q[i / wide] * Acc(widen(x)));
            y = narrow<E>(row_k[i / wide] * Acc(widen(y)));
            if (RULE == 1 && apart) reader(1)[i / wide * t_row + i % wide] = y;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < C; i += blockDim.x) row_q[i] = row_k[i] = Acc(1);
        __syncthreads();
    }

    __device__ __forceinline__ Acc log_at(int i, int channel) const { return channel < d ? rows.log_of(i, channel) : Acc(0); }

    // Rows as they meet the states at the start and at the end; a thread a channel.
    __device__ __forceinline__ void spread(int count) const {
        for (int c = threadIdx.x; c < wide; c += blockDim.x) {
            Acc total = Acc(0), now = Acc(1), after = Acc(1);
            for (int i = 0; i < C; ++i) {
                if (CHANNELS && i < count) total += log_at(i, c), now = decayed(total);
                const Acc by = i >= count ? Acc(0) : CHANNELS ? now : since[i];
                q_start[i * t_row + c] = narrow<E>(fade(by, Acc(widen(reads[i * t_row + c]))));
                k_start[i * t_row + c] = narrow<E>(fade(by, Acc(widen(writes[i * t_row + c]))));
            }
            if (CHANNELS) last[c] = now;
            for (int i = C - 1; i >= 0; --i) {
                const Acc by = i >= count ? Acc(0) : CHANNELS ? after : between[(count - 1) * C + i];
                k_end[i * t_row + c] = narrow<E>(fade(by, Acc(widen(writes[i * t_row + c]))));
                if (CHANNELS && i < count) after *= decay[i * wide + c];
            }
            if (CHANNELS && (c >= d || decay[c] == Acc(0)))
                for (int i = 0; i < EB; ++i) {
                    s[c * s_row + i] = Acc(0);
                    if (shows) shown[c * v_row + i] = E{};
                }
        }
    }

    // x (16, depth) times columns of a state, into y. By a warp.
    __device__ __forceinline__ void times_state(Acc (&c)[2][4], const E* x, const E* y, int piece) const {
        constexpr int row = shows ? v_row : s_row;
        for (int k = 0; k < wide; k += 64) product<16, 64, false, false>(c, x + k, t_row, y + k * row + piece * 16, row, 16, min(64, wide - k));
    }
    template <class Put> static __device__ __forceinline__ void each(const Acc (&c)[2][4], Put put) {
#pragma unroll
        for (int i = 0; i < 8; ++i) put(lane_index() / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane_index() % 4 * 2 + i % 2, c[i / 4][i % 4]);
    }

    // Scores and what tokens write, from the state at the start; values of a thread's column become what is left of them, y.
    __device__ __forceinline__ int forward(const Given& given, Acc (&x)[C], int loaded) {
        load(given, x, loaded);
        __syncthreads();
        const int count = close(x, loaded);
        if (given.normalise) unit_rows(count);
        spread(count);
        if (CHANNELS) score_channels(Acc(1));
        __syncthreads();
        constexpr int scores = CHANNELS ? 0 : READERS;
        for (int task = warp_index(); task < scores + (RULE ? pieces : 0); task += WARPS) {
            if (task < scores) {
                score(task, 0, Acc(1));
            } else {
                Acc c[2][4];
                clear(c);
                times_state(c, k_start, state(), task - scores);
                each(c, [&](int i, int j, Acc y) { known[i * s_row + (task - scores) * 16 + j] = y; });
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < C; i += blockDim.x) stops[i] = alone[i] = 0;
        if (threadIdx.x < EB) {
            const int column = threadIdx.x;
            Acc y[C];
#pragma unroll
            for (int i = 0; i < C; ++i) {
                if (RULE) {
                    Acc sum = known[i * s_row + column];
#pragma unroll
                    for (int j = 0; j < i; ++j) sum += m[i * C + j] * y[j];
                    x[i] = i < count ? x[i] - sum : Acc(0);
                }
                y[i] = RULE ? i < count ? strength[i] * x[i] : Acc(0) : x[i];
                u[i * v_row + column] = narrow<E>(y[i]);
            }
        }
        __syncthreads();
        return count;
    }

    // Cotangents of `count` tokens from those of their outputs and of the state after them, which becomes that of the state before.
    template <class Row> __device__ __forceinline__ void back(const Acc (&x)[C], int count, const Row& to) const {
        for (int task = warp_index(); task < pieces; task += WARPS) {  // what is told of what tokens write
            Acc c[2][4];
            clear(c);
            product<16, C, true, false>(c, p, p_row, d_out + task * 16, v_row, 16, C);
            times_state(c, k_end, d_state(), task);
            each(c, [&](int i, int j, Acc y) { known[i * s_row + task * 16 + j] = y; });
        }
        __syncthreads();
        if (threadIdx.x < EB) {
            const int column = threadIdx.x;
            Acc y[C];
#pragma unroll
            for (int i = C - 1; i >= 0; --i) {
                Acc sum = known[i * s_row + column];
                if (RULE)
#pragma unroll
                    for (int l = C - 1; l > i; --l)
                        if (l < count) sum -= m[l * C + i] * y[l];
                if (i >= count) sum = Acc(0);
                y[i] = RULE ? strength[i] * sum : sum;
                if (i >= count) y[i] = Acc(0);
                d_known[i * v_row + column] = narrow<E>(-y[i]);
                terms[i * s_row + column] = sum * x[i];
                if (i < count && column < columns) to.v[i * static_cast<long long>(to.e) + column] = y[i];
            }
        }
        __syncthreads();
        if (RULE)
            for (int i = warp_index(); i < count; i += WARPS) {
                Acc sum = Acc(0);
                for (int c = lane_index(); c < columns; c += 32) sum += terms[i * s_row + c];
                sum = warp_sum(sum);
                if (lane_index() == 0) to.beta[i] = sum;
            }
        const int strips = wide / 16;
        constexpr int row = shows ? v_row : s_row;
        for (int task = warp_index(); task < READERS + 3 * strips; task += WARPS) {
            Acc c[2][4];
            clear(c);
            if (task < READERS) {
                product<16, EB, false, true>(c, task ? d_known : d_out, v_row, u, v_row, 16, EB);
                each(c, [&](int i, int j, Acc y) { of_scores[(task * C + i) * C + j] = j <= i - task && i < count ? y : Acc(0); });
            } else {
                const int which = (task - READERS) / strips, first = (task - READERS) % strips * 16;
                if (RULE == 0 && which == 1) continue;
                product<16, EB, false, true>(c, which == 0 ? d_out : which == 1 ? d_known : u, v_row, (which == 2 ? d_state() : state()) + first * row, row, 16, EB);
                each(c, [&](int i, int j, Acc y) { wide_rows[(which * C + i) * wide + first + j] = y; });
            }
        }
        __syncthreads();
        channels(count, to);
        __syncthreads();
        for (int first = warp_index() * 16; first < wide; first += WARPS * 16) {
            const int g = lane_index() / 4, t = lane_index() % 4;
            const auto pair = [&](int j, int r) { return reinterpret_cast<Packet<Acc, 2>*>(d_s + (first + g + 8 * r) * s_row + 8 * j + 2 * t); };
            Acc sum[EB / 8][4];
#pragma unroll
            for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const Packet<Acc, 2> old = *pair(j, r);
                    const Acc by = CHANNELS ? last[first + g + 8 * r] : since[count - 1];
                    sum[j][2 * r] = fade(by, old.x[0]), sum[j][2 * r + 1] = fade(by, old.x[1]);
                }
            product<EB, C, true, false>(sum, q_start + first, t_row, d_out, v_row, EB, C);
            if (RULE) product<EB, C, true, false>(sum, k_start + first, t_row, d_known, v_row, EB, C);
#pragma unroll
            for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    *pair(j, r) = {sum[j][2 * r], sum[j][2 * r + 1]};
                    if (shows) pair_at(d_shown + (first + g + 8 * r) * v_row + 8 * j + 2 * t) = Pairs<E>::of(sum[j][2 * r], sum[j][2 * r + 1]);
                }
        }
    }

    // Cotangents of queries, keys and logs. A thread a channel.
    template <class Row> __device__ __forceinline__ void channels(int count, const Row& to) const {
        for (int c0 = 0; c0 < wide; c0 += blockDim.x) {
            const int c = c0 + threadIdx.x;
            Acc dq[C], dk[C], logs[C];
#pragma unroll
            for (int i = 0; i < C; ++i) dq[i] = dk[i] = logs[i] = Acc(0);
            if (c < wide) {
                const auto of_q = [&](int i) { return Acc(widen(reads[i * t_row + c])); };
                const auto of_k = [&](int i) { return Acc(widen(writes[i * t_row + c])); };
                Acc total = Acc(0), now = Acc(1), after = Acc(1), all = Acc(0);
#pragma unroll
                for (int i = 0; i < C; ++i) {  // what reads the state at the start: all logs up to it
                    if (i >= count) break;
                    if (CHANNELS) total += log_at(i, c), now = decayed(total);
                    const Acc by = CHANNELS ? now : since[i];
                    dq[i] = fade(by, wide_rows[i * wide + c]);
                    logs[i] = of_q(i) * dq[i];
                    if (RULE) dk[i] = fade(by, wide_rows[(C + i) * wide + c]), logs[i] += of_k(i) * dk[i];
                    if (!CHANNELS) now = by;
                }
                for (int j = 0; j < EB; ++j) all += fade(now, s[c * s_row + j] * d_s[c * s_row + j]);
#pragma unroll
                for (int i = C - 2; i >= 0; --i) logs[i] += logs[i + 1];
                Acc left[C];
#pragma unroll
                for (int i = C - 1; i >= 0; --i) {  // what is left at the end: all logs after it
                    left[i] = Acc(0);
                    if (i >= count) continue;
                    Acc& x = wide_rows[(2 * C + i) * wide + c];
                    x = fade(CHANNELS ? after : between[(count - 1) * C + i], x);
                    left[i] = of_k(i) * x;
                    if (CHANNELS) after *= decay[i * wide + c];
                }
                Acc before = all;
#pragma unroll
                for (int i = 0; i < C; ++i) logs[i] += before, before += left[i];
#pragma unroll 1
                for (int j = 0; j < count; ++j) {  // what i reads of j: the logs between them
                    Acc fades[C], by = Acc(1), sum = Acc(0), later = Acc(0);
                    const Acc key = of_k(j);
#pragma unroll
                    for (int i = 0; i < C; ++i) {
                        fades[i] = Acc(0);
                        if (i < j || i >= count) continue;
                        by = i == j ? Acc(1) : CHANNELS ? by * decay[i * wide + c] : between[i * C + j];
                        const Acc q = by * of_scores[i * C + j], k = RULE ? by * of_scores[(C + i) * C + j] : Acc(0);
                        dq[i] += q * key;
                        if (RULE) dk[i] += k * key;
                        const Acc x = q * of_q(i) + (RULE ? k * of_k(i) : Acc(0));
                        sum += x;
                        fades[i] = x * key;
                    }
                    wide_rows[(2 * C + j) * wide + c] += sum;
#pragma unroll
                    for (int i = C - 1; i >= 0; --i)
                        if (i > j) later += fades[i], logs[i] += later;
                }
            }
#pragma unroll
            for (int i = 0; i < C; ++i) {
                if (i >= count) break;
                if (c < d) {
                    to.q[i * static_cast<long long>(d) + c] = dq[i];
                    to.k[i * static_cast<long long>(d) + c] = dk[i] + wide_rows[(2 * C + i) * wide + c];
                    if (CHANNELS && to.logs) to.logs[i * static_cast<long long>(d) + c] = logs[i];
                }
                if (!CHANNELS && to.logs) {
                    const Acc sum = warp_sum(c < d ? logs[i] : Acc(0));
                    if (lane_index() == 0) terms[i * s_row + warp_index()] = sum + (c0 ? terms[i * s_row + warp_index()] : Acc(0));
                }
            }
        }
        if (!CHANNELS && to.logs) {
            __syncthreads();
            for (int i = threadIdx.x; i < count; i += blockDim.x) {
                Acc sum = Acc(0);
                for (int w = 0; w < WARPS; ++w) sum += terms[i * s_row + w];
                to.logs[i] = sum;
            }
        }
    }
};

// Where cotangents of a token and those after it go.
struct Told {
    Acc *q, *k, *v, *logs, *beta;
    int e;
};

// States at the starts of windows: room for (blocks, groups + GROUP) of them, as they lie in shared memory.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
pull_back(const X* q, const X* k, const X* v, const Acc* logs, const Acc* beta, const Acc* read, const Acc* write, const unsigned char* mask,
          const unsigned char* fresh, const Acc* before, const int* table, Acc scale, int normalise, long long n, int d, int e, const Acc* g_out,
          const Acc* g_after, Acc* room, Acc* dq, Acc* dk, Acc* dv, Acc* d_logs, Acc* d_beta, Acc* d_state) {
    const Given given{q, k, v, logs, beta, read, write, mask, fresh, before, table, scale, normalise, n, d, e};
    const int e_blocks = (e + EB - 1) / EB, block = blockIdx.x % e_blocks, column0 = block * EB, entry = blockIdx.x / e_blocks;
    const int entries = gridDim.x / e_blocks;
    const int* const at = table + entry * PLACES;
    const int wide = (d + 15) / 16 * 16, t_row = wide + padding<E>(), windows = int((n + C - 1) / C), groups = (windows + GROUP - 1) / GROUP;
    const long long size = static_cast<long long>(wide) * s_row;
    Acc* const kept = room + blockIdx.x * (groups + GROUP) * size;
    Acc* const near = kept + groups * size;
    Carver carver{shared_bytes};
    Pull x{{{given, at, 0}, d, wide, t_row, min(EB, e - column0)}};
    x.carve(carver);
    x.carve_more(carver);
    x.start(given, at, column0);
    const long long state = at[STATE_AT] * static_cast<long long>(d) * e + column0, own = entry * static_cast<long long>(d) * e + column0;
    for (int i = threadIdx.x; i < wide * EB; i += blockDim.x) {
        const int channel = i / EB, column = i % EB;
        const Acc y = g_after && at[KEPT_AT] >= 0 && channel < d && column < x.columns ? g_after[state + channel * static_cast<long long>(e) + column] : Acc(0);
        x.d_s[channel * s_row + column] = y;
        if (shows) x.d_shown[channel * v_row + column] = narrow<E>(y);
    }

    const auto keep = [&](Acc* to) {
        for (int i = threadIdx.x; i < wide * EB; i += blockDim.x) to[i / EB * s_row + i % EB] = x.s[i / EB * s_row + i % EB];
    };
    const auto fetch = [&](const Acc* from) {
        for (int i = threadIdx.x; i < wide * EB; i += blockDim.x) {
            const Acc y = from[i / EB * s_row + i % EB];
            x.s[i / EB * s_row + i % EB] = y;
            if (shows) x.shown[i / EB * v_row + i % EB] = narrow<E>(y);
        }
    };
    // First to the end, keeping states (0). Then for each group of windows, from the last: through it, keeping those of its windows (1), and back,
    // a chunk at a time (2): a window of several is walked again for each of them.
    int phase = 0, window = 0, group = groups - 1;
    long long row = 0, end = 0;
    for (;;) {
        const long long begin = window * static_cast<long long>(C), stop = min(n, begin + C);
        if (phase < 2 && row == begin) {
            if (phase == 1) keep(near + (window - group * GROUP) * size);
            else if (window % GROUP == 0) keep(kept + window / GROUP * size);
            if (phase == 0 && window == windows - 1) {
                phase = 1, window = group * GROUP, row = window * static_cast<long long>(C);
                fetch(kept + group * size);
                continue;
            }
            if (phase == 1 && window == min(windows, (group + 1) * GROUP) - 1) phase = 2, end = stop;
        }
        __syncthreads();
        Acc values[C];
        x.rows = Rows(given, at, row);
        x.rows.v += column0;
        const int count = x.forward(given, values, int(stop - row));
        if (phase < 2 || row + count < end) {
            x.carry(count, x.k_end, x.u);
            row += count;
            if (phase < 2 && row == stop) {
                ++window;
                __syncthreads();
            }
            continue;
        }
        const long long token = entry * n + row, part = (block * static_cast<long long>(entries) + entry) * n + row;
        for (int i = threadIdx.x; i < C * EB; i += blockDim.x) {
            const int token_row = i / EB, column = i % EB;
            const bool there = g_out && token_row < count && column < x.columns;
            x.d_out[token_row * v_row + column] = narrow<E>(there ? scale * g_out[(token + token_row) * e + column0 + column] : Acc(0));
        }
        __syncthreads();
        x.back(values, count, Told{dq + part * d, dk + part * d, dv + token * e + column0, d_logs ? d_logs + part * (CHANNELS ? d : 1) : nullptr,
                                   d_beta ? d_beta + part : nullptr, e});
        end = row;
        if (end == begin && window == 0) break;
        if (end == begin) --window;
        if (window < group * GROUP) --group, phase = 1, window = group * GROUP;
        row = window * static_cast<long long>(C);
        fetch(phase == 1 ? kept + group * size : near + (window - group * GROUP) * size);
    }
    __syncthreads();
    if (!d_state) return;
    for (int i = threadIdx.x; i < d * EB; i += blockDim.x)
        if (i % EB < x.columns) d_state[own + i / EB * static_cast<long long>(e) + i % EB] = x.d_s[i / EB * s_row + i % EB];
}
