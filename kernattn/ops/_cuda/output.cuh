// What all attention kernels share: which entries they read, tiles of values, sums of outputs. Compile-time, beside those of types.cuh:
// VALUE (type of v and of the outputs), EB (columns of v that a block holds).

using V = VALUE;
constexpr int v_row = row_length<E, EB>();
constexpr int score_row = row_length<E, C>();
constexpr int own_columns = EB / GROUPS;  // of the outputs, that a warp sums

// Leading axes merged into at most three: an entry of the outputs -> the entries of the queries and of the keys it comes from.
struct Batch {
    int size0, size1, size2, q0, q1, q2, k0, k1, k2;
    __device__ __forceinline__ int queries(int i) const { return i / (size1 * size2) * q0 + i / size2 % size1 * q1 + i % size2 * q2; }
    __device__ __forceinline__ int keys(int i) const { return i / (size1 * size2) * k0 + i / size2 % size1 * k1 + i % size2 * k2; }
    // The entries that share their keys, and number `member` of those with these keys.
    __device__ __forceinline__ int group() const { return (k0 ? 1 : size0) * (k1 ? 1 : size1) * (k2 ? 1 : size2); }
    __device__ __forceinline__ int entry(int keys, int member) const {
        const int i2 = k2 ? keys / k2 % size2 : member % size2;
        member = k2 ? member : member / size2;
        const int i1 = k1 ? keys / k1 % size1 : member % size1;
        member = k1 ? member : member / size1;
        return ((k0 ? keys / k0 % size0 : member) * size1 + i1) * size2 + i2;
    }
    // Of all the entries with the same keys, is this the first?
    __device__ __forceinline__ bool first(int i) const {
        return (k0 != 0 || i / (size1 * size2) == 0) && (k1 != 0 || i / size2 % size1 == 0) && (k2 != 0 || i % size2 == 0);
    }
};

// Are the rows' keys there? Also false past the last row.
__device__ __forceinline__ void load_visible(int* visible, const unsigned char* mask, int rows) {
    for (int i = threadIdx.x; i < C; i += blockDim.x) visible[i] = i < rows && (!mask || mask[i]);
}

// Returns whether all that this thread loaded is finite. With `low`, values are lowered.
template <bool low = false, int tile_rows = C, class Visible, class Place = InPlace>
__device__ __forceinline__ bool load_values(E* tile, const V* v, int rows, int e, int columns, Visible visible, Place place = {}) {
    Acc rough = Acc(0);
    for_each_of_tile(v, e, tile_rows, EB, rows, columns, [&](int row, int column, auto packet) {
        if (!visible[row]) packet = {};
        look_at_each(packet, [&](auto x) { rough += Acc(x) * Acc(0); });
        if (low) change_each(packet, [](auto x) { return x * Limits<Acc>::lowered(); });
        store(tile + row * v_row + column, packet);
    }, place);
    return rough == Acc(0);
}

// log |Z| and the sign of Z = den 2^unit exp(log_row), the same whatever the unit.
__device__ __forceinline__ void write_normaliser(Acc* log_z, Acc* sign_z, Acc den, Acc unit, Acc log_row) {
    const int binades = den == Acc(0) ? 0 : ilogb(den);
    const Acc size = log(fabs(scalbn(den, -binades))) + (unit + Acc(binades)) * Acc(0.69314718055994530942);
    *log_z = den == Acc(0) ? Limits<Acc>::lowest() : size + log_row;
    *sign_z = den > Acc(0) ? Acc(1) : den < Acc(0) ? Acc(-1) : den;
}

// The outputs of a warp's 16 rows while they are summed: a lane has rows g and g + 8. Both sums are in units of exp(unit).
struct Output {
    Acc num[own_columns / 8][4], den[2], unit[2];

    __device__ __forceinline__ void start() {
        clear(num);
        den[0] = den[1] = Acc(0);
        unit[0] = unit[1] = Limits<Acc>::lowest();
    }
    __device__ __forceinline__ void scale(const Acc (&factor)[2]) {
        scale_num(factor);
        den[0] *= factor[0];
        den[1] *= factor[1];
    }
    __device__ __forceinline__ void scale_num(const Acc (&factor)[2]) {
#pragma unroll
        for (int j = 0; j < own_columns / 8; ++j)
#pragma unroll
            for (int p = 0; p < 4; ++p) num[j][p] *= factor[p / 2];
    }

    // Is any of the values of row r of a lane not finite?
    __device__ __forceinline__ bool rough(int r) const {
        Acc sum = Acc(0);
#pragma unroll
        for (int j = 0; j < own_columns / 8; ++j) sum += num[j][2 * r] * Acc(0) + num[j][2 * r + 1] * Acc(0);
        return sum != Acc(0);
    }

    // num / den into the rows of out below `rows`, but for those that are not wanted; 0 where den is 0. den must be whole: summed over the
    // row's lanes. With `low`, values were lowered.
    template <bool low = false, class R, class Place = InPlace>
    __device__ __forceinline__ void write(R* out, int rows, int e, int columns, const bool (&wanted)[2] = {true, true}, Place place = {}) const {
        const int column0 = lane_index() % 4 * 2;
        const bool whole = columns >= own_columns && e % 2 == 0 && reinterpret_cast<unsigned long long>(out) % sizeof(Pair<R>) == 0;
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            const int row = strip_index() * 16 + lane_index() / 4 + r * 8;
            if (row >= rows || !wanted[r]) continue;
            const Acc by = den[r] == Acc(0) ? Acc(1) : den[r], part = Acc(1) / by;
            const auto mean = [&](Acc x) {
                const Acc y = exact ? x / by : x * part;
                return den[r] == Acc(0) ? Acc(0) : low ? y / Limits<Acc>::lowered() : y;
            };
            Pair<R> y[own_columns / 8];
#pragma unroll
            for (int j = 0; j < own_columns / 8; ++j) y[j] = Pairs<R>::of(mean(num[j][2 * r]), mean(num[j][2 * r + 1]));
            R* const to = out + place(row) * e + column0;
            if (whole)
#pragma unroll
                for (int j = 0; j < own_columns / 8; ++j) pair_at(to + 8 * j) = y[j];
            else
#pragma unroll
                for (int j = 0; j < own_columns / 8; ++j) {
                    if (column0 + 8 * j < columns) to[8 * j] = Pairs<R>::first(y[j]);
                    if (column0 + 8 * j + 1 < columns) to[8 * j + 1] = Pairs<R>::second(y[j]);
                }
        }
    }
};
