"""
Fingerprints of molecules
=========================

`python examples/fingerprints.py` makes 100,000 fingerprints of 2,048 bits, some 50 of them 1, and prints how long their
4,096 features take, how near the variance of estimates is to its closed form, and how long the exact kernel takes
beside SciPy's. Fingerprints of a series have 30 bits in common, and some 20 of their own.

Where RDKit is installed, ridge regressions predict logP from Morgan fingerprints of the molecules that it ships: on the
features, and on landmarks.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial.distance import cdist

import kernattn as ka

BITS, SCAFFOLD, OWN, SERIES = 2048, 30, 20, 50
KERNEL = ka.kernels.Tanimoto()


def fingerprints(n: int, rng: np.random.Generator) -> Any:
    """Rows of bits in CSR, float32."""
    scaffolds = rng.integers(BITS, size=(n // SERIES + 1, SCAFFOLD))
    columns = np.concatenate([scaffolds[np.arange(n) // SERIES], rng.integers(BITS, size=(n, OWN))], axis=1)
    rows = np.repeat(np.arange(n), SCAFFOLD + OWN)
    bits = sparse.csr_array((np.ones(columns.size, np.float32), (rows, columns.ravel())), shape=(n, BITS))
    bits.data[:] = 1
    return bits


def seconds(call: Callable[[], Any]) -> str:
    """Seconds of the second call, since the first one compiles, and those of all cores together."""
    call()
    begun, used = perf_counter(), process_time()
    call()
    return f"{perf_counter() - begun:.2f} s (CPU {process_time() - used:.2f} s)"


def variance_ratio(x: Any, features: int, draws: int) -> tuple[float, float]:
    """The mean square of errors of pairs in one series over its closed form, and the standard error of that.

    A draw of 64 times the features is 64 draws.
    """
    a, b = x[::2], x[1::2]
    k, ratios = KERNEL.pairs(a, b)[:, None], []
    for seed in range(draws // 64):
        phi = ka.random_features(KERNEL, BITS, 64 * features, rng=seed)
        products = 64 * (phi(a) * phi(b)).reshape(len(k), 64, features).sum(axis=2)
        ratios.append(np.mean((products - k) ** 2 * features / (1 - k**2), axis=0))  # over pairs
    return float(np.mean(ratios)), float(np.std(ratios) / np.sqrt(draws))


def main(n: int, features: int, quick: bool = False) -> None:
    """Print a line for each question."""
    rng = np.random.default_rng(0)
    x = fingerprints(n, rng)
    phi = ka.random_features(KERNEL, BITS, features, rng=0)
    forms = {"CSR": x, "uint8": x.astype(np.uint8).toarray()}
    for name, rows in forms.items():
        print(f"{n:,} fingerprints in {name} to {features:,} features: {seconds(lambda: phi(rows))}")  # noqa: B023
    ratio, error = variance_ratio(x[: 4 if quick else 40], features, 64 if quick else 2048)
    print(f"variance of estimates over its closed form: {ratio:.3f} (standard error {error:.3f})")

    few = forms["uint8"][: 100 if quick else 1000]
    ours, theirs = (seconds(call) for call in (lambda: KERNEL(few), lambda: cdist(few, few, "jaccard")))
    print(f"the exact kernel of {len(few):,} of them: {ours}, by SciPy's cdist {theirs}")

    if find_spec("rdkit") is not None and not quick:
        molecules(features)


def molecules(features: int) -> None:
    """Morgan fingerprints of the 5,000 molecules of NCI that RDKit ships, and their logP by Crippen's rules."""
    from rdkit import Chem, RDConfig
    from rdkit.Chem import Crippen, rdFingerprintGenerator

    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().split("\n")
    found = [mol for line in lines if line and (mol := Chem.MolFromSmiles(line.split()[0])) is not None]
    morgan = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=BITS)
    y = np.array([Crippen.MolLogP(mol) for mol in found])
    train = np.random.default_rng(0).permutation(len(found)) % 5 > 0
    for name, make in (("bits", morgan.GetFingerprintAsNumPy), ("counts", morgan.GetCountFingerprintAsNumPy)):
        x = sparse.csr_array(np.stack([make(mol) for mol in found]).astype(np.float64))
        maps = {
            f"{features:,} features": ka.random_features(KERNEL, BITS, features, rng=0),
            "1,000 landmarks": ka.features.nystrom(x[train], KERNEL, 1000, rng=0),
        }
        for how, phi in maps.items():
            fit = ka.solvers.ridge(ka.solvers.moments(x[train], phi, y=y[train]))
            error = np.sqrt(np.mean((fit.predict(x[~train]) - y[~train]) ** 2))
            print(f"logP of {np.sum(~train):,} of {len(found):,} molecules by {name}, {how}: rmse {error:.3f}")
        print(f"the spread of their logP: {y[~train].std():.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=4096)
    given = parser.parse_args()
    main(given.rows, given.features)
