// The way back through linear attention. Tokens that write add their features times a row [v, h] to sums [S, z], one for each feature;
// tokens that read bring a row [w, l], and the cotangent of their feature a is w.S_a + l z_a in the feature's units. Keys write [v, 1]; queries,
// their features over their normaliser, write [g, -g.o]. Readers that are keys also read sum_a phi_a S_a, the cotangent of their values.
//
// A block reads for C rows at a time. Where it walks, its tokens write as well, and a row reads what was written up to its own token.
// Compile-time, beside those of pulled.cuh and output.cuh: WALK, and KEYS: are the readers keys? Then a walk goes backwards.

constexpr bool walks = WALK, keys_read = KEYS, backwards = walks && keys_read;

// exp(x) 2^unit, held where a float has no room, and 0 where x is -infinity.
__device__ __forceinline__ Acc lifted(Acc x, Acc unit) {
    const Acc n = octaves(x), most = sizeof(Acc) == 4 ? Acc(120) : Acc(1000), y = fraction(x, n) * power(n + unit > most ? most : n + unit);
    return x == Limits<Acc>::lowest() ? Acc(0) : y;
}

// Tokens of an entry, from its first row on; null: their own log scales, rows that end in 1, all of them.
struct Side {
    Map map;
    const X* x;
    const V* v;
    const Acc *scale, *h;
    const unsigned char* mask;
};

// C of them in shared memory.
struct Tokens {
    E* rows;  // (C, EB) of v
    Acc *log_row, *h;
    int* seen;

    __device__ __forceinline__ void carve(Carver& carver) {
        rows = carver.take<E>(C * v_row);
        log_row = carver.take<Acc>(C);
        h = carver.take<Acc>(C);
        seen = carver.take<int>(C);
    }
    // A barrier must follow, also before load().
    __device__ __forceinline__ void open(const Side& side, long long row, int count) {
        row_scales(log_row, side.x + row * side.map.d, side.scale ? side.scale + row : nullptr, count, side.map);
        load_visible(seen, side.mask ? side.mask + row : nullptr, count);
        for (int i = threadIdx.x; i < C; i += blockDim.x) h[i] = !seen[i] ? Acc(0) : side.h ? side.h[row + i] : Acc(1);
    }
    __device__ __forceinline__ void load(const Side& side, long long row, int count, int e, int e0) {
        load_values(rows, side.v + row * e + e0, count, e, min(EB, e - e0), seen);
    }
};

struct Back {
    Side readers, writers;
    MapTiles tiles{};
    Tokens reading, writing;
    E *state, *weights, *features, *pairs;  // (FB, EB) of S, (C, FB) of readers and of writers, (C, C)
    Acc *tile_unit, *tile_factor, *tile_z, *column_top, *row_top;
    Acc *s, *z, *unit, *next;  // (M, e), (M,) of the sums; of a walk that writes
    const Acc* peak;           // of sums that are only read
    Acc row_unit, next_row_unit;  // where the log scale is per row
    int e;
    R *dx, *read;  // of the entry; read (n, e)
    Acc* dr;
    Learnt learnt;

    __device__ __forceinline__ void carve(Carver& carver) {
        tiles.carve(carver, walks ? 2 : 1);
        reading.carve(carver);
        state = carver.take<E>(FB * v_row);
        weights = carver.take<E>(C * phi_row);
        tile_unit = carver.take<Acc>(FB);
        tile_factor = carver.take<Acc>(FB);
        tile_z = carver.take<Acc>(FB);
        column_top = carver.take<Acc>(WARPS * FB);
        if (!walks) return;
        writing.carve(carver);
        features = carver.take<E>(C * phi_row);
        pairs = carver.take<E>(C * score_row);
        row_top = carver.take<Acc>(FB);
    }

    __device__ __forceinline__ void open(long long row, int rows) {
        __syncthreads();
        reading.open(readers, row, rows);
        if (walks) writing.open(writers, row, rows);
        __syncthreads();
        if (e <= EB) load(row, rows, 0);
    }
    __device__ __forceinline__ void load(long long row, int rows, int e0) {
        reading.load(readers, row, rows, e, e0);
        if (walks) writing.load(writers, row, rows, e, e0);
    }

    // The units of a tile, its z, and what its sums are multiplied by to be in these units.
    __device__ __forceinline__ void open_tile(int tile) {
        for (int i = threadIdx.x; i < FB; i += blockDim.x) {
            const int feature = readers.map.feature(tile, i);
            Acc own = Limits<Acc>::lowest(), factor = Acc(0);
            if (feature >= 0 && walks) {
                own = per_feature ? next[feature] : next_row_unit;
                factor = change(per_feature ? unit[feature] : row_unit, own);
            } else if (feature >= 0) {
                own = unit_of_log(peak[per_feature ? feature : 0]);
                factor = rest_of_log(peak[per_feature ? feature : 0]);
            }
            tile_unit[i] = own;
            tile_factor[i] = factor;
            tile_z[i] = feature >= 0 ? z[feature] * factor : Acc(0);
        }
    }

    // S <- S + features^T v of a tile and EB columns, a strip of 16 features a warp; z likewise.
    __device__ __forceinline__ void take_up(int tile, int rows, int e0) {
        constexpr int strips = FB / 16, groups = WARPS / strips, width = EB / groups;
        const int g = lane_index() / 4, t = lane_index() % 4, strip = warp_index() % strips, group = warp_index() / strips;
        Acc sum[width / 8][4];
        clear(sum);
        product<width, C, true, false>(sum, features + strip * 16, phi_row, writing.rows + group * width, v_row, width, (rows + 15) / 16 * 16);
#pragma unroll
        for (int j = 0; j < width / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int slot = strip * 16 + g + p / 2 * 8, feature = readers.map.feature(tile, slot), column = e0 + group * width + 8 * j + 2 * t + p % 2;
                if (feature < 0 || column >= e) continue;
                Acc& to = s[feature * static_cast<long long>(e) + column];
                to = to * tile_factor[slot] + sum[j][p];
            }
        if (e0 > 0) return;
        column_sums(FB, rows, phi_row, writing.h, [&](int i) { return features + i; }, [&](int i, Acc total) {
            const int feature = readers.map.feature(tile, i);
            if (feature >= 0) z[feature] = tile_z[i] + total;
        });
    }

    // One tile of features: du and dr of the readers, and what they read of EB columns from own_e0 on; with `last` the sums take up the writers.
    __device__ __forceinline__ void tile_of_features(int tile, const Acc (&u)[2][FB / 8][4], const Acc (&rho)[2], long long row, int rows, int own_e0,
                                                     bool last, Acc (&du)[FB / 8][4], Pulled& sums, Acc (&num)[EB / 8][4], Acc (&score)[C / 8][4]) {
        const Map& map = readers.map;
        const int own = warp_index() * 16, part = tile % parts, first = map.feature(tile, 0);
        __syncthreads();
        open_tile(tile);
        __syncthreads();
        Acc f[FB / 8][4], w[FB / 8][4];
        clear(f);
        for_each_of_features([&](int j, int p, int i, int column) {
            const int feature = map.feature(tile, column), at = i * phi_row + column;
            w[j][p] = Acc(0);
            if (feature >= 0 && reading.seen[i])
                w[j][p] = per_feature ? lifted(map.log(part, u[0][j][p], reading.log_row[i], feature), tile_unit[column])
                                      : map.value(part, u[0][j][p], feature) * rho[p / 2];
            if (keys_read) weights[at] = narrow<E>(w[j][p]);
            if (walks) {
                Acc y = Acc(0);
                if (feature >= 0 && writing.seen[i])
                    y = per_feature ? weight(writers.map.log(part, u[1][j][p], writing.log_row[i], feature), tile_unit[column])
                                    : writers.map.value(part, u[1][j][p], feature) * weight(writing.log_row[i], next_row_unit);
                features[at] = narrow<E>(y);
            }
        });
        for (int e0 = 0; e0 < e; e0 += EB) {
            if (e0 > 0) __syncthreads();
            for_each_of_tile(s + first * static_cast<long long>(e) + e0, e, FB, EB, map.frequencies - tile / parts * FB, min(EB, e - e0), [&](int slot, int column, auto packet) {
                change_each(packet, [&](Acc x) { return x * tile_factor[slot]; });
                store(state + slot * v_row + column, packet);
            });
            if (e > EB) load(row, rows, e0);
            __syncthreads();
            product<FB, EB, false, true>(f, reading.rows + own * v_row, v_row, state, v_row);
            if (keys_read && e0 == own_e0) product<EB, FB, false, false>(num, weights + own * phi_row, phi_row, state, v_row);
            if (walks && last) take_up(tile, rows, e0);
        }
        if (walks) {
            const E* const mine = pairs + own * score_row;
            if (backwards) product<FB, C, false, false>(f, mine + own, score_row, features + own * phi_row, phi_row, FB, C - own);
            else product<FB, C, false, false>(f, mine, score_row, features, phi_row, FB, own + 16);
            if (keys_read) product<C, FB, false, true>(score, weights + own * phi_row, phi_row, features, phi_row);
        }
        for_each_of_features([&](int j, int p, int i, int column) {
            f[j][p] = reading.seen[i] ? (f[j][p] + reading.h[i] * tile_z[column]) * (per_feature ? w[j][p] : rho[p / 2]) : Acc(0);
        });
        sums.take(du, f, u[0], tile, map);
        if (learnt.offset && per_feature && last) learnt.add_offset(f, column_top, map, tile);
    }

    // Does reader i of the chunk read what token j writes?
    __device__ __forceinline__ bool reads(int i, int j) const { return (backwards ? j >= i : j <= i) && writing.seen[j] && reading.seen[i]; }

    // [w, l].[v, h] of readers and writers of the chunk, where they meet.
    __device__ __forceinline__ void pair_rows(long long row, int rows) {
        const int g = lane_index() / 4, t = lane_index() % 4, own = warp_index() * 16;
        Acc y[C / 8][4];
        clear(y);
        for (int e0 = 0; e0 < e; e0 += EB) {
            __syncthreads();
            if (e > EB) load(row, rows, e0), __syncthreads();
            product<C, EB, false, true>(y, reading.rows + own * v_row, v_row, writing.rows, v_row);
        }
#pragma unroll
        for (int j = 0; j < C / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int i = own + g + p / 2 * 8, column = 8 * j + 2 * t + p % 2;
                pairs[i * score_row + column] = narrow<E>(reads(i, column) ? y[j][p] + reading.h[i] * writing.h[column] : Acc(0));
            }
    }

    // The rows that the warp has read, EB columns from e0 on.
    __device__ __forceinline__ void write_read(const Acc (&num)[EB / 8][4], long long row, int rows, int e0) const {
        const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
        for (int j = 0; j < EB / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int i = warp_index() * 16 + g + p / 2 * 8, column = e0 + 8 * j + 2 * t + p % 2;
                if (i < rows && column < e) read[(row + i) * e + column] = narrow<R>(reading.seen[i] ? num[j][p] : Acc(0));
            }
    }

    // C rows or less of the entry, which are open.
    __device__ __forceinline__ void chunk(long long row, int rows) {
        const Map& map = readers.map;
        const int g = lane_index() / 4, t = lane_index() % 4, own = warp_index() * 16;
        const int of_d = PROJECT ? (map.d + DB - 1) / DB : 1, passes = keys_read ? max(of_d, (e + EB - 1) / EB) : of_d;
        Acc rho[2] = {Acc(1), Acc(1)};
        if (!per_feature)
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const int i = own + g + 8 * r;
                rho[r] = reading.seen[i] ? lifted(reading.log_row[i], walks ? next_row_unit : unit_of_log(peak[0])) : Acc(0);
            }
        for (int pass = 0; pass < passes; ++pass) {
            const bool last = pass == passes - 1;
            const int d0 = pass * DB, e0 = pass * EB;
            if (walks) pair_rows(row, rows);
            Pulled sums;
            sums.start();
            Acc num[EB / 8][4], score[C / 8][4];
            clear(num);
            clear(score);
            for (int block = 0; block < map.tiles() / parts; ++block) {
                Acc u[2][FB / 8][4], du[FB / 8][4];
                const X* const inputs[2] = {readers.x + row * map.d, writers.x + row * writers.map.d};
                if (walks && MAPS == 1) {
                    project<0, 2>(u, inputs, rows, map, block * FB, block == 0, tiles);
                } else {
                    if (walks) project<1, 2>(u, inputs, rows, writers.map, block * FB, block == 0, tiles);
                    project<0, 1>(u, inputs, rows, map, block * FB, block == 0, tiles);
                }
                clear(du);
                for (int part = 0; part < parts; ++part)
                    tile_of_features(block * parts + part, u, rho, row, rows, e0, last, du, sums, num, score);
                if (learnt.offset && !per_feature && last) learnt.add_offset(du, column_top, map, block);
                __syncwarp();
                if (PROJECT ? d0 < map.d : last)
                    sums.add(du, weights, readers.x + row * map.d, rows, reading.seen, map, block, d0, tiles, learnt, dx + row * map.d);
            }
            if (PROJECT ? d0 < map.d : last)
                sums.write(dx + row * map.d, dr ? dr + row : nullptr, readers.x + row * map.d, rows, map, PROJECT ? d0 : 0, keys_read && Nonlinearity::scaled);
            if (!keys_read || e0 >= e) continue;
            if (walks) {
                E* const mine = pairs + own * score_row;
#pragma unroll
                for (int j = 0; j < C / 8; ++j)
#pragma unroll
                    for (int p = 0; p < 4; ++p) {
                        const int i = g + p / 2 * 8, column = 8 * j + 2 * t + p % 2;
                        mine[i * score_row + column] = narrow<E>(reads(own + i, column) ? score[j][p] : Acc(0));
                    }
                if (e > EB) {
                    __syncthreads();
                    load(row, rows, e0);
                    __syncthreads();
                }
                __syncwarp();
                product<EB, C, false, false>(num, mine + own, score_row, writing.rows + own * v_row, v_row, EB, C - own);
            }
            write_read(num, row, rows, e0);
        }
    }
};
