"""Features of fingerprints, and their kernel."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

from bench.cpu import peers
from bench.cpu.cases.inputs import one_thread
from bench.races import Race
from bench.sizes import Sizes
from kernattn.bench import Work
from kernattn.features import random_features
from kernattn.kernels import Polynomial, Tanimoto

BITS, SET = 2048, 50  # of a fingerprint, and how many of them are 1
ROWS, DRAWS = 200, 10  # of which squared errors are averaged
INSTRUCTIONS = 6  # of a hash and its minimum, as many lanes at once as a product and sum, which count 2
FEW = 500  # rows of peers that go set by set
MANY = 20000  # rows, of which NumPy's hashes take minutes
HELD = 60  # columns that rows of a sparse matrix hold
SHARED = 30  # bits that fingerprints of one series have in common
SHARES = 1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 32  # of the features, for powers from the first on


def fingerprints(o: Sizes) -> Race:
    """Minwise features of the Tanimoto kernel: n fingerprints in CSR, 50 of 2,048 bits each -> 16 times the features.

    "NumPy" makes the same hashes, some features at a time; datasketch's MinHash is of 500 rows, set by set, with the
    permutations shared, by its fastest scheme, and keeps whole hashes in place of signs. More than 20,000 rows have no
    peers.
    """
    rng, m = np.random.default_rng(o.seed), 16 * o.features
    x: Any = sparse.csr_array((rng.random((o.n, BITS)) < SET / BITS).astype(o.dtype))
    phi: Any = random_features(Tanimoto(), BITS, m, "minwise", rng=o.seed)
    few, call = x[:ROWS], partial(phi, x)
    exact = Tanimoto()(few)

    def error() -> float:
        draws = (phi.redraw(seed)(few) for seed in range(DRAWS))
        return float(np.mean([np.mean((features @ features.T - exact) ** 2) for features in draws]))

    calls = {"ours": call, "ours, one thread": one_thread(call)}
    works = {}
    if o.n > MANY:
        return Race(calls, _work(x, m), errors={"ours": error})
    calls["NumPy"] = partial(phi, x, backend="reference")
    if peers.have("datasketch"):
        calls["datasketch, 500 rows"] = _datasketch(x[:FEW], m)
        works["datasketch, 500 rows"] = _work(x[:FEW], m)
    return Race(calls, _work(x, m), errors={"ours": error}, works=works)


def sketched(o: Sizes, series: bool) -> Race:
    r"""Minwise features of fingerprints, and as many of tensor sketches of the kernel's powers.

    Of bits :math:`k = \sum_p (x^T y)^p / (|x|^2 + |y|^2)^p`. Sketches are of the first six powers, and squared errors
    are as if their denominators were known: a map has to approximate them too. They are those of pairs of rows among
    200, of which "series" have 30 bits in common.
    """
    rng, m = np.random.default_rng(o.seed), 16 * o.features
    bits = rng.random((o.n, BITS)) < ((SET - SHARED) / BITS if series else SET / BITS)
    if series:
        bits[:, rng.choice(BITS, SHARED, replace=False)] = True
    x: Any = sparse.csr_array(bits.astype(o.dtype))
    phi: Any = random_features(Tanimoto(), BITS, m, "minwise", rng=o.seed)
    powers: Any = [
        random_features(Polynomial(p), BITS, max(1, int(share * m)), "tensor_sketch", rng=o.seed + p)
        for p, share in enumerate(SHARES, 1)
    ]
    few = x[:ROWS].astype(np.float64)
    exact, sizes = Tanimoto()(few), few.sum(axis=1)
    least = 1 / (sizes[:, None] + sizes)
    pairs = ~np.eye(len(sizes), dtype=bool)

    def by_hashes(seed: int) -> Any:
        features = phi.redraw(seed)(few)
        return features @ features.T

    def by_sketches(seed: int) -> Any:
        drawn = [each.redraw(seed * len(powers) + p)(few) for p, each in enumerate(powers)]
        return sum(features @ features.T * least**p for p, features in enumerate(drawn, 1))

    def error(products: Any) -> Any:
        return lambda: float(np.mean([np.mean((products(seed) - exact)[pairs] ** 2) for seed in range(DRAWS)]))

    calls = {"ours": partial(phi, x), "tensor sketches of powers": lambda: [each(x) for each in powers]}
    errors = {"ours": error(by_hashes), "tensor sketches of powers": error(by_sketches)}
    return Race(calls, _work(x, m), errors=errors)


def matrix(o: Sizes) -> Race:
    """The Tanimoto kernel of n fingerprints of 2,048 bits with each other.

    "BLAS" is NumPy's product of matrices with the same division; SciPy's cdist takes booleans, pair by pair.
    """
    peers.limit_blas()
    bits = np.random.default_rng(o.seed).random((o.n, BITS)) < SET / BITS
    x, kernel = bits.astype(o.dtype), Tanimoto()

    def blas() -> Any:
        shared, sizes = x @ x.T, x.sum(axis=1)
        return shared / (sizes[:, None] + sizes - shared)

    calls = {
        "ours": partial(kernel, x),
        "ours, one thread": one_thread(partial(kernel, x)),
        "BLAS": blas,
        "SciPy's cdist": lambda: 1 - cdist(bits, bits, "jaccard"),
    }
    written = float(x.itemsize) * o.n**2
    words = o.n**2 * BITS / 64.0  # of each the bits in common are counted: an instruction or two
    return Race(calls, Work(x.nbytes + written, 2 * words, written=written))


def matrix_csr(o: Sizes, counts: bool) -> Race:
    """The Tanimoto kernel of n fingerprints in CSR with each other, 60 of 2,048 columns held: bits, or counts.

    "SciPy's product" is that of the sparse rows, made dense, with the same division: of counts it is the kernel of the
    form "dot". RDKit's bulk similarities, of bits, are a list for each row.
    """
    peers.limit_blas()
    rng = np.random.default_rng(o.seed)
    held = rng.random((o.n, BITS)) < HELD / BITS
    x: Any = sparse.csr_array((held * (1 + rng.poisson(1, held.shape) if counts else 1)).astype(o.dtype))
    kernel = Tanimoto()

    def scipy() -> Any:
        shared, squares = (x @ x.T).toarray(), (x * x).sum(axis=1)
        return shared / (squares[:, None] + squares - shared)

    calls = {
        "ours": partial(kernel, x),
        "ours, one thread": one_thread(partial(kernel, x)),
        "SciPy's product, another kernel" if counts else "SciPy's product": scipy,
        "ours, of dense rows": partial(kernel, x.toarray()),
    }
    works = {}
    if not counts and peers.have("rdkit"):
        calls["RDKit, 500 rows"] = _rdkit(held[:FEW], held)
        works["RDKit, 500 rows"] = _meetings(x[:FEW], x)
    return Race(calls, _meetings(x, x), works=works)


def _meetings(x: Any, y: Any) -> Work:
    """Return the work of a minimum and a sum for each two entries in a column, and of a division for each two rows."""
    pairs = float(x.shape[0]) * y.shape[0]
    met = float(np.bincount(x.indices, minlength=BITS) @ np.bincount(y.indices, minlength=BITS))
    written = pairs * x.dtype.itemsize
    return Work(8.0 * (x.nnz + y.nnz) + written, 2 * met + 3 * pairs, written=written)


def _rdkit(some: Any, rows: Any) -> Any:
    structures = import_module("rdkit.DataStructs")

    def vectors(bits: Any) -> list[Any]:
        made = []
        for row in bits:
            vector = structures.ExplicitBitVect(BITS)
            vector.SetBitsFromList(np.flatnonzero(row).tolist())
            made.append(vector)
        return made

    few, all_of_them = vectors(some), vectors(rows)
    return lambda: np.array([structures.BulkTanimotoSimilarity(each, all_of_them) for each in few])


def _work(x: Any, m: int) -> Work:
    written = float(x.shape[0]) * m * x.dtype.itemsize
    return Work(8.0 * x.nnz + written, 2.0 * INSTRUCTIONS * x.nnz * m, written=written)


def _datasketch(x: Any, m: int) -> Any:
    kind = import_module("datasketch").MinHash
    first = kind(num_perm=m, hashfunc=int)

    def call() -> list[Any]:
        made = []
        for begin, end in zip(x.indptr, x.indptr[1:], strict=False):
            one = kind(num_perm=m, hashfunc=int, permutations=first.permutations, scheme=first.scheme)
            one.update_batch(x.indices[begin:end])
            made.append(one.hashvalues)
        return made

    return call
