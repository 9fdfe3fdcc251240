// Tiles in shared memory and the products of a warp: C (16, N) += A (16, K) B (K, N).
//
// The accumulators of a lane are those of mma.sync: with g = lane / 4 and t = lane % 4, c[j] holds columns 8 j + 2 t and 8 j + 2 t + 1 of
// row g (c[j][0], c[j][1]) and of row g + 8 (c[j][2], c[j][3]). The same layout serves every operand type E:
// bf16_t and half_t run on m16n8k16, tf32_t on m16n8k8, float and double on fused multiply-adds.

__device__ __forceinline__ int lane_index() { return threadIdx.x % 32; }
__device__ __forceinline__ int warp_index() { return threadIdx.x / 32; }

template <class A, class B> constexpr bool same = false;
template <class A> constexpr bool same<A, A> = true;

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

// ---- pairs ----------------------------------------------------------------------------------------------------------------------

// Neighbours in memory, moved at once.
template <class T, int n> struct __align__(n * sizeof(T) < 16 ? n * sizeof(T) : 16) Packet { T x[n]; };

// Two neighbours of a row: one register where they have 16 bits.
template <class T> struct Pairs {
    using type = Packet<T, 2>;
    using A = typename AccumulationOf<T>::type;
    static __device__ __forceinline__ type of(A low, A high) { return {narrow<T>(low), narrow<T>(high)}; }
    static __device__ __forceinline__ T first(type x) { return x.x[0]; }
    static __device__ __forceinline__ T second(type x) { return x.x[1]; }
    static __device__ __forceinline__ type join(T low, T high) { return {low, high}; }
    static __device__ __forceinline__ type keep(type x, bool low, bool high) { return {low ? x.x[0] : T{}, high ? x.x[1] : T{}}; }
    static __device__ __forceinline__ A low(type x) { return widen(x.x[0]); }
    static __device__ __forceinline__ A high(type x) { return widen(x.x[1]); }
};
template <> struct Pairs<bf16_t> {
    using type = unsigned;
    static __device__ __forceinline__ bf16_t first(type x) { return {static_cast<unsigned short>(x)}; }
    static __device__ __forceinline__ bf16_t second(type x) { return {static_cast<unsigned short>(x >> 16)}; }
    static __device__ __forceinline__ type join(bf16_t low, bf16_t high) { return low.bits | unsigned(high.bits) << 16; }
    static __device__ __forceinline__ type keep(type x, bool low, bool high) { return x & ((low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u)); }
    static __device__ __forceinline__ type of(float low, float high) { return floats_to_bf16(low, high); }
    static __device__ __forceinline__ float low(type x) { return __uint_as_float(x << 16); }
    static __device__ __forceinline__ float high(type x) { return __uint_as_float(x & 0xffff0000u); }
};
template <> struct Pairs<half_t> {
    using type = unsigned;
    static __device__ __forceinline__ half_t first(type x) { return {static_cast<unsigned short>(x)}; }
    static __device__ __forceinline__ half_t second(type x) { return {static_cast<unsigned short>(x >> 16)}; }
    static __device__ __forceinline__ type join(half_t low, half_t high) { return low.bits | unsigned(high.bits) << 16; }
    static __device__ __forceinline__ type keep(type x, bool low, bool high) { return x & ((low ? 0xffffu : 0u) | (high ? 0xffff0000u : 0u)); }
    static __device__ __forceinline__ type of(float low, float high) { return float_to_half(low).bits | unsigned(float_to_half(high).bits) << 16; }
    static __device__ __forceinline__ float low(type x) { return half_to_float({static_cast<unsigned short>(x)}); }
    static __device__ __forceinline__ float high(type x) { return half_to_float({static_cast<unsigned short>(x >> 16)}); }
};
template <class T> using Pair = typename Pairs<T>::type;
template <class T> __device__ __forceinline__ Pair<T>& pair_at(T* at) { return *reinterpret_cast<Pair<T>*>(at); }
template <class T> __device__ __forceinline__ const Pair<T>& pair_at(const T* at) { return *reinterpret_cast<const Pair<T>*>(at); }

// Pairs of a warp's 16 rows, a[j][r] of columns 8 j + 2 t and the next of row g + 8 r, into its rows of a tile.
template <int J, class E>
__device__ __forceinline__ void store_pairs(E* rows, int row_length, const Pair<E> (&a)[J][2]) {
    E* const at = rows + lane_index() / 4 * row_length + lane_index() % 4 * 2;
#pragma unroll
    for (int j = 0; j < J; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) pair_at(at + r * 8 * row_length + 8 * j) = a[j][r];
}

// ---- 16-bit operands ------------------------------------------------------------------------------------------------------------

// Of the terms k to k + 15. Columns of B come in groups of 16, which start `apart` columns of memory from each other.
template <int N, bool b_transposed, int apart, class E>
__device__ __forceinline__ void product_step(float (&c)[N / 8][4], const unsigned (&left)[4], const E* b, int b_row, int k, int columns) {
    const int matrix = lane_index() / 8, r = lane_index() % 8;
#pragma unroll
    for (int n = 0; n < N; n += 16) {
        if (n >= columns) break;
        const int from = n / 16 * apart;
        unsigned right[4];
        if (b_transposed) load_matrices<false>(right, b + (from + matrix / 2 * 8 + r) * b_row + k + matrix % 2 * 8);
        else load_matrices<true>(right, b + (k + matrix % 2 * 8 + r) * b_row + from + matrix / 2 * 8);
        mma(c[n / 8], left, {right[0], right[1]}, E{});
        mma(c[n / 8 + 1], left, {right[2], right[3]}, E{});
    }
}

// A pair of ones: a product with it in all of B has the sums of A's rows in each column.
template <class E> constexpr unsigned ones = same<E, half_t> ? 0x3c003c00u : 0x3f803f80u;

// Those terms of A.
template <bool a_transposed, class E>
__device__ __forceinline__ void load_left(unsigned (&left)[4], const E* a, int a_row, int k) {
    const int lane = lane_index(), matrix = lane / 8, r = lane % 8;
    if (a_transposed) load_matrices<true>(left, a + (k + matrix / 2 * 8 + r) * a_row + matrix % 2 * 8);
    else load_matrices<false>(left, a + lane % 16 * a_row + k + lane / 16 * 8);
}

// a: (16, K) row by row, or with a_transposed (K, 16); b: (K, N) row by row, or with b_transposed (N, K).
template <int N, int K, bool a_transposed, bool b_transposed, int apart, class E>
__device__ __forceinline__ void product_16bit(float (&c)[N / 8][4], const E* a, int a_row, const E* b, int b_row, int columns, int depth) {
#pragma unroll
    for (int k = 0; k < K; k += 16) {
        if (k >= depth) break;
        unsigned left[4];
        load_left<a_transposed>(left, a, a_row, k);
        product_step<N, b_transposed, apart>(c, left, b, b_row, k, columns);
    }
}

// ---- wider operands -------------------------------------------------------------------------------------------------------------

template <int N, int K, bool a_transposed, bool b_transposed, int apart>
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
                const int row = k + t + i * 4, column = n / 16 * apart + n % 16 + g;
                right[i] = __float_as_uint(b[b_transposed ? column * b_row + row : row * b_row + column].value);
            }
            mma(c[n / 8], left, right, tf32_t{});
        }
    }
}

template <int N, int K, bool a_transposed, bool b_transposed, int apart, class E>
__device__ __forceinline__ void product_exact(E (&c)[N / 8][4], const E* a, int a_row, const E* b, int b_row, int columns, int depth) {
    const int g = lane_index() / 4, t = lane_index() % 4;
#pragma unroll 4
    for (int k = 0; k < depth; ++k) {
        const E upper = a[a_transposed ? k * a_row + g : g * a_row + k];
        const E lower = a[a_transposed ? k * a_row + g + 8 : (g + 8) * a_row + k];
#pragma unroll
        for (int n = 0; n < N; n += 8) {
            if (n >= columns) break;
            const int column = n / 16 * apart + n % 16 + 2 * t;
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
template <int N, int K, bool a_transposed, bool b_transposed, int apart = 16, class E, class A>
__device__ __forceinline__ void product(A (&c)[N / 8][4], const E* a, int a_row, const E* b, int b_row, int columns = N, int depth = K) {
    if constexpr (sizeof(E) == 2) product_16bit<N, K, a_transposed, b_transposed, apart>(c, a, a_row, b, b_row, columns, depth);
    else if constexpr (same<E, tf32_t>) product_tf32<N, K, a_transposed, b_transposed, apart>(c, a, a_row, b, b_row, columns, depth);
    else product_exact<N, K, a_transposed, b_transposed, apart>(c, a, a_row, b, b_row, columns, depth);
}

// ---- reductions -----------------------------------------------------------------------------------------------------------------

template <class A> __device__ __forceinline__ A larger(A x, A y) { return x > y ? x : y; }

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
// The largest of each column of a (16, 32) tile of accumulators, NaN if one is: of column_of_lane(), all columns over the lanes.
template <class A> __device__ __forceinline__ A column_max(const A (&c)[4][4]) {
    A top[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) top[i] = larger_or_nan(c[i / 2][i % 2], c[i / 2][2 + i % 2]);
#pragma unroll
    for (int half = 4; half > 0; half /= 2) {
        const bool upper = lane_index() / 4 & half;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const A own = upper ? top[i + half] : top[i], given = upper ? top[i] : top[i + half];
            top[i] = larger_or_nan(own, __shfl_xor_sync(all_lanes, given, 4 * half));
        }
    }
    return top[0];
}
__device__ __forceinline__ int column_of_lane() { return lane_index() / 8 * 8 + lane_index() % 4 * 2 + lane_index() / 4 % 2; }
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
