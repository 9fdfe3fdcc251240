// The part of CUDA's device library that the kernels use: vector types, barriers, shuffles, atomics, intrinsics.
#pragma once

struct __attribute__((aligned(8))) float2 { float x, y; };
struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
struct __attribute__((aligned(16))) double2 { double x, y; };
struct __attribute__((aligned(8))) int2 { int x, y; };
struct __attribute__((aligned(16))) int4 { int x, y, z, w; };
struct __attribute__((aligned(8))) uint2 { unsigned x, y; };
struct __attribute__((aligned(16))) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline void __syncthreads(cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) { cuda_on_cpu::sync_block(0, site.line()); }
inline int __syncthreads_count(int yes, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return cuda_on_cpu::sync_block(yes != 0, site.line());
}
inline int __syncthreads_or(int yes, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return cuda_on_cpu::sync_block(yes != 0, site.line()) != 0;
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __syncwarp(unsigned mask = 0xffffffffu, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    int nothing = 0;
    cuda_on_cpu::together(mask, nothing, [](void* const*) {}, site);
}

namespace cuda_on_cpu {

template <class T> struct Exchange { T value, result; int source; };

template <class T> T exchange(unsigned mask, T value, int source, Site site) {
    Exchange<T> mine{value, value, source};
    together(mask, mine, [](void* const* slots) {
        const unsigned all = lanes_of_collective();
        for (int i = 0; i < warp_size; ++i)
            if (all >> i & 1u) {
                auto* lane = static_cast<Exchange<T>*>(slots[i]);
                if (all >> lane->source & 1u) lane->result = static_cast<Exchange<T>*>(slots[lane->source])->value;
            }
    }, site);
    return mine.result;
}

inline int lane_id() { return now.lane; }

}  // namespace cuda_on_cpu

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    const int lane = cuda_on_cpu::lane_id();
    return cuda_on_cpu::exchange(mask, value, (lane & -width) + (source & (width - 1)), site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    const int lane = cuda_on_cpu::lane_id(), source = lane ^ bits;
    return cuda_on_cpu::exchange(mask, value, source < (lane & -width) + width ? source : lane, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int delta, int width = 32, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    const int lane = cuda_on_cpu::lane_id();
    return cuda_on_cpu::exchange(mask, value, (lane & (width - 1)) + delta < width ? lane + delta : lane, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, int delta, int width = 32, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    const int lane = cuda_on_cpu::lane_id();
    return cuda_on_cpu::exchange(mask, value, (lane & (width - 1)) >= delta ? lane - delta : lane, site);
}
inline unsigned __ballot_sync(unsigned mask, int yes, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    unsigned bits = 0;
    for (int i = 0; i < 32; ++i)
        if (mask >> i & 1u) bits |= unsigned(cuda_on_cpu::exchange(mask, int(yes != 0), i, site)) << i;
    return bits;
}
inline int __any_sync(unsigned mask, int yes, cuda_on_cpu::Site site = cuda_on_cpu::Site::current()) {
    return __ballot_sync(mask, yes, site) != 0;
}

template <class T> T atomicAdd(T* at, T value) {
    if constexpr (std::is_integral_v<T>) {
        return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
    } else {
        T old;
        __atomic_load(at, &old, __ATOMIC_RELAXED);
        for (T next = old + value; !__atomic_compare_exchange(at, &old, &next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); next = old + value) {}
        return old;
    }
}

template <class T> T __ldg(const T* at) { return *at; }
template <class To, class From> To cuda_on_cpu_bits(From x) {
    static_assert(sizeof(To) == sizeof(From));
    To y;
    std::memcpy(&y, &x, sizeof y);
    return y;
}
inline float __int_as_float(int x) { return cuda_on_cpu_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return cuda_on_cpu_bits<float>(x); }
inline int __float_as_int(float x) { return cuda_on_cpu_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return cuda_on_cpu_bits<unsigned>(x); }
inline double __longlong_as_double(long long x) { return cuda_on_cpu_bits<double>(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
template <class T> T max(T a, T b) { return a < b ? b : a; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
