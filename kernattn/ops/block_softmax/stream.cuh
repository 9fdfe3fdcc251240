// One pass over the keys of a tile of rows, of 16-bit operands: a tile of keys and values is on its way while the one before is multiplied.

// The tiles of keys of a block, one after the other.
struct Cursor {
    int number, end;
    Visit visit;
    long long key0;

    __device__ __forceinline__ Cursor(const Keys& keys) : number(keys.tile.begin - 1), end(keys.tile.end), visit{0, 0, -1}, key0(0) { next_visit(keys); }
    __device__ __forceinline__ bool there() const { return number < end; }
    __device__ __forceinline__ void next(const Keys& keys) {
        key0 += W;
        if (key0 >= visit.high) next_visit(keys);
    }
    __device__ __forceinline__ void next_visit(const Keys& keys) {
        do {
            if (++number >= end) return;
            visit = keys.visit(number);
            key0 = visit.low;
        } while (key0 >= visit.high);
    }
};

// T is E: a template, so that only kernels that stream compile it.
template <class T> struct Stream {
    Keys keys;
    const T* queries;
    T *k_room, *v_room, *weights;
    Seen seen;
    Acc* biases;

    __device__ __forceinline__ Seen seen_in(int room) const { return {seen.bits + room * Seen::words * W}; }
    __device__ __forceinline__ Acc* biases_in(int room) const { return biases + room * W; }

    // A tile into its room, which nobody reads any more. Values that no row sees are zeros: they may be NaN.
    __device__ __forceinline__ void request(const Cursor& at, int room) const {
        const int count = Keys::count(at.visit, at.key0);
        const Places places = keys.places(at.key0);
        const bool plain = keys.plain(at.visit, at.key0);
        request_tile<W, DB>(k_room + room * W * x_row, keys.k, keys.d, keys.d, [=](int i) { return i < count ? places(i) : -1; });
        if (plain) {
            request_tile<W, EB>(v_room + room * W * v_row, keys.v, keys.e, keys.columns, [=](int i) { return places(i); });
        } else {
            const Keys& all = keys;
            request_tile<W, EB>(v_room + room * W * v_row, keys.v, keys.e, keys.columns,
                                [&](int i) { return all.anyone_sees(at.visit, at.key0, i) ? places(i) : -1; });
            keys.template look<false>(seen_in(room), biases_in(room), at.visit, at.key0);
        }
    }

    // Is any of the values that this thread looks after NaN or infinite?
    __device__ __forceinline__ bool rough(const T* values) const {
        constexpr int across = EB / padding<T>();
        Acc sum = Acc(0);
        for (int i = threadIdx.x; i < W * across; i += blockDim.x)
            look_at_each(*reinterpret_cast<const Wide<T>*>(values + i / across * v_row + i % across * padding<T>()), [&](auto x) { sum += Acc(x) * Acc(0); });
        return sum != Acc(0);
    }

    // Weights of a tile, rounded, as operands of the 16 keys from 8 j on.
    static __device__ __forceinline__ void operands(unsigned (&left)[4], const Acc (&score)[W / 8][4], int j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) left[i] = Pairs<T>::of(score[j + i / 2][i % 2 * 2], score[j + i / 2][i % 2 * 2 + 1]);
    }

    // num and den of a warp's rows; bits 0 and 8 of what comes back: does a lane's row see any key?
    __device__ __forceinline__ unsigned sum(Output& output) const {
        constexpr Acc log2_e = Acc(1.44269504088896340736);
        const int own = warp_index() * 16;
        unsigned any = 0;
        Acc total[4] = {};
        Cursor at(keys);
        if (at.there()) request(at, 0);
        for (int room = 0; at.there(); room ^= 1) {
            const Cursor now = at;
            const T *const k = k_room + room * W * x_row, *const v = v_room + room * W * v_row;
            at.next(keys);
            wait_for_copies();
            __syncthreads();
            if (at.there()) request(at, room ^ 1);
            Acc score[W / 8][4], top[2] = {output.unit[0], output.unit[1]}, lowered[2];
            clear(score);
            product<W, DB, false, true>(score, queries + own * x_row, x_row, k, x_row);
            if (keys.plain(now.visit, now.key0)) keys.weigh(score, top), any = 0x101u;
            else any |= keys.weigh(score, top, seen_in(room), biases_in(room));
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                top[r] = row_max(top[r]);
                const Acc factor = relative(output.unit[r], top[r]);
                output.unit[r] = top[r];
                lowered[r] = top[r] == Limits<Acc>::lowest() ? Acc(0) : -log2_e * top[r];
                total[2 * r] *= factor;
#pragma unroll
                for (int j = 0; j < own_columns / 8; ++j) output.num[j][2 * r] *= factor, output.num[j][2 * r + 1] *= factor;
            }
#pragma unroll
            for (int j = 0; j < W / 8; ++j)
#pragma unroll
                for (int p = 0; p < 4; ++p) score[j][p] = fast_exp2(score[j][p] * log2_e + lowered[p / 2]);
            bool looks = false;  // values that only some rows see may be NaN or infinite
            if (keys.cut(now.visit, now.key0)) looks = __syncthreads_or(rough(v));
#pragma unroll
            for (int j = 0; j < W / 8; j += 2) {
                unsigned left[4];
                operands(left, score, j);
                if (!looks) product_step<EB, false, 16>(output.num, left, v, v_row, 8 * j, EB);
                mma(total, left, {ones<T>, ones<T>}, T{});
            }
            if (looks) {
#pragma unroll
                for (int j = 0; j < W / 8; ++j)
#pragma unroll
                    for (int p = 0; p < 4; ++p)
                        weights[(own + lane_index() / 4 + p / 2 * 8) * w_row + 8 * j + 2 * (lane_index() % 4) + p % 2] = narrow<T>(score[j][p]);
                __syncwarp();
                add_seen(output, weights + own * w_row, v, seen_in(room));
            }
        }
        wait_for_copies();
        const bool first = lane_index() % 4 == 0;  // the four lanes of a row have the same sums
        output.den[0] = first ? total[0] : Acc(0), output.den[1] = first ? total[2] : Acc(0);
        return any;
    }
};
