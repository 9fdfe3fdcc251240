// Features of rows under chains of Hadamard transforms: a few rows and one block of p frequencies a block of threads, in shared memory or,
// where that is too small, in `room`. blockIdx.x = block of frequencies * groups of rows + group of rows. Runs on types.cuh and maps.cuh.

// One pass of H over lines of p numbers: sums and differences at distances half and, with `two`, 2 half.
__device__ __forceinline__ void butterflies(Acc* line, int count, int half, bool two) {
    if (two) {
        for (int i = threadIdx.x; i < count / 4; i += blockDim.x) {
            Acc* const at = line + i / half * 4 * half + i % half;
            const Acc a = at[0], b = at[half], c = at[2 * half], d = at[3 * half];
            at[0] = (a + b) + (c + d);
            at[half] = (a - b) + (c - d);
            at[2 * half] = (a + b) - (c + d);
            at[3 * half] = (a - b) - (c - d);
        }
    } else {
        for (int i = threadIdx.x; i < count / 2; i += blockDim.x) {
            Acc* const at = line + i / half * 2 * half + i % half;
            const Acc a = at[0], b = at[half];
            at[0] = a + b;
            at[half] = a - b;
        }
    }
}

// x (n, d), diagonals (blocks, links, p), norms (frequencies,) -> phi (n, M).
extern "C" __global__ void __launch_bounds__(32 * WARPS)
hadamard(const X* x, X* phi, const Acc* diagonals, const Acc* norms, const Acc* row_weights, const Acc* offset, Acc amplitude,
         Acc log_amplitude, int frequencies, int d, int p, int links, int group, Acc* room, long long n) {
    const Map map{nullptr, nullptr, row_weights, offset, amplitude, log_amplitude, frequencies, d};
    const long long groups = (n + group - 1) / group, row0 = blockIdx.x % groups * group;
    const int block = int(blockIdx.x / groups);
    const int rows = n - row0 < group ? int(n - row0) : group, count = group * p;
    Carver carver{shared_bytes};
    Acc* const log_row = carver.take<Acc>(group);
    Acc* const line = room ? room + blockIdx.x * static_cast<long long>(count) : carver.take<Acc>(count);

    for (int row = warp_index(); row < group; row += WARPS) {
        Acc sum = Acc(0);
        if (row_weights && row < rows)
            for (int i = lane_index(); i < d; i += 32) {
                const Acc xi = Acc(widen(x[(row0 + row) * d + i]));
                sum += row_weights[i] * xi * xi;
            }
        sum = warp_sum(sum);
        if (lane_index() == 0) log_row[row] = sum;
    }
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        const int row = i / p, column = i % p;
        line[i] = row < rows && column < d ? Acc(widen(x[(row0 + row) * d + column])) : Acc(0);
    }
    const Acc scale = Acc(1) / sqrt(Acc(p));
    for (int link = 0; link < links; ++link) {
        const Acc* const diagonal = diagonals + (block * static_cast<long long>(links) + link) * p;
        for (int i = threadIdx.x; i < count; i += blockDim.x) line[i] *= diagonal[i % p] * scale;
        __syncthreads();
        for (int half = 1; half < p;) {
            const bool two = 2 * half < p;
            butterflies(line, count, half, two);
            half *= two ? 4 : 2;
            __syncthreads();
        }
    }
    const int first = block * p, width = min(p, frequencies - first);
    for (int part = 0; part < parts; ++part)
        for (int i = threadIdx.x; i < rows * width; i += blockDim.x) {
            const int row = i / width, column = i % width, feature = part * frequencies + first + column;
            const Acc u = line[row * p + column] * norms[first + column];
            phi[(row0 + row) * map.count() + feature] = narrow<X>(map.whole(part, u, log_row[row], map.shift(feature)));
        }
}
