// Count sketches as sums over lists, beside types.cuh: bucket b of copy i is the sum of weight[t] x[column[t]] over first[at] <= t <
// first[at + 1] with at = i * buckets + b, in the order of the columns. Nobody adds to what another thread adds to: sums are the same in
// every run.

// Rows, `count` numbers in all, into shared memory. A barrier must follow.
__device__ __forceinline__ void stage(Acc* room, const X* x, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) room[i] = Acc(widen(x[i]));
}

// One bucket of the row x, or of the same row in `room` where it is there.
__device__ __forceinline__ Acc bucket(const Acc* room, const X* x, const int* first, const int* column, const Acc* weight, int at) {
    Acc sum = Acc(0);
    for (int t = first[at]; t < first[at + 1]; ++t) sum += weight[t] * (room ? room[column[t]] : Acc(widen(x[column[t]])));
    return sum;
}
