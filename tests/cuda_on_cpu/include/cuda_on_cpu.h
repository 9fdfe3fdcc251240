// Lets g++ compile unchanged CUDA C++ and run it on the CPU.
//
// The threads of a block are fibers inside one OS thread; they switch only at barriers, shuffles and other collectives, in an order
// shuffled by a seed, so that a missing barrier shows as a wrong answer: with an even seed all threads go on together, with an odd one a
// warp runs ahead of the others as far as it can. Asynchronous copies arrive at once or as late as they may. Blocks are spread over
// OpenMP threads. Shared memory starts as NaN. Barriers that only some threads reach, or that they reach at different source lines, are
// reported.
//
// Here is what kernels see of it, and no more: it is read for each of some hundred builds. The rest is in runtime.cc, which is compiled once.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>
#include <utility>

#define CUDA_ON_CPU 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ thread_local

struct dim3 { unsigned x = 1, y = 1, z = 1; };

namespace cuda_on_cpu {

using Site = std::source_location;
constexpr int warp_size = 32;
constexpr std::size_t max_shared_bytes = 232448;

// Where the thread that runs is.
struct Now {
    dim3 thread, block, block_shape, grid_shape;
    int lane = 0;
};
extern constinit thread_local Now now;  // constinit: it is read without a call

using Body = void (*)(void* const* args);
struct Launch {
    unsigned grid[3], block[3];
    unsigned long long shared_bytes, seed;
    int threads;
};

// Returns 0, or -1 with a message in text.
int launch(Body body, void* const* args, const Launch& how, char* text, int text_bytes);
int sync_block(int vote, unsigned line);
// Runs act once for all the lanes of mask, when the last of them arrives.
void collective(unsigned mask, void* slot, void (*act)(void* const*), unsigned line);
// The lanes that take part in the collective that runs.
unsigned lanes_of_collective();
[[noreturn]] void fail(const char* what);
// 16 bytes on their way to shared memory, zeros if `from` is null.
void copy(void* to, const void* from);
void wait_for_copies();
void group_copies();
void wait_for_groups(int newest);

// lanes[i] is lane i's argument.
template <class Lane>
void together(unsigned mask, Lane& mine, void (*act)(void* const*), Site site) {
    collective(mask, &mine, act, site.line());
}

template <class... A, std::size_t... I>
void call(void (*kernel)(A...), void* const* args, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<A>*>(args[I])...);
}

}  // namespace cuda_on_cpu

extern constinit thread_local unsigned char shared_bytes[cuda_on_cpu::max_shared_bytes] __attribute__((aligned(128)));

#define threadIdx (cuda_on_cpu::now.thread)
#define blockIdx (cuda_on_cpu::now.block)
#define blockDim (cuda_on_cpu::now.block_shape)
#define gridDim (cuda_on_cpu::now.grid_shape)

// The launcher of one kernel, found by name through ctypes; the sizes let the caller check each argument's width.
#define CUDA_ON_CPU_KERNEL(name)                                                                                                          \
    template <class... A> static void name##_call(void (*kernel)(A...), void* const* args) {                                              \
        cuda_on_cpu::call(kernel, args, std::index_sequence_for<A...>{});                                                                 \
    }                                                                                                                                     \
    template <class... A> static int name##_count(void (*)(A...), unsigned* bytes) {                                                      \
        const unsigned all[] = {unsigned(sizeof(A))..., 0u};                                                                              \
        for (std::size_t i = 0; i < sizeof...(A); ++i) bytes[i] = all[i];                                                                 \
        return int(sizeof...(A));                                                                                                         \
    }                                                                                                                                     \
    extern "C" int cuda_on_cpu_arguments_##name(unsigned* bytes) { return name##_count(&name, bytes); }                                   \
    extern "C" int cuda_on_cpu_launch_##name(void* const* args, const cuda_on_cpu::Launch* how, char* text, int text_bytes) {             \
        return cuda_on_cpu::launch([](void* const* a) { name##_call(&name, a); }, args, *how, text, text_bytes);                          \
    }

#include "cuda_on_cpu_functions.h"
