// What a walk has at hand, and how it reads: rows of a chunk, blocks of frequencies, values.
//
// Compile-time, beside those of types.cuh, maps.cuh, output.cuh and state.cuh: MAPS, 2 where queries have a map of their own; STREAM, 1 where rows and
// omega are copied as they are, asynchronously: the rows of the next chunk while this one ends, omega a block ahead.

constexpr bool ahead = !PROJECT && sizeof(Acc) == 4;  // are inputs read while the tile before them is worked on?
constexpr bool one_map = MAPS == 1;
constexpr int rooms = HELD && !per_feature ? 2 : 1;  // for a tile's weights: while those of one are read the next are written
static_assert(GROUPS == 2 && STRIPS % 2 == 0, "queries and keys; each group has every other strip of the scores");
static_assert(FB * STRIPS >= 2 * C, "column_top holds two numbers a row");

struct Rows {
    Map q_map, own_map;  // own_map: of the warp's group
    const X *q, *k, *own_rows;  // own_rows: those of the warp's group, from the entry's first
    const V* v;
    V* out;
    Acc *log_z, *sign_z;  // null: not wanted
    int e, column0;
    MapTiles tiles{};
    State state;
    E *values, *phi, *weights, *scores, *stored, *more_omega;
    Acc *column_top, *row_top, *tile_unit, *tile_decay, *tile_z, *log_row, *run, *den, *row_factor;
    int *visible, *high;  // high: does a key of the chunk lie far above what its first row sees?
    bool pairs;           // are own_rows paired()?
    bool scaled;          // do rows have log scales of their own?
    int queries, keys, entry;  // of q, of k and v, of out
    long long n;               // rows of an entry
    int stop;                  // where the slab ends
    int row, fetched;          // the next of them; that from which on `coming`, or with STREAM the tiles, have rows
    int turn;                  // which of two rooms the next block of omega is in
    Pair<X> coming[FB / 8][2];

    __device__ __forceinline__ const Map& k_map() const { return state.map; }
    __device__ __forceinline__ const Map& of_queries() const { return one_map ? state.map : q_map; }
    __device__ __forceinline__ long long query_row() const { return queries * n + row; }
    __device__ __forceinline__ long long key_row() const { return keys * n + row; }
    __device__ __forceinline__ long long out_row() const { return entry * n + row; }
    __device__ __forceinline__ int columns() const { return min(EB, e - column0); }
    __device__ __forceinline__ bool outside() const { return !HELD && stored; }  // do the features of most tiles lie in device memory?
    __device__ __forceinline__ E* phi_of(int tile) const { return phi + (outside() ? 0 : tile * C * phi_row); }

    __device__ __forceinline__ void copy_features(E* to, const E* from) const {
        using Wide = Packet<E, 16 / int(sizeof(E))>;
        for (int i = threadIdx.x; i < C * phi_row * int(sizeof(E)) / 16; i += blockDim.x)
            reinterpret_cast<Wide*>(to)[i] = reinterpret_cast<const Wide*>(from)[i];
    }

    // Log scales, visibility and values of a chunk.
    __device__ __forceinline__ void open(int rows, const Acc* scale, const unsigned char* mask) {
        const unsigned char* const seen = mask ? mask + key_row() : nullptr;
        const V* const from = v + key_row() * e + column0;
        if (same<V, E>) request<C, EB>(values, from, e, columns(), [=](int i) { return i < rows && (!seen || seen[i]) ? i : -1; });
        if (Nonlinearity::scaled) row_scales(log_row, k + key_row() * k_map().d, scale ? scale + key_row() : nullptr, rows, k_map());
        load_visible(visible, seen, rows);
        if (threadIdx.x == 0) *high = 0;
        __syncthreads();
        if (may_scale) running();
        if (!same<V, E>) load_values(values, from, rows, e, columns(), visible);
    }
    // Only for rows that are operands.
    template <int count, int width, class T, class From, class Place>
    static __device__ __forceinline__ void request(T* tile, const From* at, long long stride, int valid, Place place) {
        if constexpr (same<T, From>) request_tile<count, width>(tile, at, stride, valid, place);
    }

    // Is any of the values that this thread looks after NaN or infinite?
    __device__ __forceinline__ bool rough() const {
        constexpr int across = EB / padding<E>();
        Acc sum = Acc(0);
        for (int i = threadIdx.x; i < C * across; i += blockDim.x)
            look_at_each(*reinterpret_cast<const Wide<E>*>(values + i / across * v_row + i % across * padding<E>()), [&](auto x) { sum += Acc(x) * Acc(0); });
        return sum != Acc(0);
    }

    // Where the log scale is per row: exp of it is fraction 2^octaves. In the room of column_top, which has no other use then.
    __device__ __forceinline__ Acc& row_fraction(int row) const { return column_top[row]; }
    __device__ __forceinline__ Acc& row_octaves(int row) const { return column_top[C + row]; }
    __device__ __forceinline__ Acc row_weight(int row, Acc unit) const { return row_fraction(row) * power(row_octaves(row) - unit); }

    // Those of the chunk's keys, and the running units of the visible ones. By one warp.
    __device__ __forceinline__ void running() {
        if (warp_index() > 0) return;
        Acc before = state.row_unit;
        for (int i = lane_index(); i < C; i += 32) {
            row_octaves(i) = octaves(log_row[i]);
            row_fraction(i) = weight(log_row[i], row_octaves(i));
            Acc top = visible[i] ? unit_of(log_row[i]) : Limits<Acc>::lowest();
            for (int bits = 1; bits < 32; bits *= 2) {
                const Acc other = __shfl_up_sync(all_lanes, top, bits);
                if (lane_index() >= bits) top = larger(other, top);
            }
            run[i] = top = larger(before, top);
            before = __shfl_sync(all_lanes, top, 31);
        }
    }

    // The unit of the state once it has taken up the chunk, where there is one for all features; without log scales it is that of 1.
    __device__ __forceinline__ Acc next_row_unit() const {
        if (per_feature) return Acc(0);
        if (may_scale) return run[C - 1];
        bool any = false;
        for (int i = lane_index(); i < C; i += 32) any |= visible[i] != 0;
        return __any_sync(all_lanes, any) ? Acc(0) : state.row_unit;
    }
    __device__ __forceinline__ Acc unit_of_row(int row, Acc own) const { return per_feature ? own : may_scale ? run[row] : Acc(0); }

    // This group's rows from row `at` on, the columns of a block's tile.
    __device__ __forceinline__ void fetch(int at, int block) {
        load_pairs(coming, own_rows + at * static_cast<long long>(own_map.d), pairs, min(stop - at, C), own_map, block * FB);
    }

    // Projections of the group's rows, of the FB frequencies of a block.
    __device__ __forceinline__ void project_own(Acc (&u)[FB / 8][4], int rows, int block) {
        const int group = group_index();
        if (!PROJECT) {
            if (!ahead) fetch(row, block);
            widen_pairs(u, coming);
            if (ahead) {
                const bool last = block + 1 == k_map().tiles() / parts;
                fetched = last ? row + rows : row;
                fetch(fetched, last ? 0 : block + 1);
            }
            return;
        }
        clear(u);
        if (STREAM) {
            wait_for_copies();
            __syncthreads();
            const E* const omega = turn ? more_omega : tiles.high;
            turn = !turn;
            request_omega(block + 1 < k_map().tiles() / parts ? block + 1 : 0);
            multiply(u, group ? tiles.x[1] : tiles.x[0], omega, omega + FB * x_row);
            return;
        }
        const X* const inputs[2] = {q + query_row() * of_queries().d, k + key_row() * k_map().d};
        if (one_map) {
            for (int d0 = 0; d0 < k_map().d; d0 += DB) {
                fill<0, 2>(inputs, rows, k_map(), block * FB, d0, block == 0, tiles);
                multiply(u, group ? tiles.x[1] : tiles.x[0], tiles.high, tiles.low);
            }
            return;
        }
        for (int d0 = 0; d0 < q_map.d; d0 += DB) {
            fill<0, 1>(inputs, rows, q_map, block * FB, d0, block == 0, tiles);
            if (!group) multiply(u, tiles.x[0], tiles.high, tiles.low);
        }
        for (int d0 = 0; d0 < k_map().d; d0 += DB) {
            fill<1, 2>(inputs, rows, k_map(), block * FB, d0, block == 0, tiles);
            if (group) multiply(u, tiles.x[1], tiles.high, tiles.low);
        }
    }

    // With STREAM: a block of omega into the room whose turn it is, and the rows from `at` on into their tiles.
    __device__ __forceinline__ void request_omega(int block) {
        const int d = k_map().d, first = block * FB, count = k_map().frequencies;
        const auto row_of = [=](int i) { return first + i % FB < count ? (i / FB * static_cast<long long>(count) + first + i % FB) : -1; };
        E* const room = turn ? more_omega : tiles.high;
        if (SPLIT) request<2 * FB, DB>(room, k_map().parts_of_omega, d, d, row_of);
        else request<FB, DB>(room, k_map().omega, d, d, row_of);
    }
    __device__ __forceinline__ void request_rows(int at) {
        const int count = min(stop - at, C), d = k_map().d;
        const auto row_of = [=](int i) { return i < count ? i : -1; };
        request<C, DB>(tiles.x[0], q + (queries * n + at) * d, d, d, row_of);
        request<C, DB>(tiles.x[1], k + (keys * n + at) * d, d, d, row_of);
        fetched = at;
    }
    // Before the first chunk, and where the tiles were used for something else; nobody may read them any more.
    __device__ __forceinline__ void start_stream() {
        fetched = -1;
        turn = 0;
        if (STREAM) request_omega(0);
    }
};
