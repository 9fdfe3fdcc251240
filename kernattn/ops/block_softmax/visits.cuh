// What a block answers of a plan, and how answers of parts join. Compile-time, beside those of plans.cuh: RESULT and LOG (types of outputs
// and of log normalisers).

using R = RESULT;
using Log = LOG;

__device__ __forceinline__ Tile tile_of(const Tables& tables, long long n) {
    if constexpr (of_parts) return tile_in(tables);
    const int entry = blockIdx.x / tables.count, number = blockIdx.x % tables.count;
    const long long row0 = (tables.count - 1 - number) * static_cast<long long>(C);  // the longest rows first
    return {entry, n - row0 < C ? int(n - row0) : C, 0, 1, 0, {nullptr, row0}, {nullptr, 0}};
}

// The log normaliser of a row in a unit: of one of shrunk queries and keys, what a float can hold of it.
template <bool far>
__device__ __forceinline__ Log log_normaliser(Acc unit, Acc den) {
    if (den == Acc(0)) return Limits<Log>::lowest();
    if constexpr (far && same<Log, Acc>) unit = grown(unit);
    Log wide = unit;
    if constexpr (far && !same<Log, Acc>) wide = wide / Limits<Acc>::shrunk() / Limits<Acc>::shrunk();
    return wide + Log(log(den));
}

// Makes the answer of a lane's row r, whose log normaliser is `lse`, that of other parts too, which stands in `out` with that of `before`.
// Returns whether the row changes. With `low`, values were lowered.
template <bool low>
__device__ __forceinline__ bool join(Output& output, int r, Log& lse, const R* out, Log before, int columns) {
    if (lse == Limits<Log>::lowest()) return false;
    if (before == Limits<Log>::lowest()) return true;
    const Log peak = larger(lse, before);
    const Acc kept = Acc(exponential(before - peak)), added = Acc(exponential(lse - peak)), total = kept + added;
    if (added == Acc(0)) return false;
    lse = peak + Log(log(total));
    const Acc share = added / total / output.den[r], rest = low ? kept / total * Limits<Acc>::lowered() : kept / total;
#pragma unroll
    for (int j = 0; j < EB / 8; ++j)
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            const int column = 8 * j + 2 * (lane_index() % 4) + p;
            Acc& x = output.num[j][2 * r + p];
            x *= share;
            if (kept != Acc(0) && column < columns) x += rest * widen(out[column]);  // a part without weight may hold anything
        }
    output.den[r] = Acc(1);
    return true;
}
