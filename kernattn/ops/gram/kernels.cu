// phi^T phi and phi^T y, sums over the rows of x (entries, n, d) and y (entries, n, c), a slab of rows at a time: `slab_features` writes the
// slab's features, `outer` multiplies tiles of them, `collect` adds up what parts of the rows gave. Compile-time, beside those of types.cuh
// and maps.cuh: SIDE, features of a tile of the products; a block of `outer` has a warp for every 16 of them.
//
// In the slab features stand tile by tile of maps.cuh, whole tiles, zeros past the last. Features that were given are read where they are.

constexpr bool given = same<Nonlinearity, kinds::values> && !PROJECT;
template <bool first, class A, class B> struct Either { using type = A; };
template <class A, class B> struct Either<false, A, B> { using type = B; };
using Phi = Either<given, X, E>::type;

// phi (entries, count, slots) of the rows from `first` on. blockIdx.x = (entry * row tiles + row tile) * spread + share: so many blocks share
// the feature tiles.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 4)
slab_features(const X* x, E* phi, const Acc* omega, const E* omega_parts, const Acc* row_weights, const Acc* offset, Acc amplitude,
              Acc log_amplitude, int frequencies, int d, long long n, long long first, int count, int spread) {
    const Map map{omega, omega_parts, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    const int row_tiles = (count + C - 1) / C, row0 = blockIdx.x / spread % row_tiles * C, slots = map.tiles() * FB;
    const long long entry = blockIdx.x / spread / row_tiles;
    E* const to = phi + (entry * count + row0) * slots;
    write_features<E>(x + (entry * n + first + row0) * d, min(C, count - row0), map, blockIdx.x % spread, spread,
                      [=](int tile) { return Place<E>{to + tile * FB, slots, FB}; });
}

// SIDE x SIDE products, over one part of the slab's rows. blockIdx.x = ((part * entries + entry) * left tiles + left tile) * right tiles +
// right tile, the tiles of y after those of features. Of two tiles of features only one order is computed, and written twice. phi has
// phi_rows rows an entry, and the slab begins at phi_first. outer (parts, entries, M, M), moment (parts, entries, M, c).
extern "C" __global__ void __launch_bounds__(2 * SIDE, 2)
outer(const Phi* phi, const X* y, Acc* outer, Acc* moment, int frequencies, long long phi_rows, long long phi_first, long long n, long long first,
      int count, int part_rows, int c, int entries, int add) {
    constexpr int depth = 16 * SIDE / 32, tile_row = row_length<E, SIDE>();
    const Map map{nullptr, nullptr, nullptr, nullptr, Acc(1), Acc(0), frequencies, frequencies};
    const int features = map.count(), slots = map.tiles() * FB, phi_columns = given ? frequencies : slots;
    const int lefts = (slots + SIDE - 1) / SIDE, rights = lefts + (c + SIDE - 1) / SIDE;
    const int right = blockIdx.x % rights, left = blockIdx.x / rights % lefts;
    if (right < left) return;
    const long long block = blockIdx.x / rights / lefts, entry = block % entries;  // block = part * entries + entry
    const int start = int(block / entries) * part_rows, stop = min(count, start + part_rows);
    const bool moments = right >= lefts;
    const int column0 = (moments ? right - lefts : right) * SIDE, columns = min(SIDE, (moments ? c : slots) - column0);
    const int strip = left * SIDE + warp_index() * 16;  // the warp's features
    Carver carver{shared_bytes};
    E* const a = carver.take<E>(depth * tile_row);
    E* const b = right == left ? a : carver.take<E>(depth * tile_row);

    Acc sum[SIDE / 8][4];
    clear(sum);
    for (int row0 = start; row0 < stop; row0 += depth) {
        const int rows = min(depth, stop - row0);
        const Phi* const at = phi + (entry * phi_rows + phi_first + row0) * phi_columns;
        __syncthreads();
        load_tile<depth, SIDE>(a, at + left * SIDE, phi_columns, rows, phi_columns - left * SIDE);
        if (moments) load_tile<depth, SIDE>(b, y + (entry * n + first + row0) * c + column0, c, rows, c - column0);
        else if (right != left) load_tile<depth, SIDE>(b, at + column0, phi_columns, rows, phi_columns - column0);
        __syncthreads();
        if (strip < slots) product<SIDE, depth, true, false>(sum, a + warp_index() * 16, tile_row, b, tile_row, columns, (rows + 15) / 16 * 16);
    }
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll
    for (int j = 0; j < SIDE / 8; ++j)
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            const int slot = strip + g + p / 2 * 8, i = 8 * j + 2 * t + p % 2, other = column0 + i;
            const int of = slot < slots ? map.feature(slot / FB, slot % FB) : -1;
            if (of < 0 || i >= columns) continue;
            const long long row = block * features + of;
            if (moments) {
                Acc& to = moment[row * c + other];
                to = add ? to + sum[j][p] : sum[j][p];
            } else if (const int with = map.feature(other / FB, other % FB); with >= 0 && slot <= other) {
                Acc& to = outer[row * features + with];
                to = add ? to + sum[j][p] : sum[j][p];
                outer[(block * features + with) * features + of] = to;
            }
        }
}

// total (size,) = the sum of parts (count, size).
extern "C" __global__ void collect(const Acc* parts, Acc* total, long long size, int count) {
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i >= size) return;
    Acc sum = Acc(0);
    for (int part = 0; part < count; ++part) sum += parts[part * size + i];
    total[i] = sum;
}
