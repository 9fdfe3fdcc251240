"""Features, and sums of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist

from bench.cpu import feature_peers, peers
from bench.cpu.cases.inputs import normal, one_thread
from bench.races import Race
from bench.sizes import Sizes
from kernattn._arrays.namespaces import Array, Float64
from kernattn.bench import Work
from kernattn.features import nystrom, random_features
from kernattn.kernels import Gaussian, Kernel, Polynomial
from kernattn.ops.gram import OP as GRAM
from kernattn.studies import real_rows

DRAWS = 20  # over which squared errors are averaged
ROWS = 300  # of the Gram matrix they are errors of

_Maker = Callable[[Float64, int], Callable[[Float64], Float64]]  # rows and a seed -> a map fitted to them


def _squared_error(draws: Iterable[Float64], exact: Float64) -> float:
    return float(np.mean([np.mean((phi @ phi.T - exact) ** 2) for phi in draws]))


@dataclass(frozen=True)
class _Sampler:
    """A map of scikit-learn for one of our kernels.

    Called on all rows at once, in the dtype that they have: in blocks RBFSampler gains little, PolynomialCountSketch,
    which goes column by column, loses. Its cosine is NumPy's, far slower in float64, and it takes no other.
    """

    name: str
    parameters: dict[str, Any]

    def fit(self, x: Array, seed: int) -> Any:
        model = getattr(import_module("sklearn.kernel_approximation"), self.name)
        return model(**self.parameters, random_state=seed).fit(x)


def _race(phi: Any, kernel: Kernel, x: Float64, sampler: _Sampler, work: Work, seed: int) -> Race:
    """Race a map of ours against scikit-learn's, with the squared errors of both."""
    peers.limit_blas()
    rows, call = x[:ROWS].astype("f8"), partial(phi, x)
    exact = kernel(rows)
    calls = {"ours": call, "ours, one thread": one_thread(call)}
    errors = {"ours": lambda: _squared_error((phi.redraw(draw)(rows) for draw in range(DRAWS)), exact)}
    if peers.have("sklearn"):
        name = f"scikit-learn's {sampler.name}"
        calls[name] = partial(sampler.fit(x, seed).transform, x)
        errors[name] = lambda: _squared_error((sampler.fit(rows, draw).transform(rows) for draw in range(DRAWS)), exact)
    return Race(calls, work, errors=errors)


def gaussian_features(o: Sizes) -> Race:
    """Cosine and sine features of the Gaussian kernel: n x d -> 1024."""
    (x,) = normal(o, (o.n, o.dim))
    kernel, m = Gaussian(lengthscale=float(np.sqrt(o.dim))), 1024
    phi: Any = random_features(kernel, o.dim, m, "trigonometric", rng=o.seed)
    sampler = _Sampler("RBFSampler", {"gamma": 0.5 / o.dim, "n_components": m})
    race = _race(phi, kernel, x, sampler, _work(x, m, o.dim * m, m / 2), o.seed)
    if not peers.have("torch"):
        return race
    torch = feature_peers.torch_waves(x, np.asarray(phi.omega) / kernel.lengthscale)
    return replace(race, calls={**race.calls, "torch": torch})


def _work(x: Float64, features: int, flops: float, functions: float) -> Work:
    """Return the work of features of rows; sine and cosine of one argument count as one function."""
    written = len(x) * float(features) * x.itemsize
    return Work(x.nbytes + written, len(x) * flops, len(x) * functions, written=written)


def hadamard_features(o: Sizes) -> Race:
    """Cosine features of the Gaussian kernel by Hadamard chains, against our own dense map: n x 16 d -> 128 d."""
    (x,) = normal(o, (o.n, 16 * o.dim))
    d, m = 16 * o.dim, 128 * o.dim
    kernel = Gaussian(lengthscale=float(np.sqrt(d)))
    chains, dense = (random_features(kernel, d, m, "phase", p, rng=o.seed) for p in ("hadamard", "orthogonal"))
    sums = 3 * np.ceil(np.log2(d)) * m
    return Race({"ours": partial(chains, x), "ours, dense": partial(dense, x)}, _work(x, m, sums, m))


def digits(o: Sizes) -> Race:
    """Maps for the digits of scikit-learn, drawn and applied in every call: n x 64 -> the features asked for."""
    return _draw_and_apply(o, real_rows("digits", o.n, np.random.default_rng(o.seed + 1)))


def patches(o: Sizes) -> Race:
    """Maps as for digits, for patches of 8 x 8 of photographs, their brightness and contrast taken out: n x 64."""
    return _draw_and_apply(o, real_rows("patches", o.n, np.random.default_rng(o.seed + 1)))


def _draw_and_apply(o: Sizes, x: Float64) -> Race:
    """Race maps of the Gaussian kernel of lengthscale the median distance; squared errors are of rows held out."""
    peers.limit_blas()
    rows, others, x, m = x[:ROWS], x[ROWS:], x.astype(o.dtype), o.features
    d = x.shape[1]
    scale = float(np.median(pdist(rows)))
    kernel = Gaussian(lengthscale=scale)
    exact, sampler = kernel(rows), _Sampler("RBFSampler", {"gamma": 0.5 / scale**2, "n_components": m})

    def random(projection: str) -> _Maker:
        return lambda data, seed: random_features(kernel, d, m, "trigonometric", projection, rng=seed)

    def apply(make: _Maker) -> Float64:
        return make(x, o.seed)(x)

    def error(make: _Maker) -> float:
        return _squared_error((make(others, draw)(rows) for draw in range(DRAWS)), exact)

    makers = {"ours": random("orthogonal"), "ours, hadamard": random("hadamard"), "ours, iid": random("iid")}
    if m > 2 * d:
        makers["ours, moment-matched"] = random("moment_matched")
    if m <= len(others):
        makers["ours, Nystrom"] = lambda data, seed: nystrom(data, kernel, m, rng=seed)
        landmarks = _Sampler("Nystroem", {"gamma": 0.5 / scale**2, "n_components": m})
        makers["scikit-learn's Nystroem"] = lambda data, seed: landmarks.fit(data, seed).transform
    makers["scikit-learn's RBFSampler"] = lambda data, seed: sampler.fit(data, seed).transform
    calls = {name: partial(apply, make) for name, make in makers.items()}
    errors: dict[str, Callable[[], float]] = {name: partial(error, make) for name, make in makers.items()}
    return Race(calls, _work(x, m, d * m, m / 2), errors=errors)


def tensor_sketch(o: Sizes) -> Race:
    """Tensor sketches of a polynomial kernel of degree 3: n x 4 d -> 2048."""
    (x,) = normal(o, (o.n, 4 * o.dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    d, m, degree = 4 * o.dim, 2048, 3
    kernel = Polynomial(degree, gamma=1.0, coef0=1.0)
    phi: Any = random_features(kernel, d, m, "tensor_sketch", rng=o.seed)
    sampler = _Sampler("PolynomialCountSketch", {"gamma": 1.0, "degree": degree, "coef0": 1.0, "n_components": m})
    transforms = 2.5 * m * np.log2(m)  # of a real transform of m numbers
    flops = degree * (2.0 * d + transforms) + 6.0 * m / 2 * (degree - 1)
    race = _race(phi, kernel, x, sampler, _work(x, m, flops, 0.0), o.seed)
    if not peers.have("torch"):
        return race
    torch = feature_peers.torch_sketch(x, phi.index, phi.sign, m)
    return replace(race, calls={**race.calls, "torch": torch})


def gram(o: Sizes) -> Race:
    """phi^T phi and phi^T y of n rows, against our features and a symmetric product by BLAS."""
    peers.limit_blas()
    x, y = normal(o.but(seed=o.seed + 1), (o.n, o.dim), (o.n, 1))
    n, m = o.n, o.features
    phi = random_features(Gaussian(lengthscale=float(np.sqrt(o.dim))), o.dim, m, "trigonometric", rng=o.seed)

    def apart(dtype: str) -> tuple[Array, Array]:
        features = phi(x).astype(dtype, copy=False)
        return features.T @ features, features.T @ y.astype(dtype, copy=False)

    ours = GRAM.implementation(x)
    calls = {
        "ours": partial(ours, x, y, phi.spec, False),
        "our features, then BLAS": partial(apart, x.dtype.name),
    }
    if x.dtype.name != "float64":
        calls["ours, summed in float64"] = partial(ours, x, y, phi.spec, True)
        calls["our features, then BLAS in float64"] = partial(apart, "float64")
    flops = n * (o.dim * float(m) + m * (m + 1.0) + 2.0 * m)
    return Race(calls, Work(float(x.nbytes), flops, n * m / 2.0))
