// One token of Mamba-2's state space: a warp has a row of a state, which decays, is added to and is read in one pass.
//
// Compile-time, beside those of types.cuh: ROWS, the type of b and c.

using R = ROWS;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
selective_step(Acc* state, const X* x, const Acc* dt, const Acc* a, const R* b, const R* c, const Acc* d, X* out, long long rows, int heads, int size, int columns, int groups) {
    const long long row = blockIdx.x * static_cast<long long>(WARPS) + warp_index();
    if (row >= rows) return;
    const long long head = row / size, group = head / heads * groups + head % heads / (heads / groups);
    const Acc step = dt[head], decay = exponential(step * a[head % heads]), token = Acc(widen(x[row])), factor = step * token;
    Acc *const s = state + row * columns, sum = Acc(0);
    const R *const added = b + group * columns, *const read = c + group * columns;
#pragma unroll 4
    for (int j = lane_index(); j < columns; j += 32) {
        const Acc y = decay * s[j] + factor * Acc(widen(added[j]));
        s[j] = y;
        sum += y * Acc(widen(read[j]));
    }
    sum = warp_sum(sum);
    if (lane_index() == 0) out[row] = narrow<X>(d ? sum + d[head % heads] * token : sum);
}
