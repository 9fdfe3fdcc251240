// The types of a kernel. Compile-time: INPUT (of its rows), OPERAND (of its products), SPLIT (constant operands in two parts), WARPS, and
// GROUPS: how many warps share a strip of 16 rows.
#if !defined(GROUPS)
#define GROUPS 1
#endif

using X = INPUT;
using E = OPERAND;
using Acc = typename AccumulationOf<X>::type;
constexpr int STRIPS = WARPS / GROUPS;
constexpr int C = 16 * STRIPS;  // rows of a tile
constexpr bool exact = sizeof(E) >= 4 && !SPLIT;  // full-precision operands: full-precision functions too

__device__ __forceinline__ float exponential(float x) { return exact ? expf(x) : fast_exp(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
// exp(x - unit), and 0 where x is -infinity, whatever the unit.
__device__ __forceinline__ Acc relative(Acc x, Acc unit) { return x == Limits<Acc>::lowest() ? Acc(0) : exponential(x - unit); }
// A product of two shrunk numbers without the shrinking, held where a float has no room.
__device__ __forceinline__ Acc grown(Acc x) {
    const Acc y = x / Limits<Acc>::shrunk() / Limits<Acc>::shrunk(), held = Limits<Acc>::held();
    return y < -held ? -held : y > held ? held : y;
}

// A warp's strip of rows and its place among those that share it. Warps that differ by 4 run on the same quarter of a multiprocessor: the second
// group counts backwards, so that where strips have more to do the lower they are, each quarter has a short and a long one.
__device__ __forceinline__ int group_index() { return GROUPS == 1 ? 0 : warp_index() / STRIPS; }
__device__ __forceinline__ int strip_index() {
    const int i = GROUPS == 1 ? warp_index() : warp_index() % STRIPS;
    return GROUPS > 1 && group_index() % 2 == 1 ? STRIPS - 1 - i : i;
}
