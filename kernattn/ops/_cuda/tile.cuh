// Tiles in shared memory and the products of a warp: C (16, N) += A (16, K) B (K, N).
//
// The accumulators of a lane are those of mma.sync: with g = lane / 4 and t = lane % 4, c[j] holds columns 8 j + 2 t and 8 j + 2 t + 1 of
// row g (c[j][0], c[j][1]) and of row g + 8 (c[j][2], c[j][3]). The same layout serves every operand type E:
// bf16_t and half_t run on m16n8k16, tf32_t on m16n8k8, float and double on fused multiply-adds.

__device__ __forceinline__ int lane_index() { return threadIdx.x % 32; }
__device__ __forceinline__ int warp_index() { return threadIdx.x / 32; }

template <class E> __device__ constexpr int padding() { return 16 / int(sizeof(E)); }  // elements after each row: 16 bytes
template <class E, int columns> __device__ constexpr int row_length() { return columns + padding<E>(); }

// Hands out the dynamic shared memory in pieces of whole 16 bytes; pieces() in sizes.py adds up the same.
struct Carver {
    unsigned char* next;
    template <class P> __device__ P* take(int count) {
        P* piece = reinterpret_cast<P*>(next);
        next += (count * int(sizeof(P)) + 15) / 16 * 16;
        return piece;
    }
};

template <int N, class A>
__device__ __forceinline__ void clear(A (&c)[N][4]) {
#pragma unroll
    for (int j = 0; j < N; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) c[j][i] = A(0);
}

// ---- 16-bit operands ------------------------------------------------------------------------------------------------------------

// a: (16, K) row by row, or with a_transposed (K, 16); b: (K, N) row by row, or with b_transposed (N, K).
template <int N, int K, bool a_transposed, bool b_transposed, class E>
__device__ __forceinline__ void product_16bit(float (&c)[N / 8][4], const E* a, int a_row, const E* b, int b_row, int columns, int depth) {
    const int lane = lane_index(), matrix = lane / 8, r = lane % 8;
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        if (k >= depth) break;
        unsigned left[4];
        if (a_transposed) load_matrices<true>(left, a + (k + matrix / 2 * 8 + r) * a_row + matrix % 2 * 8);
        else load_matrices<false>(left, a + lane % 16 * a_row + k + lane / 16 * 8);
#pragma unroll
        for (int n = 0; n < N; n += 16) {
            if (n >= columns) break;
            unsigned right[4];
            if (b_transposed) load_matrices<false>(right, b + (n + matrix / 2 * 8 + r) * b_row + k + matrix % 2 * 8);
            else load_matrices<true>(right, b + (k + matrix % 2 * 8 + r) * b_row + n + matrix / 2 * 8);
            mma(c[n / 8], left, {right[0], right[1]}, E{});
            mma(c[n / 8 + 1], left, {right[2], right[3]}, E{});
        }
    }
}

// ---- wider operands -------------------------------------------------------------------------------------------------------------

template <int N, int K, bool a_transposed, bool b_transposed>
__device__ __forceinline__ void product_tf32(float (&c)[N / 8][4], const tf32_t* a, int a_row, const tf32_t* b, int b_row, int columns, int depth) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll 2
    for (int k = 0; k < depth; k += 8) {
        unsigned left[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int row = g + i % 2 * 8, column = k + t + i / 2 * 4;
            left[i] = __float_as_uint(a[a_transposed ? column * a_row + row : row * a_row + column].value);
        }
#pragma unroll
        for (int n = 0; n < N; n += 8) {
            if (n >= columns) break;
            unsigned right[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int row = k + t + i * 4, column = n + g;
                right[i] = __float_as_uint(b[b_transposed ? column * b_row + row : row * b_row + column].value);
            }
            mma(c[n / 8], left, right, tf32_t{});
        }
    }
}

template <int N, int K, bool a_transposed, bool b_transposed, class E>
__device__ __forceinline__ void product_exact(E (&c)[N / 8][4], const E* a, int a_row, const E* b, int b_row, int columns, int depth) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll 4
    for (int k = 0; k < depth; ++k) {
        const E upper = a[a_transposed ? k * a_row + g : g * a_row + k];
        const E lower = a[a_transposed ? k * a_row + g + 8 : (g + 8) * a_row + k];
#pragma unroll
        for (int n = 0; n < N; n += 8) {
            if (n >= columns) break;
            const int column = n + 2 * t;
            const E first = b[b_transposed ? column * b_row + k : k * b_row + column];
            const E second = b[b_transposed ? (column + 1) * b_row + k : k * b_row + column + 1];
            c[n / 8][0] += upper * first;
            c[n / 8][1] += upper * second;
            c[n / 8][2] += lower * first;
            c[n / 8][3] += lower * second;
        }
    }
}

// Only the columns of C below `columns` are computed and only the first `depth` terms added, both in whole groups of 16.
template <int N, int K, bool a_transposed, bool b_transposed>
__device__ __forceinline__ void product(float (&c)[N / 8][4], const bf16_t* a, int a_row, const bf16_t* b, int b_row, int columns = N, int depth = K) {
    product_16bit<N, K, a_transposed, b_transposed>(c, a, a_row, b, b_row, columns, depth);
}
template <int N, int K, bool a_transposed, bool b_transposed>
__device__ __forceinline__ void product(float (&c)[N / 8][4], const half_t* a, int a_row, const half_t* b, int b_row, int columns = N, int depth = K) {
    product_16bit<N, K, a_transposed, b_transposed>(c, a, a_row, b, b_row, columns, depth);
}
template <int N, int K, bool a_transposed, bool b_transposed>
__device__ __forceinline__ void product(float (&c)[N / 8][4], const tf32_t* a, int a_row, const tf32_t* b, int b_row, int columns = N, int depth = K) {
    product_tf32<N, K, a_transposed, b_transposed>(c, a, a_row, b, b_row, columns, depth);
}
template <int N, int K, bool a_transposed, bool b_transposed>
__device__ __forceinline__ void product(float (&c)[N / 8][4], const float* a, int a_row, const float* b, int b_row, int columns = N, int depth = K) {
    product_exact<N, K, a_transposed, b_transposed>(c, a, a_row, b, b_row, columns, depth);
}
template <int N, int K, bool a_transposed, bool b_transposed>
__device__ __forceinline__ void product(double (&c)[N / 8][4], const double* a, int a_row, const double* b, int b_row, int columns = N, int depth = K) {
    product_exact<N, K, a_transposed, b_transposed>(c, a, a_row, b, b_row, columns, depth);
}

// ---- reductions -----------------------------------------------------------------------------------------------------------------

template <class A> __device__ __forceinline__ A larger(A x, A y) { return x > y ? x : y; }
template <class A> __device__ __forceinline__ A larger_or_nan(A x, A y) { return x > y || x != x ? x : y; }

// Over the four lanes that share a row of the accumulators.
template <class A> __device__ __forceinline__ A row_max(A x) {
    x = larger(x, __shfl_xor_sync(all_lanes, x, 1));
    return larger(x, __shfl_xor_sync(all_lanes, x, 2));
}
template <class A> __device__ __forceinline__ A row_sum(A x) {
    x += __shfl_xor_sync(all_lanes, x, 1);
    return x + __shfl_xor_sync(all_lanes, x, 2);
}
__device__ __forceinline__ unsigned row_any(unsigned bits) {
    bits |= __shfl_xor_sync(all_lanes, bits, 1);
    return bits | __shfl_xor_sync(all_lanes, bits, 2);
}
// Over the eight lanes that share a column; NaN if one has it.
template <class A> __device__ __forceinline__ A column_max(A x) {
    x = larger_or_nan(x, __shfl_xor_sync(all_lanes, x, 4));
    x = larger_or_nan(x, __shfl_xor_sync(all_lanes, x, 8));
    return larger_or_nan(x, __shfl_xor_sync(all_lanes, x, 16));
}
template <class A> __device__ __forceinline__ A warp_sum(A x) {
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) x += __shfl_xor_sync(all_lanes, x, bits);
    return x;
}
template <class A> __device__ __forceinline__ A warp_max(A x) {
#pragma unroll
    for (int bits = 16; bits > 0; bits /= 2) x = larger(x, __shfl_xor_sync(all_lanes, x, bits));
    return x;
}

// Over the block; `room` holds a value a warp, and is free again after the next barrier.
template <class A> __device__ __forceinline__ A block_sum(A x, A* room) {
    x = warp_sum(x);
    if (lane_index() == 0) room[warp_index()] = x;
    __syncthreads();
    x = A(0);
    for (int w = 0; w < int(blockDim.x) / 32; ++w) x += room[w];
    return x;
}
template <class A> __device__ __forceinline__ A block_max(A x, A* room) {
    x = warp_max(x);
    if (lane_index() == 0) room[warp_index()] = x;
    __syncthreads();
    x = room[0];
    for (int w = 1; w < int(blockDim.x) / 32; ++w) x = larger(x, room[w]);
    return x;
}

// ---- moving tiles ---------------------------------------------------------------------------------------------------------------

// Neighbours in memory, moved at once.
template <class T, int n> struct __align__(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Packet { T x[n]; };

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;

// x as an operand of products.
template <class E, class X> __device__ __forceinline__ E convert(X x) {
    if constexpr (same<E, X>) return x;
    else return narrow<E>(widen(x));
}

template <class E, class X, int n>
__device__ __forceinline__ void store(E* to, const Packet<X, n>& from) {
    Packet<E, n> packet;
#pragma unroll
    for (int p = 0; p < n; ++p) packet.x[p] = convert<E>(from.x[p]);
    *reinterpret_cast<Packet<E, n>*>(to) = packet;
}

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
            Packet<X, wide> packet{};
            if (row < valid_rows && column < valid_columns) packet = *reinterpret_cast<const Packet<X, wide>*>(at + place(row) * stride + column);
            put(row, column, packet);
        }
    } else {
        for (int i = threadIdx.x; i < rows * columns; i += blockDim.x) {
            const int row = i / columns, column = i % columns;
            Packet<X, 1> packet{};
            if (row < valid_rows && column < valid_columns) packet.x[0] = at[place(row) * stride + column];
            put(row, column, packet);
        }
    }
}

// Into a tile of operands: with `far`, times Limits::shrunk().
template <int rows, int columns, bool far = false, class E, class X, class Place = InPlace>
__device__ __forceinline__ void load_tile(E* tile, const X* at, long long stride, int valid_rows, int valid_columns, Place place = {}) {
    for_each_of_tile(at, stride, rows, columns, valid_rows, valid_columns, [=](int row, int column, auto packet) {
        if (far)
            for (auto& x : packet.x) x = narrow<X>(widen(x) * Limits<typename AccumulationOf<X>::type>::shrunk());
        store(tile + row * row_length<E, columns>() + column, packet);
    }, place);
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
