// One token of a short causal convolution: a thread has a channel of a sequence, whose last tokens it sums, and moves on by one place.
//
// Compile-time, beside those of types.cuh: WEIGHT, the type of taps and bias, and STATE.

using W = WEIGHT;
using S = STATE;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
causal_conv_step(S* state, const X* x, const W* weight, const W* bias, X* out, long long count, int channels, int length, int taps, int silu) {
    const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
    if (i >= count) return;
    const int c = int(i % channels);
    S* const kept = state + i * length;
    const W* const factors = weight + c * static_cast<long long>(taps);
    Acc sum = bias ? Acc(widen(bias[c])) : Acc(0);
    for (int j = 0; j < taps - 1; ++j) sum += Acc(widen(factors[j])) * Acc(widen(kept[length - taps + 1 + j]));
    sum += Acc(widen(factors[taps - 1])) * Acc(widen(x[i]));
    for (int j = 0; j < length - 1; ++j) kept[j] = kept[j + 1];
    if (length > 0) kept[length - 1] = convert<S>(x[i]);  // a convolution of one tap remembers nothing
    out[i] = narrow<X>(silu ? sum / (Acc(1) + exponential(-sum)) : sum);
}
