// Features of rows, written to memory: beside maps.cuh.

// Where the features of a tile go in memory: row by row, the first `width` of them.
template <class T> struct Place { T* first; long long stride; int width; };

// The features of up to C rows, by all the threads of a block, in every tile of blocks of frequencies share, share + spread, ...:
// place(tile) says where. Shared memory: what map_bytes in maps.py says for one input, a tile (C, FB) of T, C log scales.
template <class T, class Where>
__device__ __forceinline__ void write_features(const X* x, int rows, const Map& map, int share, int spread, Where place) {
    constexpr int tile_row = row_length<T, FB>(), wide = 16 / int(sizeof(T));
    Carver carver{shared_bytes};
    MapTiles tiles{};
    tiles.carve(carver, 1);
    T* const own = carver.take<T>(C * tile_row) + warp_index() * 16 * tile_row;  // the warp's rows
    Acc* const log_row = carver.take<Acc>(C);
    row_scales(log_row, x, nullptr, rows, map);
    __syncwarp();

    const int g = lane_index() / 4, t = lane_index() % 4, row0 = warp_index() * 16, own_rows = min(16, rows - row0);
    const X* const inputs[1] = {x};
    bool fresh = true;
    for (int block = share; block < map.tiles() / parts; block += spread) {
        Acc u[1][FB / 8][4];
        project<0, 1>(u, inputs, rows, map, block * FB, fresh, tiles);
        fresh = false;
        for (int part = 0; part < parts; ++part) {
            const int tile = block * parts + part;
            Pair<T> made[FB / 8][2];
            const bool full = map.full(tile);
            const Acc log_scale[2] = {log_row[row0 + g], log_row[row0 + g + 8]};
#pragma unroll
            for (int j = 0; j < FB / 8; ++j) {
                const int column = 8 * j + 2 * t;
                const Acc shift[2] = {map.shift(map.feature_or_last(tile, column)), map.shift(map.feature_or_last(tile, column + 1))};
#pragma unroll
                for (int r = 0; r < 2; ++r) {
                    const auto phi = [&](int p) { return map.whole(part, u[0][j][2 * r + p], log_scale[r], shift[p]); };
                    made[j][r] = Pairs<T>::of(phi(0), phi(1));
                    if (!full) made[j][r] = Pairs<T>::keep(made[j][r], map.feature(tile, column) >= 0, map.feature(tile, column + 1) >= 0);
                }
            }
            store_pairs(own, tile_row, made);
            __syncwarp();
            const Place<T> to = place(tile);
            T* const first = to.first + row0 * to.stride;
            if (to.width % wide == 0 && to.stride % wide == 0 && reinterpret_cast<unsigned long long>(first) % 16 == 0) {
                constexpr int across = FB / wide;
                for (int i = lane_index(); i < own_rows * across; i += 32) {
                    const int row = i / across, column = i % across * wide;
                    if (column < to.width)
                        *reinterpret_cast<Packet<T, wide>*>(first + row * to.stride + column) =
                            *reinterpret_cast<const Packet<T, wide>*>(own + row * tile_row + column);
                }
            } else {
                for (int i = lane_index(); i < own_rows * to.width; i += 32)
                    first[i / to.width * to.stride + i % to.width] = own[i / to.width * tile_row + i % to.width];
            }
            __syncwarp();
        }
    }
}
