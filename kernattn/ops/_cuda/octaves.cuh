// Exponentials in units of whole powers of two. With n whole, near x / ln 2, and p between 1/2 and 2, exp(x) is 2^n p: n less a unit is a
// whole number again, so that a weight has the same digits under every unit, and a change of units none of its own.

constexpr Acc log_2 = Acc(0.69314718055994530942);

// The whole number n of x, the same for the same x and never less for a larger one. Adding 1.5 * 2^23 rounds; beyond 2^22 to a multiple
// of more than 1, which fraction() makes up for.
__device__ __forceinline__ float octaves(float x) { return fmaf(x, 1.44269504f, 12582912.0f) - 12582912.0f; }
__device__ __forceinline__ double octaves(double x) { return rint(x * 1.4426950408889634); }

// exp(x) 2^-n for n = octaves(x), held where x has no digits after the point; NaN where x is not finite.
__device__ __forceinline__ float fraction(float x, float n) {
    float f = fmaf(x, 1.44269504f, -n);
    if (exact) f = fmaf(x, 1.92596299e-8f, f);
    return exp2f(fmaf(x, 0.0f, fminf(fmaxf(f, -1.0f), 1.0f)));
}
__device__ __forceinline__ double fraction(double x, double n) {
    const double r = fma(n, -1.6465949582897082e-12, fma(n, -0.6931471805582987, x));
    return exp(fma(x, 0.0, fmin(fmax(r, -0.7), 0.7)));
}

// 2^n of a whole number up to 127, or 1023; 0 where that is no normal number, and for NaN.
__device__ __forceinline__ float power(float n) {
    return __int_as_float((__float_as_int(fmaxf(n, -127.0f) + 12582912.0f) << 23) + 0x3f800000);
}
__device__ __forceinline__ double power(double n) {
    return __longlong_as_double(static_cast<long long>(fmax(n, -1023.0) + 1023.0) << 52);
}

// exp(x) 2^(up - down) for whole numbers, and 0 where x is -infinity, whatever they are. Added in this order: where floats stand more than 1
// apart, a unit that was chosen as octaves(x) + up is met exactly.
__device__ __forceinline__ Acc weight(Acc x, Acc up, Acc down) {
    const Acc n = octaves(x), y = fraction(x, n) * power(n + up - down);
    return x == Limits<Acc>::lowest() ? Acc(0) : y;
}
__device__ __forceinline__ Acc weight(Acc x, Acc unit) { return weight(x, Acc(0), unit); }

// The unit under which exp(x) lies in [1, 2), up to rounding; a unit is whole, or -infinity where there is nothing.
__device__ __forceinline__ Acc unit_of(Acc x) {
    const Acc y = x * Acc(1.4426950408889634);
    return fabs(y) < Acc(1 << 21) ? floor(y) : octaves(x);
}
// What sums in one unit are multiplied by to be in another.
__device__ __forceinline__ Acc change(Acc from, Acc to) { return power(from - to); }

// States keep the natural logarithm of their units. One that is no such logarithm, since another wrote it, costs a factor on its sums.
__device__ __forceinline__ Acc log_of(Acc unit) { return unit * log_2; }
__device__ __forceinline__ Acc unit_of_log(Acc peak) { return octaves(peak); }
__device__ __forceinline__ Acc rest_of_log(Acc peak) {
    const Acc unit = unit_of_log(peak);
    return log_of(unit) == peak ? Acc(1) : weight(peak, unit);
}
