"""The cases by name."""

from __future__ import annotations

from functools import partial

from bench.cpu.cases.attention import (
    asymmetric,
    causal_elu1,
    causal_favor,
    causal_hadamard,
    compiled,
    full_favor,
    one_head,
    softmax,
    softmax_beside,
    softmax_token,
    strided,
)
from bench.cpu.cases.choices import PRODUCTS, chains, drawn, frames, tensor_srht, tiles, transforms
from bench.cpu.cases.decoding import DECODERS, prefixes, step
from bench.cpu.cases.edges import EDGES
from bench.cpu.cases.features import (
    digits,
    gaussian_features,
    gram,
    hadamard_features,
    patches,
    tensor_sketch,
)
from bench.cpu.cases.gated import GATED
from bench.cpu.cases.gradients import GRADIENTS
from bench.cpu.cases.halves import HALVES
from bench.cpu.cases.hashing import hashed
from bench.cpu.cases.kernel_ridge import on_landmarks, on_landmarks_of
from bench.cpu.cases.kernels import KERNELS, matrix, multiplied
from bench.cpu.cases.layers import MODELS
from bench.cpu.cases.libraries import LIBRARIES
from bench.cpu.cases.losses import LOSSES
from bench.cpu.cases.patterns import PATTERNS
from bench.cpu.cases.processes import draws, given_others
from bench.cpu.cases.sets import fingerprints, sketched
from bench.cpu.cases.sets import matrix as tanimoto_matrix
from bench.cpu.cases.sets import matrix_csr as tanimoto_csr
from bench.cpu.cases.solvers import ridges, ridges_on, two_samples
from bench.cpu.cases.whole_tables import learned, wide
from bench.races import Case
from kernattn.studies import diamonds, flights

CASES = {
    "causal-elu1": Case(causal_elu1),
    "causal-favor": Case(causal_favor),
    "causal-hadamard": Case(causal_hadamard),
    "full-favor": Case(full_favor),
    "causal-two-maps": Case(partial(asymmetric, causal=True)),
    "full-two-maps": Case(partial(asymmetric, causal=False)),
    "compiled-causal-elu1": Case(partial(compiled, causal=True)),
    "compiled-full-favor": Case(partial(compiled, causal=False)),
    "one-head": Case(one_head),
    "causal-strided": Case(strided),
    "step": Case(partial(step, reuse=False), n=1),
    "step-in-place": Case(partial(step, reuse=True), n=1),
    **DECODERS,
    "prefixes": Case(prefixes, n=392),
    "gaussian-features": Case(gaussian_features, n=5000),
    "hadamard-features": Case(hadamard_features, n=2000),
    **{f"kernel-{name}": Case(partial(matrix, pair=pair), n=2048, told=name) for name, pair in KERNELS.items()},
    "kernel-product": Case(partial(multiplied, columns=1), n=10000, told="one column"),
    "kernel-product-of-itself": Case(partial(multiplied, columns=1, symmetric=True), n=10000, told="y = x"),
    "kernel-products": Case(partial(multiplied, columns=16), n=10000, told="16 columns"),
    "digits": Case(digits, n=1797),
    "patches": Case(patches, n=1796),
    "tensor-sketch": Case(tensor_sketch, n=2000),
    "tanimoto": Case(fingerprints, n=5000),
    "tanimoto-many": Case(fingerprints, n=100_000, told="a hundred thousand"),
    "sketched-tanimoto": Case(partial(sketched, series=False), n=2000, told="that have hardly a bit in common"),
    "sketched-tanimoto-series": Case(partial(sketched, series=True), n=2000, told="of one series"),
    "tanimoto-matrix": Case(tanimoto_matrix, n=2000),
    "tanimoto-csr": Case(partial(tanimoto_csr, counts=False), n=2000, told="bits"),
    "tanimoto-csr-counts": Case(partial(tanimoto_csr, counts=True), n=2000, told="counts"),
    "gram": Case(gram, n=20000),
    "ridges": Case(ridges, n=20000),
    "ridges-diamonds": Case(partial(ridges_on, load=diamonds), n=20000, told="log prices of diamonds"),
    "ridges-flights": Case(partial(ridges_on, load=flights), n=50000, told="minutes of delay of flights"),
    "learned-diamonds": Case(partial(learned, load=diamonds), n=43000, told="log prices of diamonds"),
    "learned-flights": Case(partial(learned, load=flights), n=50000, told="minutes of delay of flights"),
    "ridge-wide": Case(wide, n=1500),
    "cg": Case(on_landmarks, n=20000),
    "cg-flights": Case(partial(on_landmarks_of, load=flights), n=100000, told="minutes of delay of flights"),
    **LOSSES,
    "two-samples": Case(two_samples, n=10000),
    "draws": Case(draws, n=100000),
    "given-others": Case(given_others, n=100000),
    "softmax": Case(partial(softmax, causal=False)),
    "softmax-causal": Case(partial(softmax, causal=True)),
    "softmax-token": Case(softmax_token),
    "softmax-bias": Case(partial(softmax_beside, what="bias"), told="a bias"),
    "softmax-bias-token": Case(partial(softmax_beside, what="bias", token=True), told="a bias, of one query"),
    "softmax-mask": Case(partial(softmax_beside, what="mask"), told="a mask"),
    "softmax-mask-token": Case(partial(softmax_beside, what="mask", token=True), told="a mask, of one query"),
    "lsh": Case(hashed),
    **PATTERNS,
    **GATED,
    **MODELS,
    **GRADIENTS,
    **LIBRARIES,
    **HALVES,
    **EDGES,
    "chains": Case(chains, n=2000),
    "chains-drawn": Case(drawn, n=1),
    "transforms": Case(transforms, n=2000),
    "tensor-srht": Case(tensor_srht, n=2000),
    "orthogonalize": Case(frames),
    **{f"product-{name}": Case(partial(tiles, shape=shape), n=shape[0]) for name, shape in PRODUCTS.items()},
}
