// Exact attention: a tile of rows of one entry and EB columns of v a block, the keys in tiles of W with an online softmax. Compile-time,
// beside those of types.cuh, output.cuh, plans.cuh, visits.cuh and keys.cuh: DB (columns of q and k held at a time). blockIdx.x = entry * tiles + tile, where
// tables of several heads have the tiles of all of them and an entry for each.
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

extern "C" __global__ void __launch_bounds__(32 * WARPS, streams && WARPS == 4 ? 2 : 1)
block_softmax(const X* q, const X* k, const V* v, const unsigned char* mask, const X* bias, R* out, Log* lse, const Log* before,
              const int* tiles, const int* visits, const Word* words, const int* tokens, int tile_count, int heads,
              Acc scale, long long n, long long length, int d, int e, int causal,
              int size0, int size1, int size2, int q0, int q1, int q2, int k0, int k1, int k2) {
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    const Tables tables{tiles, visits, words, tokens, tile_count, heads};
    Carver carver{shared_bytes};
    E* queries = carver.take<E>(C * x_row);
    E* keys = carver.take<E>(rooms * W * x_row);
    E* values = carver.take<E>(rooms * W * v_row);
    E* weights = carver.take<E>(C * w_row);
    const Seen seen{carver.take<unsigned>(rooms * Seen::words * W)};
    Acc* biases = carver.take<Acc>(biased ? rooms * W : 0);

    const int g = lane_index() / 4, t = lane_index() % 4, own = warp_index() * 16, column0 = blockIdx.y * EB, columns = min(EB, e - column0);
    const Tile tile = tile_of(tables, n);
    const long long shift = length - n + tile.queries.first;  // without tables row i stands at position i + shift
    const long long stop = causal ? max(0ll, min(length, shift + tile.rows)) : length;
    const X* const x = q + batch.queries(tile.entry) * n * d;
    const long long first_key = batch.keys(tile.entry) * length, first_row = tile.entry * n;
    const Keys given{k + first_key * d, v + first_key * e + column0, mask ? mask + first_key : nullptr, bias ? bias + first_key : nullptr,
                     tables, tile, shift, stop, d, e, columns, causal, scale};

    Output output;
    unsigned any = 0;  // bits 0 and 8: does a lane's row see any key?
    bool there[2], wanted[2], lost[2], rough[2];  // of a lane's rows: is it one, is it to be written, and why not yet?
#pragma unroll
    for (int r = 0; r < 2; ++r) there[r] = own + g + 8 * r < tile.rows;
    const auto finish = [&](auto mode) {
        constexpr bool far = decltype(mode)::far, low = decltype(mode)::low;
        any = row_any(any);
        Log logs[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            output.den[r] = row_sum(output.den[r]);
            logs[r] = log_normaliser<far>(output.unit[r], output.den[r]);
            if constexpr (!low) {
                lost[r] = there[r] && (output.den[r] != output.den[r] || (any >> 8 * r & 1 && output.den[r] == Acc(0)));
                rough[r] = there[r] && !lost[r] && output.rough(r);
                wanted[r] = there[r] && !lost[r] && !rough[r];
            }
            if constexpr (of_parts)
                if (before && wanted[r]) {
                    const long long to = first_row + tile.queries(own + g + 8 * r);
                    wanted[r] = join<low>(output, r, logs[r], out + to * e + column0, before[to], columns);
                }
        }
        output.write<low>(out + first_row * e + column0, tile.rows, e, columns, wanted, tile.queries);
        if (column0 == 0 && t == 0)
#pragma unroll
            for (int r = 0; r < 2; ++r)
                if (wanted[r]) lse[first_row + tile.queries(own + g + 8 * r)] = logs[r];
    };
    const auto run = [&](auto mode) {
        constexpr bool far = decltype(mode)::far, low = decltype(mode)::low;
        output.start();
        any = 0;
        bool begun = false;
        for (int number = tile.begin; number < tile.end; ++number) {
            const Visit visit = given.visit(number);
            for (long long key0 = visit.low; key0 < visit.high; key0 += W) {
                const int count = Keys::count(visit, key0);
                const Places those = given.places(key0);
                Acc score[W / 8][4];
                clear(score);
                for (int d0 = 0; d0 < d; d0 += DB) {
                    __syncthreads();
                    if (!begun || d > DB) load_tile<C, DB, far>(queries, x + d0, d, tile.rows, d - d0, tile.queries);
                    load_tile<W, DB, far>(keys, given.k + d0, d, count, d - d0, those);
                    if (d0 == 0) given.template look<far>(seen, biases, visit, key0);
                    __syncthreads();
                    product<W, DB, false, true>(score, queries + own * x_row, x_row, keys, x_row);
                }
                begun = true;
                const bool cut = given.cut(visit, key0);
                const bool finite = load_values<low, W>(values, given.v, count, e, columns, seen, those);
                Acc top[2] = {output.unit[0], output.unit[1]}, factor[2];
                any |= given.weigh(score, top, seen, biases);
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    top[r] = row_max(top[r]);
                    factor[r] = far ? far_relative(output.unit[r], top[r]) : relative(output.unit[r], top[r]);
                    output.unit[r] = top[r];
                }
                output.scale(factor);
#pragma unroll
                for (int j = 0; j < W / 8; ++j)
#pragma unroll
                    for (int p = 0; p < 4; ++p) {
                        const Acc unit = output.unit[p / 2];
                        const E rounded = narrow<E>(far ? far_relative(score[j][p], unit) : relative(score[j][p], unit));
                        weights[(own + g + p / 2 * 8) * w_row + 8 * j + 2 * t + p % 2] = rounded;
                        output.den[p / 2] += Acc(widen(rounded));
                    }
                if (__syncthreads_or(cut && !finite)) add_seen(output, weights + own * w_row, values, seen);
                else product<EB, W, false, false>(output.num, weights + own * w_row, w_row, values, v_row);
            }
        }
        finish(mode);
    };
    if constexpr (streams) {
        request_tile<C, DB>(queries, x, d, d, [=](int i) { return i < tile.rows ? tile.queries(i) : -1; });
        output.start();
        any = Stream<E>{given, queries, keys, values, weights, seen, biases}.sum(output);
        finish(Near{});
    } else {
        run(Near{});
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
