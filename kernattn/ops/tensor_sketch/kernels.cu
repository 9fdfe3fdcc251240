// Tensor sketches of rows (n, d), M = 2^(bits + 1) features: `group` rows a block, in shared memory from their count sketches to their
// features. Numbers 2 j and 2 j + 1 of a sketch are the real and the imaginary part of point j: the transform of 2^bits complex points
// gives the spectrum of M real numbers. Runs on types.cuh and sketch.cuh.

struct __align__(2 * sizeof(Acc)) Complex { Acc re, im; };
__device__ __forceinline__ Complex operator+(Complex x, Complex y) { return {x.re + y.re, x.im + y.im}; }
__device__ __forceinline__ Complex operator-(Complex x, Complex y) { return {x.re - y.re, x.im - y.im}; }
__device__ __forceinline__ Complex operator*(Complex x, Complex y) { return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}; }

// Where point i of a line stands: a gap after every 16 keeps strides of powers of two apart in the banks.
__device__ __forceinline__ int place(int i) { return i + (i >> 4); }

__device__ __forceinline__ void exchange(Complex*& x, Complex*& y) {
    Complex* const before = x;
    x = y;
    y = before;
}

// One pass over lines of 2^bits points (Stockham): `radix` transforms of 2^done points become one, in order.
template <int radix>
__device__ __forceinline__ void pass(Complex* to, const Complex* from, const Complex* turns, int rows, int line, int bits, int done) {
    constexpr int radix_bits = radix == 4 ? 2 : 1;
    const int step = 1 << (bits - radix_bits), size = 1 << done;
    for (int i = threadIdx.x; i < rows * step; i += blockDim.x) {
        const int row = i >> (bits - radix_bits), j = i & (step - 1), k = j & (size - 1);
        Complex x[radix];
#pragma unroll
        for (int q = 0; q < radix; ++q) {
            x[q] = from[row * line + place(j + q * step)];
            if (q > 0) x[q] = x[q] * turns[q * k << (bits + 1 - radix_bits - done)];
        }
        Complex* const out = to + row * line;
        const int at = (j - k) * radix + k;
        if (radix == 2) {
            out[place(at)] = x[0] + x[1];
            out[place(at + size)] = x[0] - x[1];
        } else {
            const Complex even = x[0] + x[2], odd = x[1] + x[radix - 1], across = x[0] - x[2], other = x[1] - x[radix - 1];
            const Complex turned{other.im, -other.re};
            out[place(at)] = even + odd;
            out[place(at + size)] = across + turned;
            out[place(at + 2 * size)] = even - odd;
            out[place(at + 3 * size)] = across - turned;
        }
    }
}

// The products of spectra of lines of 2^bits points, multiplied by twice the spectra of the real numbers whose transforms are in z. With
// u, v the transform at f and at its mirror g, E = u + conj v and O = (u - conj v) / i, twice the spectrum is E + w^f O at f and the
// conjugate of E - w^f O at g. The real ones at 0 and M / 2 share slot 0.
__device__ __forceinline__ void multiply(Complex* products, const Complex* z, const Complex* turns, int rows, int line, int bits, bool first) {
    const int points = 1 << bits, half_bits = bits > 0 ? bits - 1 : 0;
    for (int i = threadIdx.x; i < rows << half_bits; i += blockDim.x) {
        const int row = i >> half_bits, low = i & ((1 << half_bits) - 1);
        const Complex* const own = z + row * line;
        Complex* const product = products + (row << bits);
        const auto pair = [&](int f) {
            const int g = points - f;
            const Complex u = own[place(f)], v = own[place(g)], even{u.re + v.re, u.im - v.im}, odd{u.im + v.im, v.re - u.re};
            const Complex turned = odd * turns[f], upper = even - turned;
            const Complex at_f = even + turned, at_g{upper.re, -upper.im};
            product[f] = first ? at_f : product[f] * at_f;
            if (g != f) product[g] = first ? at_g : product[g] * at_g;
        };
        if (low > 0) {
            pair(low);
        } else {
            const Complex u = own[0], ends{2 * (u.re + u.im), 2 * (u.re - u.im)}, before = product[0];
            product[0] = first ? ends : Complex{before.re * ends.re, before.im * ends.im};
            if (bits > 0) pair(points / 2);
        }
    }
}

// turns (M,): exp(-2 pi i j / M). order (M / 2,): the frequencies as they are written, 0 first. amplitude: that of every feature but the first two, over what the doubled spectra add.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
tensor_sketch(const X* x, const int* first, const int* column, const Acc* weight, const Complex* turns, const int* order, Acc* out,
              Acc amplitude, long long n, int d, int copies, int bits, int group, int staged) {
    const long long row0 = blockIdx.x * static_cast<long long>(group);
    const int rows = n - row0 < group ? int(n - row0) : group;
    const int points = 1 << bits, line = place(points), buckets = 2 * points;
    Carver carver{shared_bytes};
    Complex* to = carver.take<Complex>(group * line);
    Complex* from = carver.take<Complex>(group * line);
    Complex* const products = carver.take<Complex>(group * points);
    Acc* const room = staged ? carver.take<Acc>(group * d) : nullptr;
    const X* const at = x + row0 * d;
    if (staged) stage(room, at, rows * d);
    __syncthreads();
    for (int copy = 0; copy < copies; ++copy) {
        for (int i = threadIdx.x; i < rows * buckets; i += blockDim.x) {
            const int row = i / buckets, b = i % buckets;
            const long long skip = row * static_cast<long long>(d);
            const Acc sum = bucket(staged ? room + skip : nullptr, at + skip, first, column, weight, copy * buckets + b);
            Complex& point = to[row * line + place(b / 2)];
            if (b % 2 == 0) point.re = sum;
            else point.im = sum;
        }
        __syncthreads();
        exchange(to, from);
        for (int done = 0; done < bits; done += 2) {
            if (bits - done == 1) pass<2>(to, from, turns, rows, line, bits, done);
            else pass<4>(to, from, turns, rows, line, bits, done);
            __syncthreads();
            exchange(to, from);
        }
        multiply(products, from, turns, rows, line, bits, copy == 0);
    }
    __syncthreads();
    const Acc ends = amplitude * sqrt(Acc(0.5));
    const Acc* const features = &products[0].re;
    for (int i = threadIdx.x; i < rows * buckets; i += blockDim.x) {
        const int row = i / buckets, slot = i % buckets;
        out[row0 * buckets + i] = features[row * buckets + 2 * order[slot / 2] + slot % 2] * (slot < 2 ? ends : amplitude);
    }
}
