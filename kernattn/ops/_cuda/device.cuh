// Number types, and every PTX instruction of the library, each with a twin in plain C++ for CUDA_ON_CPU.
#if !defined(CUDA_ON_CPU)
extern __shared__ __align__(128) unsigned char shared_bytes[];
#endif

struct half_t { unsigned short bits; };  // IEEE binary16
struct bf16_t { unsigned short bits; };
struct tf32_t { float value; };          // a float already rounded to 10 bits of mantissa

constexpr unsigned all_lanes = 0xffffffffu;

#if defined(CUDA_ON_CPU)

inline float half_to_float(half_t x) {
    const unsigned sign = (x.bits & 0x8000u) << 16, exponent = x.bits >> 10 & 31u, mantissa = x.bits & 1023u;
    if (exponent == 31u) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0u) return __uint_as_float(sign | __float_as_uint(float(mantissa) * 0x1p-24f));
    return __uint_as_float(sign | (exponent + 112u) << 23 | mantissa << 13);
}

inline half_t float_to_half(float x) {
    const unsigned sign = __float_as_uint(x) >> 16 & 0x8000u;
    const float size = std::fabs(x);
    if (std::isnan(x)) return {0x7fffu};
    if (size >= 65520.0f) return {static_cast<unsigned short>(sign | 0x7c00u)};
    if (size < 0x1p-14f) return {static_cast<unsigned short>(sign | unsigned(std::nearbyint(size * 0x1p24f)))};
    const unsigned bits = __float_as_uint(size);
    return {static_cast<unsigned short>(sign | (((bits + 0xfffu + (bits >> 13 & 1u)) >> 13) - (112u << 10)))};
}

inline bf16_t float_to_bf16(float x) {
    const unsigned bits = __float_as_uint(x);
    if (std::isnan(x)) return {0x7fffu};
    return {static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

// Two of them: low in the lower half, high in the upper one.
inline unsigned floats_to_bf16(float low, float high) { return float_to_bf16(low).bits | unsigned(float_to_bf16(high).bits) << 16; }

inline tf32_t float_to_tf32(float x) {
    const unsigned bits = __float_as_uint(x);
    if (!std::isfinite(x)) return {x};
    return {__uint_as_float((bits + 0x1000u) & ~0x1fffu)};
}

inline float fast_exp(float x) { return std::exp(x); }
inline float fast_exp2(float x) { return std::exp2(x); }

// The larger one; NaN where one is.
inline float larger_or_nan(float x, float y) { return x > y || x != x ? x : y; }

// mma.sync in the fragment layout of the PTX manual: k = 2 * per_register * 4 columns of A over the four lanes of a group.
struct MmaLane { float* c; const unsigned *a, *b; };

template <int per_register, class Decode>
inline void mma_twin(void* const* slots, Decode decode) {
    auto lane = [&](int i) { return static_cast<MmaLane*>(slots[i]); };
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) {
            float sum = 0.0f;
            for (int half = 0; half < 2; ++half)
                for (int t = 0; t < 4; ++t)
                    for (int p = 0; p < per_register; ++p)
                        sum += decode(lane(row % 8 * 4 + t)->a[2 * half + row / 8], p) * decode(lane(column * 4 + t)->b[half], p);
            lane(row % 8 * 4 + column / 2)->c[row / 8 * 2 + column % 2] += sum;
        }
}

inline void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16_t, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    MmaLane mine{c, a, b};
    cuda_on_cpu::together(all_lanes, mine, [](void* const* slots) {
        mma_twin<2>(slots, [](unsigned x, int p) { return __uint_as_float((p ? x >> 16 : x & 0xffffu) << 16); });
    }, site);
}

inline void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], half_t, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    MmaLane mine{c, a, b};
    cuda_on_cpu::together(all_lanes, mine, [](void* const* slots) {
        mma_twin<2>(slots, [](unsigned x, int p) { return half_to_float({static_cast<unsigned short>(p ? x >> 16 : x)}); });
    }, site);
}

inline void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], tf32_t, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    MmaLane mine{c, a, b};
    cuda_on_cpu::together(all_lanes, mine, [](void* const* slots) {
        mma_twin<1>(slots, [](unsigned x, int) { return __uint_as_float(x & ~0x1fffu); });
    }, site);
}

// ldmatrix: lane i gives the address of row i % 8 of matrix i / 8; out[j] of lane i holds two neighbours of matrix j.
struct MatrixLane { const unsigned short* row; unsigned* out; };

template <bool transposed>
inline void load_matrices(unsigned (&out)[4], const void* row, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) cuda_on_cpu::fail("ldmatrix from an address that is not a multiple of 16");
    MatrixLane mine{static_cast<const unsigned short*>(row), out};
    cuda_on_cpu::together(all_lanes, mine, [](void* const* slots) {
        for (int j = 0; j < 4; ++j)
            for (int i = 0; i < 32; ++i) {
                unsigned pair[2];
                for (int p = 0; p < 2; ++p) {
                    const int r = transposed ? i % 4 * 2 + p : i / 4, c = transposed ? i / 4 : i % 4 * 2 + p;
                    pair[p] = static_cast<MatrixLane*>(slots[8 * j + r])->row[c];
                }
                static_cast<MatrixLane*>(slots[i])->out[j] = pair[0] | pair[1] << 16;
            }
    }, site);
}

// movmatrix: a matrix of 8 x 8, a row over four lanes, and back transposed.
struct TransposedLane { unsigned x, y; };

inline unsigned transposed(unsigned x, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    TransposedLane mine{x, 0};
    cuda_on_cpu::together(all_lanes, mine, [](void* const* slots) {
        auto lane = [&](int i) { return static_cast<TransposedLane*>(slots[i]); };
        for (int i = 0; i < 32; ++i)
            for (int p = 0; p < 2; ++p) {
                const int row = i % 4 * 2 + p, column = i / 4;
                lane(i)->y |= (lane(row * 4 + column / 2)->x >> column % 2 * 16 & 0xffffu) << p * 16;
            }
    }, site);
    return mine.y;
}

// cp.async: 16 bytes to shared memory, zeros where they are not there; they may arrive at once, and have when the thread has waited.
inline void copy_async(void* to, const void* from, bool there) {
    if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % 16 != 0 && there)
        cuda_on_cpu::fail("cp.async from or to an address that is not a multiple of 16");
    cuda_on_cpu::copy(to, there ? from : nullptr);
}
inline void wait_for_copies() { cuda_on_cpu::wait_for_copies(); }
// Copies that a thread asked for since its last group are one; all but its `newest` groups have arrived.
inline void group_copies() { cuda_on_cpu::group_copies(); }
template <int newest> inline void wait_for_groups() { cuda_on_cpu::wait_for_groups(newest); }

#else

__device__ __forceinline__ float half_to_float(half_t x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}

__device__ __forceinline__ half_t float_to_half(float x) {
    half_t y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

__device__ __forceinline__ bf16_t float_to_bf16(float x) {
    bf16_t y;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    const unsigned bits = __float_as_uint(x);
    y.bits = x != x ? 0x7fffu : static_cast<unsigned short>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
    return y;
}

__device__ __forceinline__ unsigned floats_to_bf16(float low, float high) {
#if __CUDA_ARCH__ >= 800
    unsigned y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
#else
    return float_to_bf16(low).bits | unsigned(float_to_bf16(high).bits) << 16;
#endif
}

__device__ __forceinline__ tf32_t float_to_tf32(float x) {
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return {__uint_as_float(y)};
}

__device__ __forceinline__ float fast_exp(float x) { return __expf(x); }

// 2^x, 0 where that is denormal.
__device__ __forceinline__ float fast_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float larger_or_nan(float x, float y) {
#if __CUDA_ARCH__ >= 800
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
#else
    return x > y || x != x ? x : y;
#endif
}

__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], bf16_t) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], half_t) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2], tf32_t) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <bool transposed>
__device__ __forceinline__ void load_matrices(unsigned (&out)[4], const void* row) {
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if (transposed)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3]) : "r"(at) : "memory");
}

__device__ __forceinline__ unsigned transposed(unsigned x) {
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

__device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(from), "r"(there ? 16 : 0) : "memory");
#else
    *reinterpret_cast<uint4*>(to) = there ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
#endif
}
__device__ __forceinline__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" : : : "memory");
#endif
}
__device__ __forceinline__ void group_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
template <int newest> __device__ __forceinline__ void wait_for_groups() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" : : "n"(newest) : "memory");
#endif
}

#endif

// Hides from the compiler where a number came from: what it made of it before, it does not keep in registers.
#if defined(CUDA_ON_CPU)
inline void anew(unsigned&) {}
inline void anew(float&) {}
#else
__device__ __forceinline__ void anew(unsigned& x) { asm volatile("" : "+r"(x)); }
__device__ __forceinline__ void anew(float& x) { asm volatile("" : "+f"(x)); }
#endif

__device__ __forceinline__ double larger_or_nan(double x, double y) { return x > y || x != x ? x : y; }

// ---- numbers: to and from the accumulation type ---------------------------------------------------------------------------------

template <class T> struct AccumulationOf { using type = float; };
template <> struct AccumulationOf<double> { using type = double; };

__device__ __forceinline__ float widen(half_t x) { return half_to_float(x); }
__device__ __forceinline__ float widen(bf16_t x) { return __uint_as_float(unsigned(x.bits) << 16); }
__device__ __forceinline__ float widen(tf32_t x) { return x.value; }
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ double widen(double x) { return x; }

template <class T> struct Narrow;
template <> struct Narrow<half_t> { static __device__ __forceinline__ half_t from(float x) { return float_to_half(x); } };
template <> struct Narrow<bf16_t> { static __device__ __forceinline__ bf16_t from(float x) { return float_to_bf16(x); } };
template <> struct Narrow<tf32_t> { static __device__ __forceinline__ tf32_t from(float x) { return float_to_tf32(x); } };
template <> struct Narrow<float> { static __device__ __forceinline__ float from(float x) { return x; } };
template <> struct Narrow<double> { static __device__ __forceinline__ double from(double x) { return x; } };
template <class T, class A> __device__ __forceinline__ T narrow(A x) { return Narrow<T>::from(x); }

template <class A> struct Limits;
template <> struct Limits<float> {
    static __device__ __forceinline__ float lowest() { return __int_as_float(0xff800000); }  // -infinity
    static __device__ __forceinline__ float rise() { return 58.0f; }  // by how many octaves keys of a chunk may rise above its first
    static __device__ __forceinline__ float held() { return 5.3e36f; }  // a 64th of the largest: sums of a few such logs or scores are finite
    static __device__ __forceinline__ float shrunk() { return 0x1p-80f; }  // products of numbers that are so many times smaller, and sums of them, are finite
    static __device__ __forceinline__ float lowered() { return 0x1p-24f; }  // sums of so many values that are so much smaller are finite
};
template <> struct Limits<double> {
    static __device__ __forceinline__ double lowest() { return __longlong_as_double(0xfff0000000000000ll); }
    static __device__ __forceinline__ double rise() { return 720.0; }
    static __device__ __forceinline__ double held() { return 2.8e306; }
    static __device__ __forceinline__ double shrunk() { return 0x1p-560; }
    static __device__ __forceinline__ double lowered() { return 0x1p-24; }
};
