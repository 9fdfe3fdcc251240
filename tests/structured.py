"""Projections to test, which of them have which law, and draws of them."""

from functools import cache, partial

import numpy as np

import kernattn as ka

P = ka.projections
SPECS = {
    "antithetic": P.Antithetic(),
    "antithetic iid": P.Antithetic(P.Iid()),
    "antithetic simplex": P.Antithetic(P.Simplex(norms="coupled")),
    "fastfood": P.Fastfood(),
    "fastfood sqrt_d": P.Fastfood(norms="sqrt_d"),
    "hadamard": P.Hadamard(),
    "hadamard 1": P.Hadamard(chains=1, norms="sqrt_d"),
    "halton": P.Halton(),
    "halton sqrt_d": P.Halton(norms="sqrt_d"),
    "kac": P.Kac(),
    "kac 5": P.Kac(steps=5, norms="sqrt_d"),
    "orthogonal coupled": P.Orthogonal(norms="coupled"),
    "simplex": P.Simplex(),
    "simplex coupled": P.Simplex(norms="coupled"),
    "simplex sqrt_d": P.Simplex(norms="sqrt_d"),
    "sobol": P.Sobol(),
    "sobol sqrt_d": P.Sobol(norms="sqrt_d"),
}
BASIC = {
    f"{name}-{norms}": make(norms=norms)
    for norms in ("chi", "sqrt_d")
    for name, make in {
        "iid": P.Iid,
        "qr": partial(P.Orthogonal, method="qr"),
        "gram_schmidt": partial(P.Orthogonal, method="gram_schmidt"),
    }.items()
}
ALL = BASIC | SPECS
NEARLY = [name for name in SPECS if name.startswith(("hadamard", "kac"))]  # uniform
UNIFORM = [name for name in SPECS if name not in NEARLY]
NORMAL = [name for name in UNIFORM if not name.endswith("sqrt_d")]
QUASI = ("halton", "sobol")
CLOSED = ["antithetic", "antithetic iid", "antithetic simplex", "orthogonal coupled", "simplex", "simplex coupled"]
CLOSED += ["simplex sqrt_d"]


D = 16
DIRECTIONS = {
    "diagonal": np.full(D, D**-0.5),
    "axis": np.eye(D)[0],
    "last axis": np.eye(D)[-1],
    "random": np.random.default_rng(0).standard_normal(D),
}
DIRECTIONS["random"] /= np.linalg.norm(DIRECTIONS["random"])


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def z_score(samples, expected):
    """Of the mean over the first axis."""
    return (samples.mean(axis=0) - expected) / (samples.std(axis=0, ddof=1) / np.sqrt(len(samples)))


@cache
def redraws(name, m, d, count, seed=1):
    """Independent draws of the m rows of whole blocks, (count, m, d)."""
    spec = SPECS[name]
    if name.startswith(QUASI):
        rng = np.random.default_rng(seed)
        return np.stack([spec.draw(m, d, rng) for _ in range(count)])
    return spec.draw(m * count, d, seed).reshape(count, m, d)


def blocks_of(spec, m, d, seed=2):
    """The rows of a draw, block by block."""
    return np.split(spec.draw(m, d, seed), np.cumsum(spec.blocks(m, d))[:-1])
