// Exact attention: C rows of one entry and EB columns of v a block, the keys in tiles of C with an online softmax. Compile-time, beside
// those of types.cuh and output.cuh: DB (columns of q and k held at a time). blockIdx.x = entry * row tiles + row tile.
//
// Rows that leave the range of floats are computed once more: those that lose their normaliser, since scores do, from shrunk queries and
// keys; those whose sums of values do from lowered values.

struct Near { static constexpr bool far = false, low = false; };
struct Low { static constexpr bool far = false, low = true; };
struct Far { static constexpr bool far = true, low = true; };

// exp((score - unit) / shrunk^2), and 0 where the score is -infinity: of scores of shrunk queries and keys.
__device__ __forceinline__ Acc far_relative(Acc score, Acc unit) {
    return score == Limits<Acc>::lowest() ? Acc(0) : exponential((score - unit) / Limits<Acc>::shrunk() / Limits<Acc>::shrunk());
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
block_softmax(const X* q, const X* k, const V* v, const unsigned char* mask, V* out, Acc* lse, Acc scale, long long n, long long length,
              int d, int e, int causal, int size0, int size1, int size2, int q0, int q1, int q2, int k0, int k1, int k2) {
    constexpr int x_row = row_length<E, DB>();
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    Carver carver{shared_bytes};
    E* queries = carver.take<E>(C * x_row);
    E* keys = carver.take<E>(C * x_row);
    E* values = carver.take<E>(C * v_row);
    E* weights = carver.take<E>(C * score_row);
    int* visible = carver.take<int>(C);

    const int g = lane_index() / 4, t = lane_index() % 4, own = warp_index() * 16;
    const int row_tiles = int((n + C - 1) / C), entry = blockIdx.x / row_tiles, column0 = blockIdx.y * EB, columns = min(EB, e - column0);
    const long long row0 = (row_tiles - 1 - blockIdx.x % row_tiles) * static_cast<long long>(C);  // the longest rows first
    const int rows = n - row0 < C ? int(n - row0) : C;
    const long long shift = length - n + row0;  // row i of the tile stands at position i + shift
    const long long stop = causal ? max(0ll, min(length, shift + rows)) : length;
    const X* const x = q + (batch.queries(entry) * n + row0) * d;
    const long long first_key = batch.keys(entry) * length;

    Output output;
    bool wanted[2] = {true, true};  // of a lane's rows, its columns
    bool any = false;  // is any key visible?
    const auto run = [&](auto mode) {
        constexpr bool far = decltype(mode)::far, low = decltype(mode)::low;
        output.start();
        for (long long key0 = 0; key0 < stop; key0 += C) {
            const int count = stop - key0 < C ? int(stop - key0) : C;
            Acc score[C / 8][4];
            clear(score);
            for (int d0 = 0; d0 < d; d0 += DB) {
                __syncthreads();
                if (key0 == 0 || d > DB) load_tile<C, DB, far>(queries, x + d0, d, rows, d - d0);
                load_tile<C, DB, far>(keys, k + (first_key + key0) * d + d0, d, count, d - d0);
                if (d0 == 0) load_visible(visible, mask ? mask + first_key + key0 : nullptr, count);
                __syncthreads();
                product<C, DB, false, true>(score, queries + own * x_row, x_row, keys, x_row);
            }
            any |= visible[threadIdx.x % C];
            const bool cut = causal && key0 + count - 1 > shift;  // does row 0 not see all of these keys?
            const bool finite = load_values<low>(values, v + (first_key + key0) * e + column0, count, e, columns, visible);
            Acc top[2] = {output.unit[0], output.unit[1]};
#pragma unroll
            for (int j = 0; j < C / 8; ++j)
#pragma unroll
                for (int p = 0; p < 4; ++p) {
                    const int row = own + g + p / 2 * 8, column = 8 * j + 2 * t + p % 2;
                    const bool seen = visible[column] && (!causal || key0 + column <= row + shift);
                    score[j][p] = seen ? score[j][p] * scale : Limits<Acc>::lowest();
                    top[p / 2] = larger(top[p / 2], score[j][p]);
                }
            Acc factor[2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                top[r] = row_max(top[r]);
                factor[r] = far ? far_relative(output.unit[r], top[r]) : relative(output.unit[r], top[r]);
                output.unit[r] = top[r];
            }
            output.scale(factor);
#pragma unroll
            for (int j = 0; j < C / 8; ++j)
#pragma unroll
                for (int p = 0; p < 4; ++p) {
                    const Acc unit = output.unit[p / 2];
                    const E rounded = narrow<E>(far ? far_relative(score[j][p], unit) : relative(score[j][p], unit));
                    weights[(own + g + p / 2 * 8) * score_row + 8 * j + 2 * t + p % 2] = rounded;
                    output.den[p / 2] += Acc(widen(rounded));
                }
            if (__syncthreads_or(cut && !finite)) {
                const long long last = shift + own + g - key0;
                output.add_seen(weights + own * score_row, values, {last, last + 8});
            } else {
                product<EB, C, false, false>(output.num, weights + own * score_row, score_row, values, v_row);
            }
        }
        output.den[0] = row_sum(output.den[0]);
        output.den[1] = row_sum(output.den[1]);
        const long long to = entry * n + row0;
        output.write<low>(out + to * e + column0, rows, e, columns, wanted);
        if (column0 == 0 && t == 0)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int row = own + g + 8 * r;
                const Acc unit = far ? grown(output.unit[r]) : output.unit[r];
                if (row < rows && wanted[r]) lse[to + row] = output.den[r] == Acc(0) ? Limits<Acc>::lowest() : unit + log(output.den[r]);
            }
    };
    run(Near{});
    any = __syncthreads_or(any);
    bool lost[2], rough[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const bool there = own + g + 8 * r < rows;
        lost[r] = there && (output.den[r] != output.den[r] || (any && output.den[r] == Acc(0)));
        rough[r] = there && !lost[r] && output.rough(r);
    }
    if (__syncthreads_or(rough[0] || rough[1])) {
        wanted[0] = rough[0], wanted[1] = rough[1];
        run(Low{});
    }
    if (__syncthreads_or(lost[0] || lost[1])) {
        wanted[0] = lost[0], wanted[1] = lost[1];
        run(Far{});
    }
}
