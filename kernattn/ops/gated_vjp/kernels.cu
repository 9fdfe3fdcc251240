// Cotangents of gated linear attention. A block has some columns of the states of an entry: it walks to the end, and back, 16 tokens at a time,
// from states that it keeps on the way.
//
// Runs on gated/chunk.cuh and gated_vjp/pull.cuh. A block writes its columns of dv and of the state's cotangent, and its part of the others,
// which are sums over all columns: (e blocks, entries, n, ...).

constexpr int GROUP = 8;  // windows of 16 tokens between states that are kept for good

// Where cotangents of a token and those after it go.
struct Told {
    Acc *q, *k, *v, *logs, *beta, *read, *write;
    int e;
};

// States at the starts of windows: room for (blocks, groups + GROUP) of them, as they lie in shared memory.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
pull_back(const X* q, const X* k, const X* v, const Acc* logs, const Acc* beta, const Acc* read, const Acc* write, const unsigned char* mask,
          const unsigned char* fresh, const Acc* before, const int* table, Acc scale, int normalise, long long n, int d, int e, const Acc* g_out,
          const Acc* g_after, Acc* room, Acc* dq, Acc* dk, Acc* dv, Acc* d_logs, Acc* d_beta, Acc* d_read, Acc* d_write, Acc* d_state) {
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
    x.start(given, at[STATE_AT], column0);
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
            x.carry(count, x.w_end, x.u);
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
                                   d_beta ? d_beta + part : nullptr, d_read ? d_read + part * d : nullptr,
                                   d_write ? d_write + part * d : nullptr, e});
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
