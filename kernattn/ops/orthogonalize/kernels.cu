// Orthonormal rows of matrices x (count, r, d), r <= d: Gram-Schmidt, every row projected twice. A block of threads a matrix, in shared
// memory or, where that is too small, in `room`. Runs on types.cuh; WARPS is the most that a block has.
//
// Rows of q lie `stride` apart, and `lanes` lanes add up each product of two of them. In shared memory that is 4 lanes, and a stride of
// 4 (mod 8): all lanes of a warp read from different banks.
extern "C" __global__ void __launch_bounds__(32 * WARPS, 1)
orthogonalize(const X* x, X* out, Acc* room, int r, int d, int stride, int lanes) {
    const int warps = blockDim.x / 32, together = 32 / lanes, lane = lane_index() % lanes;
    const long long matrix = blockIdx.x * static_cast<long long>(r) * d;
    Carver carver{shared_bytes};
    Acc* const weight = carver.take<Acc>(r);
    Acc* const sums = carver.take<Acc>(WARPS);
    Acc* const q = room ? room + blockIdx.x * static_cast<long long>(r) * stride : carver.take<Acc>(r * stride);

    for (int i = warp_index(); i < r; i += warps) {  // the largest entry becomes 1: squares neither overflow nor vanish
        const X* const given = x + matrix + static_cast<long long>(i) * d;
        Acc largest = Acc(0);
        for (int k = lane_index(); k < d; k += 32) largest = larger(Acc(fabs(Acc(widen(given[k])))), largest);
        largest = warp_max(largest);
        for (int k = lane_index(); k < d; k += 32) q[static_cast<long long>(i) * stride + k] = Acc(widen(given[k])) / largest;
    }
    for (int i = 0; i < r; ++i) {
        Acc* const row = q + static_cast<long long>(i) * stride;
        Acc once = Acc(0), square = Acc(0);
        for (int pass = 0; pass < 2; ++pass) {
            for (int first = warp_index() * together; first < i; first += warps * together) {
                const int j = first + lane_index() / lanes;
                const Acc* const other = q + static_cast<long long>(j < i ? j : i) * stride;
                Acc sum = Acc(0);
#pragma unroll 4
                for (int k = lane; k < d; k += lanes) sum += other[k] * row[k];
                for (int bits = lanes / 2; bits > 0; bits /= 2) sum += __shfl_xor_sync(all_lanes, sum, bits);
                if (lane == 0 && j < i) weight[j] = sum;
            }
            __syncthreads();
            once = square, square = Acc(0);
            for (int k = threadIdx.x; k < d; k += blockDim.x) {
                Acc rest = row[k];
#pragma unroll 4
                for (int j = 0; j < i; ++j) rest -= weight[j] * q[static_cast<long long>(j) * stride + k];
                row[k] = rest;
                square += rest * rest;
            }
            square = block_sum(square, sums);
        }
        // twice is enough, unless the second time takes away more than half
        const Acc scale = square < once / Acc(4) ? Limits<Acc>::lowest() * Acc(0) : Acc(1) / sqrt(square);
        for (int k = threadIdx.x; k < d; k += blockDim.x) {
            row[k] *= scale;
            out[matrix + static_cast<long long>(i) * d + k] = narrow<X>(row[k]);
        }
        __syncthreads();
    }
}
