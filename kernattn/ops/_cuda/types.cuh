// The types of a kernel. Compile-time: INPUT (of its rows), OPERAND (of its products), SPLIT (constant operands in two parts), WARPS.

using X = INPUT;
using E = OPERAND;
using Acc = typename AccumulationOf<X>::type;
constexpr int C = 16 * WARPS;  // rows of a tile, 16 a warp
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
