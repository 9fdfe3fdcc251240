// A chunk of gated linear attention that is walked forward, and then back: cotangents of its tokens from those of their outputs and of the state
// after them. What a delta rule subtracts is a reading of keys by keys, with the cotangent -dy in place of an output's; what the general rule
// reads by a, and writes by b, has a cotangent of its own, dr.
//
// Runs on gated/chunk.cuh.

struct Pull : Chunk {
    E *q_start, *r_start, *w_end;  // (16, d): q and what the rule reads with, times the decay from the start; (DEPTH, d): k and b, to the end
    E *d_out, *d_known;            // (16, EB), cotangents of what q and the rule read
    Acc *of_scores, *wide_rows;    // (2, 16, DEPTH); (2 + WRITERS, 16, wide): what q, the rule and each writing take of the states
    Acc *d_s, *terms;              // the cotangent of the state; (16, EB)
    E* d_shown;

    __device__ __forceinline__ void carve_more(Carver& carver) {
        q_start = carver.take<E>((2 + WRITERS) * C * t_row);
        r_start = q_start + C * t_row;
        w_end = r_start + C * t_row;
        d_out = carver.take<E>(2 * C * v_row);
        d_known = d_out + C * v_row;
        of_scores = carver.take<Acc>(2 * C * DEPTH);
        wide_rows = carver.take<Acc>((2 + WRITERS) * C * wide);
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
    __device__ __forceinline__ Acc read_by(int r, int i, int c) const { return Acc(widen(reader(r)[i * t_row + c])); }
    __device__ __forceinline__ Acc written_by(int w, int i, int c) const { return Acc(widen(writes[(w * C + i) * t_row + c])); }

    // Rows as they meet the states at the start and at the end; a thread a channel.
    __device__ __forceinline__ void spread(int count) const {
        for (int c = threadIdx.x; c < wide; c += blockDim.x) {
            Acc total = Acc(0), now = Acc(1), before = Acc(1), after = Acc(1);
            for (int i = 0; i < C; ++i) {
                if (CHANNELS && i < count) total += log_at(i, c), now = decayed(total);
                const Acc by = i >= count ? Acc(0) : CHANNELS ? now : since[i];
                q_start[i * t_row + c] = narrow<E>(fade(by, read_by(0, i, c)));
                r_start[i * t_row + c] = narrow<E>(fade(RULE == 2 && i < count ? before : by, read_by(READERS - 1, i, c)));
                before = by;
            }
            if (CHANNELS) last[c] = now;
            for (int i = C - 1; i >= 0; --i) {
                const Acc by = i >= count ? Acc(0) : CHANNELS ? after : between[(count - 1) * C + i];
#pragma unroll
                for (int w = 0; w < WRITERS; ++w) w_end[(w * C + i) * t_row + c] = narrow<E>(fade(by, written_by(w, i, c)));
                if (CHANNELS && i < count) after *= decay[i * wide + c];
            }
            if (RULE < 2 && (c >= d || (CHANNELS ? decay[c] : since[0]) == Acc(0))) forget(c);
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

    // Scores and what tokens write, from the state at the start; where keys erase, values of a thread's column become what is left of them.
    __device__ __forceinline__ int forward(const Given& given, Acc (&x)[C], int loaded) {
        load(given, x, loaded);
        __syncthreads();
        const int count = close(x, loaded);
        if (given.normalise) unit_rows(count);
        spread(count);
        if (CHANNELS) score_channels(Acc(1));
        __syncthreads();
        constexpr int scores = CHANNELS ? 0 : READERS * WRITERS;
        for (int task = warp_index(); task < scores + (RULE ? pieces : 0); task += WARPS) {
            if (task < scores) {
                score(task / WRITERS, task % WRITERS, Acc(1));
            } else {
                Acc c[2][4];
                clear(c);
                times_state(c, r_start, state(), task - scores);
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
                    for (int j = 0; j < i; ++j) {
                        if (RULE == 2) sum += m[i * DEPTH + j] * x[j];
                        sum += m[i * DEPTH + DEPTH - C + j] * y[j];
                    }
                    if (i >= count) sum = Acc(0);
                    if (RULE == 1) x[i] = i < count ? x[i] - sum : Acc(0);
                    y[i] = RULE == 2 ? sum : i < count ? strength[i] * x[i] : Acc(0);
                } else {
                    y[i] = x[i];
                }
                if (RULE == 2) u[i * v_row + column] = narrow<E>(x[i]);
                u[(DEPTH - C + i) * v_row + column] = narrow<E>(y[i]);
            }
        }
        __syncthreads();
        return count;
    }

    // Cotangents of `count` tokens from those of their outputs and of the state after them, which becomes that of the state before.
    template <class Row> __device__ __forceinline__ void back(const Acc (&x)[C], int count, const Row& to) const {
        for (int task = warp_index(); task < pieces * WRITERS; task += WARPS) {  // what is told of what tokens write
            const int w = task / pieces, piece = task % pieces;
            Acc c[2][4];
            clear(c);
            product<16, C, true, false>(c, p + w * C, p_row, d_out + piece * 16, v_row, 16, C);
            times_state(c, w_end + w * C * t_row, d_state(), piece);
            each(c, [&](int i, int j, Acc y) { (w ? terms : known)[i * s_row + piece * 16 + j] = y; });
        }
        __syncthreads();
        if (threadIdx.x < EB) {
            const int column = threadIdx.x;
            Acc y[C];
#pragma unroll
            for (int i = C - 1; i >= 0; --i) {
                Acc sum = (RULE == 2 ? terms : known)[i * s_row + column], value = RULE == 2 ? known[i * s_row + column] : Acc(0);
                if (RULE)
#pragma unroll
                    for (int l = C - 1; l > i; --l)
                        if (l < count) {
                            sum += (RULE == 2 ? y[l] : -y[l]) * m[l * DEPTH + DEPTH - C + i];
                            if (RULE == 2) value += y[l] * m[l * DEPTH + i];
                        }
                if (i >= count) sum = Acc(0);
                y[i] = RULE == 1 ? strength[i] * sum : sum;
                if (i >= count) y[i] = Acc(0);
                d_known[i * v_row + column] = narrow<E>(RULE == 2 ? y[i] : -y[i]);
                if (RULE == 1) terms[i * s_row + column] = sum * x[i];
                if (i < count && column < columns) to.v[i * static_cast<long long>(to.e) + column] = RULE == 2 ? value : y[i];
            }
        }
        __syncthreads();
        if (RULE == 1)
            for (int i = warp_index(); i < count; i += WARPS) {
                Acc sum = Acc(0);
                for (int c = lane_index(); c < columns; c += 32) sum += terms[i * s_row + c];
                sum = warp_sum(sum);
                if (lane_index() == 0) to.beta[i] = sum;
            }
        const int strips = wide / 16;
        constexpr int row = shows ? v_row : s_row, scores = READERS * WRITERS;
        for (int task = warp_index(); task < scores + (2 + WRITERS) * strips; task += WARPS) {
            Acc c[2][4];
            clear(c);
            if (task < scores) {
                const int r = task / WRITERS, w = task % WRITERS;
                product<16, EB, false, true>(c, r ? d_known : d_out, v_row, u + w * C * v_row, v_row, 16, EB);
                each(c, [&](int i, int j, Acc y) { of_scores[(r * C + i) * DEPTH + w * C + j] = j <= i - r && i < count ? y : Acc(0); });
            } else {
                const int which = (task - scores) / strips, first = (task - scores) % strips * 16;
                if (RULE == 0 && which == 1) continue;
                product<16, EB, false, true>(c, which == 0 ? d_out : which == 1 ? d_known : u + (which - 2) * C * v_row, v_row, (which >= 2 ? d_state() : state()) + first * row, row, 16, EB);
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
            if (RULE) product<EB, C, true, false>(sum, r_start + first, t_row, d_known, v_row, EB, C);
#pragma unroll
            for (int j = 0; j < EB / 8; ++j)
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    *pair(j, r) = {sum[j][2 * r], sum[j][2 * r + 1]};
                    if (shows) pair_at(d_shown + (first + g + 8 * r) * v_row + 8 * j + 2 * t) = Pairs<E>::of(sum[j][2 * r], sum[j][2 * r + 1]);
                }
        }
    }

    // Cotangents of what reads and writes, and of logs. A thread a channel.
    template <class Row> __device__ __forceinline__ void channels(int count, const Row& to) const {
        for (int c0 = 0; c0 < wide; c0 += blockDim.x) {
            const int c = c0 + threadIdx.x;
            Acc dq[C], dr[C], logs[C];
#pragma unroll
            for (int i = 0; i < C; ++i) dq[i] = dr[i] = logs[i] = Acc(0);
            if (c < wide) {
                Acc total = Acc(0), now = Acc(1), before = Acc(1), after = Acc(1), all = Acc(0);
#pragma unroll
                for (int i = 0; i < C; ++i) {  // what reads the state at the start: all logs up to it, or up to before it
                    if (i >= count) break;
                    if (CHANNELS) total += log_at(i, c);
                    now = CHANNELS ? decayed(total) : since[i];
                    dq[i] = fade(now, wide_rows[i * wide + c]);
                    logs[i] += read_by(0, i, c) * dq[i];
                    if (RULE) {
                        dr[i] = fade(RULE == 2 ? before : now, wide_rows[(C + i) * wide + c]);
                        if (RULE == 1 || i > 0) logs[RULE == 2 && i > 0 ? i - 1 : i] += read_by(1, i, c) * dr[i];
                    }
                    before = now;
                }
                for (int j = 0; j < EB; ++j) all += fade(now, s[c * s_row + j] * d_s[c * s_row + j]);
#pragma unroll
                for (int i = C - 2; i >= 0; --i) logs[i] += logs[i + 1];
                Acc left[C];
#pragma unroll
                for (int i = C - 1; i >= 0; --i) {  // what is left at the end: all logs after it
                    left[i] = Acc(0);
                    if (i >= count) continue;
#pragma unroll
                    for (int w = 0; w < WRITERS; ++w) {
                        Acc& x = wide_rows[((2 + w) * C + i) * wide + c];
                        x = fade(CHANNELS ? after : between[(count - 1) * C + i], x);
                        left[i] += written_by(w, i, c) * x;
                    }
                    if (CHANNELS) after *= decay[i * wide + c];
                }
                before = all;
#pragma unroll
                for (int i = 0; i < C; ++i) logs[i] += before, before += left[i];
#pragma unroll 1
                for (int j = 0; j < count; ++j) {  // what i reads of j: the logs between them
                    Acc fades[C], by = Acc(1), later = Acc(0), sum[WRITERS], written[WRITERS];
#pragma unroll
                    for (int w = 0; w < WRITERS; ++w) sum[w] = Acc(0), written[w] = written_by(w, j, c);
#pragma unroll
                    for (int i = 0; i < C; ++i) {
                        fades[i] = Acc(0);
                        if (i < j || i >= count) continue;
                        const Acc until = i == j ? Acc(0) : by, query = read_by(0, i, c), other = RULE ? read_by(1, i, c) : Acc(0);
                        by = i == j ? Acc(1) : CHANNELS ? by * decay[i * wide + c] : between[i * C + j];
#pragma unroll
                        for (int w = 0; w < WRITERS; ++w) {
                            const Acc x = by * of_scores[i * DEPTH + w * C + j];
                            const Acc y = RULE ? (RULE == 2 ? until : by) * of_scores[(C + i) * DEPTH + w * C + j] : Acc(0);
                            dq[i] += x * written[w];
                            sum[w] += x * query;
                            fades[i] += x * query * written[w];
                            if (RULE) {
                                dr[i] += y * written[w];
                                sum[w] += y * other;
                                if (RULE == 1 || i > 0) fades[RULE == 2 && i > 0 ? i - 1 : i] += y * other * written[w];
                            }
                        }
                    }
#pragma unroll
                    for (int w = 0; w < WRITERS; ++w) wide_rows[((2 + w) * C + j) * wide + c] += sum[w];
#pragma unroll
                    for (int i = C - 1; i >= 0; --i)
                        if (i > j) later += fades[i], logs[i] += later;
                }
            }
#pragma unroll
            for (int i = 0; i < C; ++i) {
                if (i >= count) break;
                if (c < d) {
                    const long long at = i * static_cast<long long>(d) + c;
                    const Acc key = wide_rows[(2 * C + i) * wide + c];
                    to.q[at] = dq[i];
                    to.k[at] = RULE == 1 ? dr[i] + key : key;
                    if (RULE == 2) to.read[at] = dr[i], to.write[at] = wide_rows[((1 + WRITERS) * C + i) * wide + c];
                    if (CHANNELS && to.logs) to.logs[at] = logs[i];
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
