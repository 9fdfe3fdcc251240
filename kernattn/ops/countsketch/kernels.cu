// Count sketches of rows (n, d): p sketches of `buckets` numbers each, out (n, p, buckets). A block takes `group` rows, in shared memory
// with `staged`, and a thread a bucket at a time.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
countsketch(const X* x, const int* first, const int* column, const Acc* weight, Acc* out, long long n, int d, int sketch, int group, int staged) {
    Acc* const room = reinterpret_cast<Acc*>(shared_bytes);
    const long long row0 = blockIdx.x * static_cast<long long>(group);
    const int rows = n - row0 < group ? int(n - row0) : group;
    const X* const at = x + row0 * d;
    if (staged) stage(room, at, rows * d);
    __syncthreads();
    for (long long i = threadIdx.x; i < rows * static_cast<long long>(sketch); i += blockDim.x) {
        const long long row = i / sketch;
        out[row0 * sketch + i] = bucket(staged ? room + row * d : nullptr, at + row * d, first, column, weight, int(i % sketch));
    }
}
