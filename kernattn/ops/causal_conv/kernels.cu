// A short causal convolution of every channel. A block has 32 numbers that are neighbours in memory, a lane each, of LINES lines of them, which
// its warps share out: inputs that several tokens read come from the first cache. With `along` tokens are neighbours, else channels.
//
// Compile-time, beside those of types.cuh: WEIGHT, the type of taps and bias, and TAPS.

using W = WEIGHT;
constexpr int LINES = 64;

extern "C" __global__ void __launch_bounds__(32 * WARPS)
causal_conv(const X* x, const W* weight, const W* bias, const unsigned char* fresh, X* out, long long n, int channels, int silu, int along) {
    const long long inner = along ? n : channels, outer = along ? channels : n;
    const long long across = (inner + 31) / 32, down = (outer + LINES - 1) / LINES, block = blockIdx.x;
    const long long i = block % across * 32 + lane_index(), first = block / across % down * LINES, entry = block / across / down;
    if (i >= inner) return;
    const long long apart = along ? 1 : channels;  // numbers from token to token
    Acc factors[TAPS] = {}, added = Acc(0);
    long long known = -1;  // channel
    for (long long line = first + warp_index(); line < min(outer, first + LINES); line += WARPS) {
        const long long t = along ? i : line, c = along ? line : i, at = (entry * outer + line) * inner + i;
        if (c != known) {
#pragma unroll
            for (int j = 0; j < TAPS; ++j) factors[j] = Acc(widen(weight[c * TAPS + j]));
            added = bias ? Acc(widen(bias[c])) : Acc(0);
            known = c;
        }
        int back = 0;  // tokens before that are of the same sequence
        while (back < min(TAPS - 1LL, t) && !(fresh && fresh[entry * n + t - back])) ++back;
        Acc sum = added;
#pragma unroll
        for (int j = 0; j < TAPS; ++j)
            if (TAPS - 1 - j <= back) sum += factors[j] * Acc(widen(x[at - (TAPS - 1 - j) * apart]));
        out[at] = narrow<X>(silu ? sum / (Acc(1) + exponential(-sum)) : sum);
    }
}
