// Gated linear attention by chunks: `prepare` makes what depends on no state, a block a chunk; `walk` takes states from chunk to chunk, a block some
// columns of one. Where rows, or a state, are not finite, it stops, and `chunks` of gated/kernels.cu goes on from there.

extern "C" __global__ void __launch_bounds__(32 * WARPS, PREPARE_BLOCKS)
prepare(const X* q, const X* k, const X* v, const Acc* logs, const Acc* beta, const Acc* read, const Acc* write, const unsigned char* mask,
        const unsigned char* fresh, const Acc* before, const int* table, Acc scale, int normalise, long long n, int d, int e, long long first,
        int chunks, E* w, E* u, E* p, E* faded_q, E* faded_k, Acc* facts, int* counts) {
    const Given given{q, k, v, logs, beta, read, write, mask, fresh, before, table, scale, normalise, n, d, e};
    const long long block = blockIdx.x, row = first + block % chunks * CHUNK;
    const Rows rows(given, table + block / chunks * PLACES, row);
    const int loaded = int(min(n - row, static_cast<long long>(CHUNK)));
    Carver carver{shared_bytes};
    Prepared x;
    x.carve(carver);
    const bool asks = !two || warp_index() >= SUB, keys = erases && !asks;
    const int strip = asks && two ? 2 * SUB - 1 - warp_index() : warp_index();
    Acc c[CHUNK / 8][4];
    x.load(rows, loaded, e);
    if constexpr (CHANNELS) {
        Faded y;
        y.load_logs(rows, loaded);
        wait_for_copies();
        __syncthreads();
        x.look(rows, loaded, e);
        y.look(x.bad);
        if (normalise) x.norms();
        __syncthreads();
        x.close(loaded);
        y.load(x.q, x.k);
        y.close(x.count, x.sums);
        __syncthreads();
        if (erases) y.since(x.since, x.sums);
        y.leave(faded_q + block * CHUNK * WIDE, faded_k + block * CHUNK * WIDE, x.sums);
        const E *const own = (keys ? x.k : x.q) + 16 * strip * x_row, *const writes = x.k + 16 * strip * x_row;
        Acc inner[2][4];
        clear(inner);
        if (asks) score_level<0>(inner, own, writes);
        const auto level = [&](auto half) {
            __syncthreads();
            y.template level<half.value>(x.q, x.k);
            __syncthreads();
            if (asks || keys) score_level<half.value>(inner, own, writes);
        };
        level(Constant<8>{});
        level(Constant<4>{});
        level(Constant<2>{});
        level(Constant<1>{});
        __syncthreads();
        y.template level<16>(x.q, x.k);
        E* const tails = reinterpret_cast<E*>(x.m);
        y.tails(tails, x.sums);
        __syncthreads();
        clear(c);
        if (asks || keys)
#pragma unroll 1
            for (int from = 0; from < WIDE; from += 64)
                product<CHUNK, 64, false, true>(c, own + from, x_row, tails + 8 * strip * (strip - 1) * x_row + from, x_row, 16 * strip, min(64, WIDE - from));
        __syncthreads();
        for (int i = threadIdx.x; i < WIDE; i += blockDim.x) {
            Acc sum = Acc(0);
            for (int b = 0; b < SUB; ++b) sum += x.sums[b * WIDE + i];
            facts[block * FACTS + DECAY_AT + i] = decayed(sum);
        }
#pragma unroll
        for (int j = 0; j < CHUNK / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) c[j][i] = (j / 2 == strip ? inner[j % 2][i] : c[j][i]) * x.norm_k[8 * j + lane_index() % 4 * 2 + i % 2];
    } else {
        wait_for_copies();
        __syncthreads();
        x.look(rows, loaded, e);
        if (normalise) x.norms();
        __syncthreads();
        x.close(loaded);
        x.add_logs();
        clear(c);
        for (int from = 0; from < WIDE; from += 64)
            product<CHUNK, 64, false, true>(c, (keys ? x.k : x.q) + 16 * strip * x_row + from, x_row, x.k + from, x_row, 16 * (strip + 1), min(64, WIDE - from));
        __syncthreads();
        x.decay(c, strip);
    }
    x.tell(facts + block * FACTS, scale);
    const int g = lane_index() / 4, t = lane_index() % 4;
    bool fine = true;
#pragma unroll
    for (int j = 0; j < CHUNK / 8; ++j) {
        if (j / 2 > strip) break;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int at = 16 * strip + g + i / 2 * 8, column = 8 * j + 2 * t + i % 2;
            if (keys) {
                const Acc y = at > column ? x.strength[at] * x.norm_k[at] * c[j][i] : Acc(0);
                x.m[at * m_row + column] = j / 2 == strip ? tf32_t{y} : narrow<tf32_t>(y);
            } else if (asks) {
                c[j][i] *= x.norm_q[at] * scale * (erases ? Acc(1) : x.strength[column]);
                if (same<E, half_t>) fine = fine && finite(widen(narrow<E>(c[j][i])));
            }
        }
    }
    if (asks) store_strip<CHUNK>(p + (block * CHUNK + 16 * strip) * CHUNK, CHUNK, c, 16 * (strip + 1));
    const bool bad = __syncthreads_or(!fine);
    if (threadIdx.x == 0) counts[block] = bad ? 0 : x.count, facts[block * FACTS + COUNT_AT] = Acc(bad ? 0 : x.count);
    if (!erases) return;
    if (keys) x.invert(strip);
    __syncthreads();
    x.join();
    if (keys) x.apply<WIDE>(w + block * CHUNK * WIDE, CHANNELS ? x.since : x.k, x.with_k, strip);
    else x.apply<WIDE_E>(u + block * CHUNK * WIDE_E, x.v, x.strength, strip);
}

// resumed: from which token on 16 columns of an entry are left to `chunks`, n where none is; states: those there, and between slabs.
extern "C" __global__ void __launch_bounds__(32 * WALKERS, 1)
walk(const X* q, const X* k, const X* v, const Acc* logs, const Acc* beta, const Acc* read, const Acc* write, const unsigned char* mask,
     const unsigned char* fresh, const Acc* before, const int* table, Acc scale, int normalise, long long n, int d, int e, long long first, int chunks,
     E* w, E* u, E* p, E* faded_q, E* faded_k, Acc* facts, int* counts, long long* resumed, Acc* states, X* out, Acc* after) {
    const Given given{q, k, v, logs, beta, read, write, mask, fresh, before, table, scale, normalise, n, d, e};
    const Slab slab{first, chunks, w, u, p, faded_q, faded_k, facts, counts};
    constexpr int blocks = (WIDE_E + EB - 1) / EB;
    const long long entry = blockIdx.x / blocks;
    const int column0 = blockIdx.x % blocks * EB, piece = warp_index(), own = column0 + 16 * piece;
    const int* const at = table + entry * PLACES;
    const bool ours = piece < EB / 16 && own < WIDE_E, aligned = e % 4 == 0 && reinterpret_cast<unsigned long long>(out) % 8 == 0;
    long long* const stop = resumed + entry * (WIDE_E / 16) + own / 16;
    bool walks = ours && (first == 0 || *stop >= n);
    const auto tiles = [](int chunk) {
        Carver carver{shared_bytes + chunk % STAGES * stage_bytes};
        Tiles x;
        x.carve(carver);
        return x;
    };
    const auto number = [&](const Acc* from, long long state, int channel, int column) {
        return channel < d && own + column < e ? from[(state * d + channel) * e + own + column] : Acc(0);
    };
    Held held;
    held.each([&](int channel, int column, Acc& x) {
        x = Acc(0);
        if (walks && first > 0) x = number(states, entry, channel, column);
        if (walks && first == 0 && before) x = number(before, at[STATE_AT], channel, column);
    });

    const bool walked = walks;
    long long token = n;
    const int* const counted = counts + entry * chunks;
    constexpr int ahead = STAGES - 1;  // chunks that are on their way
    const bool loads = piece >= EB / 16;
    int next = 0;  // tokens of the next chunk that is asked for
    const auto request = [&](int chunk) {
        const Rows rows(given, at, first + static_cast<long long>(chunk) * CHUNK);
        if (loads && chunk < chunks) tiles(chunk).request(slab, rows, entry * chunks + chunk, column0, min(EB, e - column0), e, next);
        group_copies();
    };
#pragma unroll
    for (int chunk = 0; chunk < ahead; ++chunk) {
        if (chunk < chunks) next = counted[chunk];
        request(chunk);
    }
    if (ahead < chunks) next = counted[ahead];
    for (int chunk = 0; chunk < chunks; ++chunk) {
        const long long row = first + static_cast<long long>(chunk) * CHUNK;
        wait_for_groups<ahead - 1>();
        __syncthreads();
        const int count = int(tiles(chunk).facts[COUNT_AT]);
        const bool last = count < min(n - row, static_cast<long long>(CHUNK));
        const int later = chunk + STAGES < chunks ? counted[chunk + STAGES] : 0;
        request(chunk + ahead);
        next = later;
        if (walks) {
            E* const to = out + (entry * n + row) * e + own;
            const bool taken = count > 0 && held.take(tiles(chunk), piece, [&](int j, unsigned low, unsigned high) {
                const int i = 8 * j + lane_index() / 4, column = lane_index() % 4 * 2;
                E* const line = to + i * static_cast<long long>(e);
                if (aligned && own + 16 <= e) {
                    store_sixteen(line, low, high, i < count);
                } else if (i < count) {
#pragma unroll
                    for (int x = 0; x < 4; ++x)
                        if (own + column + x % 2 + x / 2 * 8 < e) {
                            const unsigned pair = x / 2 ? high : low;
                            line[column + x % 2 + x / 2 * 8] = x % 2 ? Pairs<E>::second(pair) : Pairs<E>::first(pair);
                        }
                }
            });
            walks = taken && !last;
            if (!walks) token = taken ? row + count : row;
        }
        if (last) break;
    }
    if (!walked) return;
    if (lane_index() == 0) *stop = token;
    const bool ends = token == n && first + static_cast<long long>(chunks) * CHUNK >= n;
    if (ends && at[KEPT_AT] < 0) return;
    Acc* const to = ends ? after + at[KEPT_AT] * static_cast<long long>(d) * e : states + entry * d * e;
    held.each([&](int channel, int column, Acc& x) {
        if (channel < d && own + column < e) to[static_cast<long long>(channel) * e + own + column] = x;
    });
}
