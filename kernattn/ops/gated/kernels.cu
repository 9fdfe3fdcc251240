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
            const Acc x = RULE == 2 && decay[c] == Acc(0) && a[c] == Acc(0) ? Acc(0) : s[c * 32], y = fade(decay[c], x);
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

// resumed: from which token on, where not all are left, each 16 columns of an entry; with the states there.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 2)
chunks(const X* q, const X* k, const X* v, const Acc* logs, const Acc* beta, const Acc* read, const Acc* write, const unsigned char* mask,
       const unsigned char* fresh, const Acc* before, const int* table, Acc scale, int normalise, long long n, int d, int e, const long long* resumed,
       const Acc* states, X* out, Acc* after) {
    const Given given{q, k, v, logs, beta, read, write, mask, fresh, resumed ? states : before, table, scale, normalise, n, d, e};
    const int e_blocks = (e + EB - 1) / EB, column0 = blockIdx.x % e_blocks * EB, entry = blockIdx.x / e_blocks;
    const int* const at = table + entry * PLACES;
    const int wide = (d + 15) / 16 * 16, t_row = wide + padding<E>();
    const long long from = resumed ? resumed[entry * static_cast<long long>((e + 15) / 16) + column0 / 16] : 0;
    if (from >= n) return;
    Carver carver{shared_bytes};
    Chunk x{{given, at, 0}, d, wide, t_row, min(EB, e - column0)};
    x.carve(carver);
    x.start(given, resumed ? entry : at[STATE_AT], column0);

    int most = C;
    for (long long row = from; row < n;) {
        __syncthreads();
        Acc values[C], own[2][4];
        const int loaded = int(min(n - row, static_cast<long long>(most)));
        x.rows = Rows(given, at, row);
        x.rows.v += column0;
        x.load(given, values, loaded);
        __syncthreads();
        const int count = x.close(values, loaded);
        if (normalise) x.norms(count);
        if (CHANNELS) {
            x.score_channels(scale);
            __syncthreads();
            x.decay_channels(count);
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
        const int fine = RULE ? x.finite_rows(count) : count;
        most = C;
        if (fine < count && count > 1) {  // zeros of a chunk's products times what overflowed are no zeros
            most = max(fine, 1);
            continue;
        }
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
        x.carry(count, x.writes, x.left);
        row += count;
    }
    __syncthreads();
    if (at[KEPT_AT] < 0) return;
    const long long state = at[STATE_AT] * static_cast<long long>(d) * e + column0;
    for (int i = threadIdx.x; i < d * EB; i += blockDim.x)
        if (i % EB < x.columns) after[state + i / EB * static_cast<long long>(e) + i % EB] = x.s[i / EB * s_row + i % EB];
}
