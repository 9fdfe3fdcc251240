// From cotangents of features to those of rows and of a map's numbers, beside maps.cuh: a tile of C rows and DB of their columns a block.
// Compile-time: RESULT, the type of the cotangents of rows.

using R = RESULT;

// Sums over all rows of a block, in memory that is its own; null where they are not learnt.
struct Learnt {
    Acc *omega, *offset;  // (D, d), (M,)

    // omega += du^T x of one block of frequencies and DB columns. All warps' du are in `room`, and the rows' x in `x`.
    __device__ __forceinline__ void add_omega(const E* room, const E* x, int rows, const Map& map, int block, int d0) const {
        constexpr int strips = FB / 16, groups = WARPS / strips, width = DB / groups;
        const int g = lane_index() / 4, t = lane_index() % 4, strip = warp_index() % strips, group = warp_index() / strips;
        Acc sum[width / 8][4];
        clear(sum);
        product<width, C, true, false>(sum, room + strip * 16, phi_row, x + group * width, x_row, width, (rows + 15) / 16 * 16);
#pragma unroll
        for (int j = 0; j < width / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) {
                const int frequency = block * FB + strip * 16 + g + p / 2 * 8, column = d0 + group * width + 8 * j + 2 * t + p % 2;
                if (frequency < map.frequencies && column < map.d) omega[frequency * static_cast<long long>(map.d) + column] += sum[j][p];
            }
    }

    // offset += the column sums of a tile (C, FB). `column_sum` (WARPS, FB): a barrier before it is used again.
    __device__ __forceinline__ void add_offset(const Acc (&y)[FB / 8][4], Acc* column_sum, const Map& map, int tile) const {
#pragma unroll
        for (int j = 0; j < FB / 8; ++j)
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                Acc x = y[j][p] + y[j][2 + p];
                for (int bits = 4; bits < 32; bits *= 2) x += __shfl_xor_sync(all_lanes, x, bits);
                if (lane_index() < 4) column_sum[warp_index() * FB + 8 * j + 2 * lane_index() + p] = x;
            }
        __syncthreads();
        for (int i = threadIdx.x; i < FB; i += blockDim.x) {
            const int feature = map.feature(tile, i);
            Acc x = Acc(0);
            for (int w = 0; w < WARPS; ++w) x += column_sum[w * FB + i];
            if (feature >= 0) offset[feature] += x;
        }
        __syncthreads();
    }
};

// The cotangents of a warp's 16 rows while they are summed: dx of the DB columns from d0 on, dr of the rows' log scales.
struct Pulled {
    Acc dx[DB / 8][4], dr[2];

    __device__ __forceinline__ void start() {
        clear(dx);
        dr[0] = dr[1] = Acc(0);
    }

    // du and dr take up f (16, FB), the cotangents of the values or of the logs of a tile. Where f is 0, u may be anything.
    __device__ __forceinline__ void take(Acc (&du)[FB / 8][4], const Acc (&f)[FB / 8][4], const Acc (&u)[FB / 8][4], int tile, const Map& map) {
        for_each_of_features([&](int j, int p, int, int column) {
            const int feature = map.feature(tile, column);
            if (feature < 0 || f[j][p] == Acc(0)) return;
            du[j][p] += map.pull(tile % parts, u[j][p], feature, f[j][p]);
            dr[p / 2] += per_feature ? f[j][p] : f[j][p] * map.value(tile % parts, u[j][p], feature);
        });
    }

    // dx += du omega, for the frequencies of a block that was projected last, and what is learnt of them from rows below `rows` that are
    // `seen`, or all where that is null. room: (C, FB).
    __device__ __forceinline__ void add(const Acc (&du)[FB / 8][4], E* room, const X* x, int rows, const int* seen, const Map& map, int block,
                                        int d0, const MapTiles& tiles, const Learnt& learnt, R* to) {
        if (!PROJECT) {
            for_each_of_features([&](int j, int p, int row, int column) {
                const int feature = block * FB + column;
                if (row < rows && feature < map.d) to[row * static_cast<long long>(map.d) + feature] = narrow<R>(du[j][p]);
            });
            return;
        }
        for_each_of_features([&](int j, int p, int row, int column) { room[row * phi_row + column] = narrow<E>(du[j][p]); });
        if (map.d > DB) {
            __syncthreads();
            load_tile<FB, DB>(tiles.high, map.omega + block * FB * static_cast<long long>(map.d) + d0, map.d, map.frequencies - block * FB, map.d - d0);
            if (learnt.omega) load_tile<C, DB>(tiles.x[0], x + d0, map.d, rows, map.d - d0);
            __syncthreads();
        } else {
            __syncwarp();
        }
        product<DB, FB, false, false>(dx, room + warp_index() * 16 * phi_row, phi_row, tiles.high, x_row);
        if (learnt.omega) {
            if (seen)
                for (int i = threadIdx.x; i < rows * DB; i += blockDim.x)
                    if (!seen[i / DB]) tiles.x[0][i / DB * x_row + i % DB] = narrow<E>(Acc(0));
            __syncthreads();
            learnt.add_omega(room, tiles.x[0], rows, map, block, d0);
        }
    }

    // The rows below `rows` of dx (.., d) and, where it is wanted, of dr; with `slopes` the rows' log scales count.
    __device__ __forceinline__ void write(R* to, Acc* to_dr, const X* x, int rows, const Map& map, int d0, bool slopes) {
        const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = warp_index() * 16 + g + 8 * r;
            const Acc total = row_sum(dr[r]), twice = slopes && map.row_weights ? total + total : Acc(0);
            if (row >= rows) continue;
            const long long at = row * static_cast<long long>(map.d);
            if (to_dr && d0 == 0 && t == 0) to_dr[row] = total;
            const auto slope = [&](int column) { return twice == Acc(0) ? Acc(0) : twice * map.row_weights[column] * Acc(widen(x[at + column])); };
            if (PROJECT) {
#pragma unroll
                for (int j = 0; j < DB / 8; ++j)
#pragma unroll
                    for (int p = 0; p < 2; ++p) {
                        const int column = d0 + 8 * j + 2 * t + p;
                        if (column < map.d) to[at + column] = narrow<R>(dx[j][2 * r + p] + slope(column));
                    }
            } else if (twice != Acc(0)) {
                for (int first = 2 * t; first < map.d; first += 8)
                    for (int column = first; column < min(first + 2, map.d); ++column)
                        to[at + column] = narrow<R>(Acc(widen(to[at + column])) + slope(column));
            }
        }
    }
};
