// Count sketches of rows (n, d): p sketches of `buckets` numbers each, by atomic additions, in shared memory where a row's sketch fits and
// straight into out (n, p, buckets), zeros before, where it does not. A block a row, rows gridDim.x apart.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
countsketch(const X* x, const int* index, const Acc* weight, Acc* out, long long n, int d, int p, int buckets, int inside) {
    Acc* const room = reinterpret_cast<Acc*>(shared_bytes);
    const long long size = static_cast<long long>(p) * buckets;
    for (long long row = blockIdx.x; row < n; row += gridDim.x) {
        Acc* const sketch = inside ? room : out + row * size;
        if (inside)
            for (long long i = threadIdx.x; i < size; i += blockDim.x) room[i] = Acc(0);
        __syncthreads();
        for (int i = threadIdx.x; i < p * d; i += blockDim.x) {
            const Acc xi = Acc(widen(x[row * d + i % d]));
            if (xi != Acc(0)) atomicAdd(&sketch[static_cast<long long>(i / d) * buckets + index[i]], weight[i] * xi);
        }
        __syncthreads();
        if (inside)
            for (long long i = threadIdx.x; i < size; i += blockDim.x) out[row * size + i] = room[i];
    }
}
