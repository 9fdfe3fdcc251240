// What the kernels of gated linear attention share: where an entry's rows are, the decay of a token, the norm of a row.
//
// Compile-time, beside those of types.cuh: CHANNELS, 1 where each channel has a decay of its own; RULE: 0 adds k v^T, 1 erases along k by beta
// before, 2 adds b (a^T S)^T too.

// Of the table that says which entry of each array an entry of the outputs reads; KEPT: to which state it is written, or -1.
enum { Q_AT, K_AT, V_AT, LOGS_AT, BETA_AT, PAIR_AT, STATE_AT, KEPT_AT, PLACES };

// Null pointers: none. Masks are those of states, (states, n).
struct Given {
    const X *q, *k, *v;
    const Acc *logs, *beta, *read, *write;
    const unsigned char *mask, *fresh;
    const Acc* before;
    const int* table;
    Acc scale;
    int normalise;
    long long n;
    int d, e;
};

// The rows of an entry from one token on.
struct Rows {
    const X *q, *k, *v;
    const Acc *logs, *beta, *read, *write;
    const unsigned char *mask, *fresh;
    int d;

    __device__ __forceinline__ Rows(const Given& x, const int* at, long long first)
        : q(x.q + (at[Q_AT] * x.n + first) * x.d), k(x.k + (at[K_AT] * x.n + first) * x.d), v(x.v + (at[V_AT] * x.n + first) * x.e),
          logs(x.logs ? x.logs + (at[LOGS_AT] * x.n + first) * (CHANNELS ? x.d : 1) : nullptr),
          beta(x.beta ? x.beta + at[BETA_AT] * x.n + first : nullptr), read(x.read ? x.read + (at[PAIR_AT] * x.n + first) * x.d : nullptr),
          write(x.write ? x.write + (at[PAIR_AT] * x.n + first) * x.d : nullptr), mask(x.mask ? x.mask + at[STATE_AT] * x.n + first : nullptr),
          fresh(x.fresh ? x.fresh + at[STATE_AT] * x.n + first : nullptr), d(x.d) {}

    __device__ __forceinline__ bool there(int i) const { return !mask || mask[i]; }
    __device__ __forceinline__ bool begins(int i) const { return fresh && fresh[i]; }
    // The log of a decay: 0 where there is no key, -infinity where a sequence begins.
    __device__ __forceinline__ Acc log_of(int i, int channel) const {
        if (begins(i)) return Limits<Acc>::lowest();
        return logs && there(i) ? logs[CHANNELS ? i * static_cast<long long>(d) + channel : i] : Acc(0);
    }
    __device__ __forceinline__ Acc strength(int i) const { return there(i) ? beta[i] : Acc(0); }
};

__device__ __forceinline__ float decayed(float log) { return expf(log); }
__device__ __forceinline__ double decayed(double log) { return exp(log); }
// 0 where all has decayed, whatever there was.
__device__ __forceinline__ Acc fade(Acc decay, Acc x) { return decay == Acc(0) ? Acc(0) : decay * x; }
template <class A> __device__ __forceinline__ bool finite(A x) { return x * A(0) == A(0); }

// 1 over the norm of a row, whose square need be no float; by a warp.
template <class T> __device__ __forceinline__ Acc inverse_norm(const T* x, int d) {
    Acc square = Acc(0), peak = Acc(0);
    for (int c = lane_index(); c < d; c += 32) square += Acc(widen(x[c])) * Acc(widen(x[c]));
    square = warp_sum(square);
    if (square == square && !finite(square)) {
        for (int c = lane_index(); c < d; c += 32) peak = larger(Acc(fabs(Acc(widen(x[c])))), peak);
        peak = warp_max(peak), square = Acc(0);
        for (int c = lane_index(); c < d; c += 32) square += Acc(widen(x[c])) / peak * (Acc(widen(x[c])) / peak);
        return Acc(1) / sqrt(warp_sum(square)) / peak;
    }
    return Acc(1) / sqrt(square + Acc(1e-6));
}
