"""What is measured: squared errors of sketches on pairs of unit rows under a cosine, beside closed forms and bounds."""

from functools import lru_cache, partial
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.errors import ParameterError
from kernattn.features import ESTIMATORS, FeatureMap, random_features
from kernattn.kernels import Polynomial
from kernattn.studies._images import real_rows
from kernattn.studies._presets.polynomial_sketch.settled import collisions_settled, squares_settled
from kernattn.studies._presets.preset import DrawRows, Options
from kernattn.studies._sweep import Cell, Sweep

COSINES = (0.0, 0.25, 0.5, 0.75, 1.0)
DIM, FEW = 32, 4  # coordinates of made rows, and how many of them sparse rows use
INPUTS = ("spread", "sparse", "digits")
POOL = 400  # rows out of which pairs are picked
BASES = {"tensor_sketch": 3, "tensor_srht": 3, "rademacher_sketch": 3, "gaussian_sketch": 3, "complex_to_real": 2}


def sweep(**asked: Any) -> Sweep:
    """Return the design: pairs of unit rows under a cosine, sketches of m features of (x.y)^p."""
    options = Options(**asked)
    full = {"inputs": INPUTS, "degree": (2, 3, 5), "m": (16, 128, 1024), "estimator": tuple(BASES)}
    small = {"inputs": ("spread", "digits"), "degree": (2, 3), "m": (256,)}
    known, draw_rows = options.choose_rows(INPUTS, _digits, 16, fewer=True)
    if options.data is not None:
        full["inputs"] = small["inputs"] = known
    pairs = pairs_of if options.data is None else partial(nearest_pairs, draw_rows)
    chosen = options.choose_axes(full, small, {"inputs": known, "estimator": BASES})
    if odd := [m for m in chosen["m"] if m % 2 and "complex_to_real" in chosen["estimator"]]:
        raise ParameterError(f"m must be even, for complex_to_real has two features a product; got {odd[0]}")
    stop = options.stop(1000, 200, of="variance")

    @lru_cache(maxsize=1)
    def phi(cell: Cell) -> FeatureMap:
        dim = pairs(cell["inputs"])[0].shape[1]
        projected = ESTIMATORS[cell["estimator"]].projected  # the others take the default alone
        projection = "iid" if projected else "orthogonal"
        return random_features(Polynomial(cell["degree"]), dim, cell["m"], cell["estimator"], projection, rng=0)

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        x, y = pairs(cell["inputs"])
        drawn = phi(cell).redraw(rng)
        left, right = (drawn(rows, backend="reference") for rows in (x, y))
        error = np.sum(left * right, axis=1) - np.sum(x * y, axis=1) ** cell["degree"]
        return {"variance": error**2, "bias": error}

    def facts(cell: Cell) -> dict[str, Any]:
        x, y = pairs(cell["inputs"])
        cosine, name = np.sum(x * y, axis=1), cell["estimator"]
        paired = name in ("tensor_sketch", "complex_to_real")  # complex products, of two features each
        settled = squares_settled(cell["degree"], cosine, cell["m"] // (1 + paired), stop.draws, paired)
        if name == "tensor_sketch":
            settled &= collisions_settled(cell["degree"], x, cell["m"], stop.draws)
        return {
            "exact": cosine ** cell["degree"],
            "variance_predicted": phi(cell).variance(x, y),
            "bound": bound(name, cell["degree"]) / cell["m"],
            "variance_settled": settled,
        }

    return Sweep(
        "polynomial-sketch",
        chosen,
        trial,
        facts,
        paired=("estimator",),
        along={"cosine": COSINES},
        stop=stop,
        seed=options.seed,
    )


def bound(estimator: str, degree: int) -> float:
    """Return the bound on m Var over (|x| |y|)^(2p), for any rows.

    Of TensorSketch it is that of Avron, Nguyen and Woodruff (2014); of products of real weights, and of complex ones,
    the largest value of the variances of Wacker et al. (2022) for Gaussian weights, which parallel rows reach.
    """
    if estimator == "tensor_sketch":
        return 2.0 + 3.0**degree
    return 3.0**degree - 1 if BASES[estimator] == 3 else 2.0 ** (degree + 1) - 2


def _digits(name: str, count: int, seed: int) -> Float64:
    del name
    return real_rows("digits", count, seed)


@lru_cache(maxsize=1)
def nearest_pairs(draw_rows: DrawRows, name: str) -> tuple[Float64, Float64]:
    """Return pairs of rows, centred and of norm 1, whose cosines come nearest to COSINES."""
    rows = draw_rows(name, POOL, 0)
    rows = rows - rows.mean(axis=0)
    sizes = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = (rows / np.where(sizes > 0, sizes, 1.0))[sizes[:, 0] > 0]
    product = rows @ rows.T
    places = [np.unravel_index(np.argmin(np.abs(product - each)), product.shape) for each in COSINES]
    return rows[[i for i, _ in places]], rows[[j for _, j in places]]


@lru_cache(maxsize=len(INPUTS))
def pairs_of(inputs: str) -> tuple[Float64, Float64]:
    """Return pairs of unit rows x, y (5, d), of these cosines; of digits, centred, the pairs that come nearest."""
    if inputs == "digits":
        return nearest_pairs(_digits, inputs)
    cosine = np.asarray(COSINES)[:, None]
    used = DIM if inputs == "spread" else FEW
    x, across = np.zeros((2, 1, DIM))
    x[:, :used], across[:, :used] = used**-0.5, used**-0.5 * np.resize([1.0, -1.0], used)
    return np.repeat(x, len(COSINES), axis=0), cosine * x + np.sqrt(1 - cosine**2) * across
