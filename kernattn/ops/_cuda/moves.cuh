// Tiles between device and shared memory, beside tile.cuh.

// x as an operand of products.
template <class E, class X> __device__ __forceinline__ E convert(X x) {
    if constexpr (same<E, X>) return x;
    else return narrow<E>(widen(x));
}

// What a thread moves at a time: 16 bytes of a row, as pairs, or one element.
template <class X> struct __align__(16) Wide { Pair<X> x[8 / int(sizeof(X))]; };
template <class X> struct Single { X x; };

template <class X, class F> __device__ __forceinline__ void change_each(Wide<X>& from, F f) {
    for (Pair<X>& x : from.x) x = Pairs<X>::of(f(Pairs<X>::low(x)), f(Pairs<X>::high(x)));
}
template <class X, class F> __device__ __forceinline__ void change_each(Single<X>& from, F f) { from.x = narrow<X>(f(widen(from.x))); }
template <class X, class F> __device__ __forceinline__ void look_at_each(const Wide<X>& from, F f) {
    for (const Pair<X>& x : from.x) f(Pairs<X>::low(x)), f(Pairs<X>::high(x));
}
template <class X, class F> __device__ __forceinline__ void look_at_each(const Single<X>& from, F f) { f(widen(from.x)); }

template <class E, class X> __device__ __forceinline__ void store(E* to, const Wide<X>& from) {
    if constexpr (same<E, X>) {
        *reinterpret_cast<Wide<X>*>(to) = from;
    } else {
        constexpr int n = 8 / int(sizeof(X));
        Packet<Pair<E>, n> packet;
#pragma unroll
        for (int i = 0; i < n; ++i) packet.x[i] = Pairs<E>::of(Pairs<X>::low(from.x[i]), Pairs<X>::high(from.x[i]));
        *reinterpret_cast<Packet<Pair<E>, n>*>(to) = packet;
    }
}
template <class E, class X> __device__ __forceinline__ void store(E* to, const Single<X>& from) { *to = convert<E>(from.x); }

// Which row of an array row i of a tile is: that in its place.
struct InPlace {
    __device__ __forceinline__ long long operator()(int i) const { return i; }
};

// Calls put(row, column, packet) for all of a (rows, columns) tile of a row-major array, zeros outside it, by all the threads of the
// block: in packets of 16 bytes where the array's rows allow it, else of one element. columns is a multiple of 16.
template <class X, class Put, class Place = InPlace>
__device__ __forceinline__ void for_each_of_tile(const X* at, long long stride, int rows, int columns, int valid_rows, int valid_columns, Put put, Place place = {}) {
    constexpr int wide = 16 / int(sizeof(X));
    if (valid_columns % wide == 0 && stride % wide == 0 && reinterpret_cast<unsigned long long>(at) % 16 == 0) {
        const int packets = columns / wide;
        for (int i = threadIdx.x; i < rows * packets; i += blockDim.x) {
            const int row = i / packets, column = i % packets * wide;
            Wide<X> packet{};
            if (row < valid_rows && column < valid_columns) packet = *reinterpret_cast<const Wide<X>*>(at + place(row) * stride + column);
            put(row, column, packet);
        }
    } else {
        for (int i = threadIdx.x; i < rows * columns; i += blockDim.x) {
            const int row = i / columns, column = i % columns;
            Single<X> packet{};
            if (row < valid_rows && column < valid_columns) packet.x = at[place(row) * stride + column];
            put(row, column, packet);
        }
    }
}

// Into a tile of operands: with `far`, times Limits::shrunk().
template <int rows, int columns, bool far = false, class E, class X, class Place = InPlace>
__device__ __forceinline__ void load_tile(E* tile, const X* at, long long stride, int valid_rows, int valid_columns, Place place = {}) {
    for_each_of_tile(at, stride, rows, columns, valid_rows, valid_columns, [=](int row, int column, auto packet) {
        if (far) change_each(packet, [](auto x) { return x * Limits<typename AccumulationOf<X>::type>::shrunk(); });
        store(tile + row * row_length<E, columns>() + column, packet);
    }, place);
}

// The same for rows that are operands already, asynchronously: row i of the tile is row place(i) of the array, zeros where that is negative.
// wait_for_copies(), and a barrier before others read it. By all the threads of the block, or by `threads` of them.
template <int rows, int columns, class E, class X, class Place>
__device__ __forceinline__ void request_tile(E* tile, const X* at, long long stride, int valid_columns, Place place, int thread = threadIdx.x,
                                             int threads = blockDim.x) {
    static_assert(same<E, X>);
    constexpr int wide = 16 / int(sizeof(E)), across = columns / wide;
    if (valid_columns % wide == 0 && stride % wide == 0 && reinterpret_cast<unsigned long long>(at) % 16 == 0) {
#pragma unroll 1
        for (int i = thread; i < rows * across; i += threads) {
            const int row = i / across, column = i % across * wide;
            const long long from = place(row);
            const bool there = from >= 0 && column < valid_columns;
            copy_async(tile + row * row_length<E, columns>() + column, at + (there ? from * stride + column : 0), there);
        }
    } else {
#pragma unroll 1
        for (int i = thread; i < rows * columns; i += threads) {
            const int row = i / columns, column = i % columns;
            const long long from = place(row);
            tile[row * row_length<E, columns>() + column] = from >= 0 && column < valid_columns ? at[from * stride + column] : E{};
        }
    }
}

// Sums of `rows` operands that lie `step` apart from at(i) on, weight[row] times each where there are weights: put(i, sum) for i < count,
// by one of the four neighbouring lanes that add it up. count is a multiple of 8.
template <class A, class At, class Put>
__device__ __forceinline__ void column_sums(int count, int rows, int step, const A* weight, At at, Put put) {
    const int lane = threadIdx.x % 4;
    for (int i = threadIdx.x / 4; i < count; i += blockDim.x / 4) {
        const auto* const column = at(i);
        A sum = A(0);
#pragma unroll 4
        for (int row = lane; row < rows; row += 4) sum += A(widen(column[row * step])) * (weight ? weight[row] : A(1));
        sum = row_sum(sum);
        if (lane == 0) put(i, sum);
    }
}
