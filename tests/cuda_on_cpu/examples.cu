// Small kernels that use each thing the emulation promises; the tests delete their barriers one at a time.
#if !defined(CUDA_ON_CPU)
extern __shared__ unsigned char shared_bytes[];
#endif

extern "C" __global__ void __launch_bounds__(64) matmul(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float left[8][8], right[8][8];
    const int row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 8 + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += 8) {
        const int i = start + threadIdx.x, j = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && i < k ? a[row * k + i] : 0.0f;
        right[threadIdx.y][threadIdx.x] = column < n && j < k ? b[j * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int l = 0; l < 8; ++l) sum += left[threadIdx.y][l] * right[l][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

// Sum of each row: shuffles inside a warp, shared memory between warps.
extern "C" __global__ void row_sum(const float* x, float* out, int n) {
    float* partial = reinterpret_cast<float*>(shared_bytes);
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += x[blockIdx.x * n + i];
    for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, bits);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < int(blockDim.x) / 32; ++w) sum += partial[w];
        out[blockIdx.x] = sum;
    }
}

// Reverses every 32 values through shared memory with a warp barrier, then doubles by quarter-warp shuffles under a partial mask.
extern "C" __global__ void reverse(const float* x, float* out) {
    float* line = reinterpret_cast<float*>(shared_bytes) + threadIdx.x / 32 * 32;
    const int lane = threadIdx.x % 32;
    line[lane] = x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncwarp();
    float y = line[31 - lane];
    if (lane < 8) y += __shfl_sync(0x000000ffu, y, lane);
    else y *= 2.0f;
    out[blockIdx.x * blockDim.x + threadIdx.x] = y;
}

extern "C" __global__ void histogram(const int* x, int* count, float* total, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&count[x[i]], 1);
        atomicAdd(total, float(x[i]));
    }
}

extern "C" __global__ void divergent(float* out) {
    if (threadIdx.x < 32) __syncthreads();
    out[threadIdx.x] = 1.0f;
    if (threadIdx.x >= 32) __syncthreads();
}

extern "C" __global__ void missing_lane(float* out) {
    float y = 1.0f;
    if (threadIdx.x != 3) y = __shfl_sync(0xffffffffu, y, 0);
    out[threadIdx.x] = y;
}

extern "C" __global__ void reads_unwritten(float* out) { out[threadIdx.x] = reinterpret_cast<float*>(shared_bytes)[threadIdx.x]; }

extern "C" __global__ void out_of_bounds(const float* x, float* out, int n) { out[threadIdx.x] = x[threadIdx.x + n]; }
