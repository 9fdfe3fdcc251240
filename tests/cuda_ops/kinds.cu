// Of every kind, after types.cuh and kinds.cuh: of u, its value or log, and what a cotangent of 1 of each of its parts is to u.
template <class Kind>
__device__ void differentiate(const Acc* u, Acc* y, Acc* dy, int n) {
    for (int part = 0; part < Kind::parts; ++part)
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            y[part * n + i] = Kind::per_feature ? Kind::log(part, u[i], Acc(0.3)) : Kind::value(part, u[i], Acc(0.3));
            dy[part * n + i] = Kind::pull(part, u[i], Acc(0.3), Acc(1));
        }
}
extern "C" __global__ void every_kind(const Acc* u, Acc* y, Acc* dy, int kind, int n) {
    if (kind == 0) differentiate<kinds::elu1>(u, y, dy, n);
    if (kind == 1) differentiate<kinds::relu>(u, y, dy, n);
    if (kind == 2) differentiate<kinds::cos>(u, y, dy, n);
    if (kind == 3) differentiate<kinds::sincos>(u, y, dy, n);
    if (kind == 4) differentiate<kinds::exp>(u, y, dy, n);
    if (kind == 5) differentiate<kinds::exp_pair>(u, y, dy, n);
}
