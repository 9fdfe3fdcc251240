// Kinds of nonlinearity: all that depends on the kind of a map. Compile-time: KIND, the name of a struct below. Those names are the
// rows of _maps/kinds.py, and "values" and "logs" for features that were given, themselves or their logarithms.

// cos (quarters = 1) or sin (0) of u: reduced by multiples of pi / 2 in three parts, then a polynomial on [-pi/4, pi/4]. One reduction
// does up to 48000, two up to 2^24 (1.5e-7 off); beyond, where floats stand radians apart, the result is only bounded.
__device__ __forceinline__ float sine(float u, int quarters) {
    float r = u;
    int quadrant = quarters;
    do {
        const float k = rintf(r * 0.636619772f);
        r = fmaf(k, -1.57079601287841797f, r);
        r = fmaf(k, -3.1391647326017846e-7f, r);
        r = fmaf(k, -5.390302529957765e-15f, r);
        quadrant += int(fmaf(-4.0f, floorf(0.25f * k), k));
    } while (fabsf(r) > 0.8f);
    const float s = r * r;
    const float odd = fmaf(r * s, fmaf(s, fmaf(s, -1.95152959e-4f, 8.33216087e-3f), -1.66666546e-1f), r);
    const float even = fmaf(s * s, fmaf(s, fmaf(s, 2.44331571e-5f, -1.38873162e-3f), 4.16666456e-2f), fmaf(s, -0.5f, 1.0f));
    const float y = quadrant & 1 ? even : odd;
    return quadrant & 2 ? -y : y;
}
__device__ __forceinline__ double sine(double u, int quarters) { return quarters ? cos(u) : sin(u); }

namespace kinds {

// Of a projection u, shifted by the feature's offset, in the first or second part of the features of a frequency: value() where the log
// scale is per row, log() where it is per feature; pull() is what that part adds to the cotangent of u, f being that of the value or log.
struct Kind {
    static constexpr int parts = 1;  // features made of one frequency
    static constexpr bool scaled = false;  // is there a log scale, of the row or per feature?
    static constexpr bool per_feature = false;
    static constexpr bool shifted = false;  // does it take the feature's offset?
    static __device__ __forceinline__ Acc value(int, Acc u, Acc) { return u; }
    static __device__ __forceinline__ Acc log(int, Acc u, Acc) { return u; }
    static __device__ __forceinline__ Acc pull(int, Acc, Acc, Acc f) { return f; }
};

struct values : Kind {
    static constexpr bool scaled = true;
};
struct logs : Kind {
    static constexpr bool scaled = true;
    static constexpr bool per_feature = true;
};
struct elu1 : Kind {
    static __device__ __forceinline__ Acc value(int, Acc u, Acc) { return u > Acc(0) ? u + Acc(1) : exponential(u); }
    static __device__ __forceinline__ Acc pull(int, Acc u, Acc, Acc f) { return u > Acc(0) ? f : f * exponential(u); }
};
struct relu : Kind {
    static __device__ __forceinline__ Acc value(int, Acc u, Acc) { return u < Acc(0) ? Acc(0) : u; }
    static __device__ __forceinline__ Acc pull(int, Acc u, Acc, Acc f) { return u > Acc(0) ? f : Acc(0); }
};
struct cos : Kind {
    static constexpr bool scaled = true;
    static constexpr bool shifted = true;
    static __device__ __forceinline__ Acc value(int, Acc u, Acc offset) { return sine(u + offset, 1); }
    static __device__ __forceinline__ Acc pull(int, Acc u, Acc offset, Acc f) { return -f * sine(u + offset, 0); }
};
struct sincos : Kind {
    static constexpr int parts = 2;
    static constexpr bool scaled = true;
    static __device__ __forceinline__ Acc value(int part, Acc u, Acc) { return sine(u, 1 - part); }
    static __device__ __forceinline__ Acc pull(int part, Acc u, Acc, Acc f) { return (part ? f : -f) * sine(u, part); }
};
struct exp : Kind {
    static constexpr bool scaled = true;
    static constexpr bool per_feature = true;
    static constexpr bool shifted = true;
    static __device__ __forceinline__ Acc log(int, Acc u, Acc offset) { return u + offset; }
};
struct exp_pair : Kind {
    static constexpr int parts = 2;
    static constexpr bool scaled = true;
    static constexpr bool per_feature = true;
    static constexpr bool shifted = true;
    static __device__ __forceinline__ Acc log(int part, Acc u, Acc offset) { return (part ? -u : u) + offset; }
    static __device__ __forceinline__ Acc pull(int part, Acc, Acc, Acc f) { return part ? -f : f; }
};

}  // namespace kinds

using Nonlinearity = kinds::KIND;
constexpr int parts = Nonlinearity::parts;
constexpr bool per_feature = Nonlinearity::per_feature;
constexpr bool may_scale = Nonlinearity::scaled && !per_feature;  // can rows have log scales of their own?
