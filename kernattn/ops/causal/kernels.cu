// The walk along slabs of rows, a chunk of chunk.cuh at a time.

// Blocks share out entries * slabs pieces of work and the columns of v: blockIdx.x = worker * e_blocks + e block, so that those that read the
// same q and k run side by side. start: a state an entry of the keys, or `starts` of them, of which a slab has every starts_apart-th; end: that of
// the last slab.
// Null pointers: none.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
walk(const X* q, const X* k, const V* v, const Acc* q_scale, const Acc* k_scale, V* out, Acc* log_z, Acc* sign_z, const Acc* q_omega,
     const E* q_omega_parts, const Acc* q_row_weights, const Acc* q_offset, Acc q_amplitude, Acc q_log_amplitude, int q_frequencies, int q_d,
     const Acc* k_omega, const E* k_omega_parts, const Acc* k_row_weights, const Acc* k_offset, Acc k_amplitude, Acc k_log_amplitude,
     int k_frequencies, int k_d, const unsigned char* mask, const int* segments, const Acc* start_s, const Acc* start_z, const Acc* start_peak,
     int starts, int starts_apart, Acc* end_s, Acc* end_z, Acc* end_peak, Acc* state_room, E* phi_room, long long n, int e, int entries, int slabs,
     long long slab_rows, int size0, int size1, int size2, int q0, int q1, int q2, int k0, int k1, int k2) {
    const Batch batch{size0, size1, size2, q0, q1, q2, k0, k1, k2};
    const int e_blocks = (e + EB - 1) / EB, column0 = blockIdx.x % e_blocks * EB, workers = gridDim.x / e_blocks;
    const long long block = blockIdx.x;
    const bool own_queries = group_index() == 0;
    Walk w{};
    w.q_map = Map{q_omega, q_omega_parts, q_row_weights, q_offset, q_amplitude, q_log_amplitude, q_frequencies, q_d};
    const Map k_map{k_omega, k_omega_parts, k_row_weights, k_offset, k_amplitude, k_log_amplitude, k_frequencies, k_d};
    w.own_map = one_map || !own_queries ? k_map : w.q_map;
    w.q = q;
    w.k = k;
    w.v = v;
    w.out = out;
    w.log_z = log_z;
    w.sign_z = sign_z;
    w.n = n;
    w.e = e;
    w.column0 = column0;
    w.scaled = may_scale && (k_row_weights || k_scale);
    State& state = w.state;
    state.map = k_map;
    state.slots = k_map.tiles() * FB;
    Carver carver{shared_bytes};
    w.tiles.carve(carver, 2);
    w.values = carver.take<E>(C * v_row);
    w.weights = carver.take<E>(rooms * C * phi_row);
    state.shown = carver.take<E>((HELD ? state.slots : FB) * v_row);
    w.scores = carver.take<E>(C * score_row);
    w.column_top = carver.take<Acc>(STRIPS * FB);
    w.row_top = carver.take<Acc>(FB);
    w.tile_unit = carver.take<Acc>(FB);
    w.tile_decay = carver.take<Acc>(FB);
    w.tile_z = carver.take<Acc>(FB);
    w.log_row = carver.take<Acc>(C);
    w.run = carver.take<Acc>(C);
    w.den = carver.take<Acc>(2 * C);
    w.row_factor = carver.take<Acc>(C);
    w.visible = carver.take<int>(C);
    w.high = carver.take<int>(1);
    w.phi = carver.take<E>((phi_room ? 1 : k_map.tiles()) * C * phi_row);
    w.stored = phi_room ? phi_room + block * k_map.tiles() * C * phi_row : nullptr;
    if (STREAM) w.more_omega = carver.take<E>((1 + SPLIT) * FB * x_row);
    const int numbers = HELD ? 3 : s_row + 3;  // of a slot
    Acc* const room = !HELD && state_room ? state_room + block * state.slots * numbers : carver.take<Acc>(state.slots * numbers);
    state.z = room;
    state.unit = state.z + state.slots;
    state.next = state.unit + state.slots;
    state.s = state.next + state.slots;

    const long long features = k_map.count(), peaks = per_feature ? features : 1;
    for (int work = blockIdx.x / e_blocks; work < entries * slabs; work += workers) {
        const int slab = work % slabs;
        w.entry = work / slabs;
        w.queries = batch.queries(w.entry);
        w.keys = batch.keys(w.entry);
        w.own_rows = own_queries ? q + w.queries * n * q_d : k + w.keys * n * k_d;
        w.pairs = paired(w.own_rows, w.own_map.frequencies);
        w.row = int(slab * slab_rows);
        w.start_stream();
        w.stop = int(min(n, w.row + slab_rows));
        const long long start = starts ? w.keys * static_cast<long long>(starts) + slab * starts_apart : w.keys;
        const int* const first = segments ? segments + w.key_row() : nullptr;
        const bool goes_on = !first || w.row == 0 || first[0] == first[-1];
        if (start_s && goes_on) state.load(start_s + start * features * e + column0, start_z + start * features, start_peak + start * peaks, e, w.columns(), w.scaled);
        else state.reset();
        while (w.row < w.stop) {
            int rows = min(w.stop - w.row, C);
            if (segments) {
                const int* const ids = segments + w.key_row();
                if (w.row > 0 && ids[0] != ids[-1]) state.reset();
                rows = __syncthreads_count(int(threadIdx.x) < rows && ids[threadIdx.x] == ids[0]);
            }
            for (int wanted = 0; wanted != rows;) {  // until the chunk ends early enough
                wanted = rows;
                w.open(rows, k_scale, mask);
                rows = w.chunk(rows);
            }
            if (log_z && column0 == 0) write_normalisers(w, rows, q_scale);
            w.row += rows;
        }
        const long long end = w.keys * features;
        if (end_s && slab == slabs - 1 && batch.first(w.entry))
            state.save(end_s + end * e + column0, end_z + end, end_peak + w.keys * peaks, e, w.columns(), column0 == 0);
    }
}
