"""Every estimator of the softmax and the Gaussian kernel, at as many features, on real and on made rows."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.errors import NoClosedForm
from kernattn.features import FeatureMap, estimators, fit, random_features
from kernattn.kernels import Gaussian, Kernel, Softmax
from kernattn.metrics import attention_mse, median_and_ci
from kernattn.metrics._settled import where_settled
from kernattn.studies._means import FEWEST_OF_MEDIANS, means
from kernattn.studies._presets.preset import Options
from kernattn.studies._presets.redraw import is_signed
from kernattn.studies._records import with_ends, with_intervals
from kernattn.studies._seeds import stream
from kernattn.studies._sweep import Cell, Sweep
from kernattn.studies._tokens import DIM, SOURCES, shipped_tokens, unseen_tokens

QUERIES, KEYS, VALUES = 64, 256, 8
LEARNED = "learned"  # fitted to other rows of the source, once, for the softmax kernel
Pair = tuple[Float64, Float64]


def _normal(rng: np.random.Generator, queries: int = QUERIES) -> Pair:
    return rng.standard_normal((queries, DIM)), rng.standard_normal((KEYS, DIM))


def _normals(rng: np.random.Generator) -> tuple[Pair, Pair]:
    return _normal(rng), _normal(rng, KEYS)


def _anisotropic(rng: np.random.Generator) -> tuple[Pair, Pair]:
    """Return queries and keys that vary along different axes, and keys that share a mean."""
    first, mean, sizes = _normal(rng), 0.5 * rng.standard_normal(DIM), np.geomspace(2.0, 0.2, DIM)
    both = first, _normal(rng, KEYS)
    mine, other = ((q * sizes, k * sizes[::-1] + mean) for q, k in both)
    return mine, other


MADE: dict[str, Callable[[np.random.Generator], tuple[Pair, Pair]]] = {
    "normal": _normals,
    "anisotropic": _anisotropic,
}
"""Queries and keys that judge, and as many keys and queries that a fit sees."""
KERNELS: dict[str, Callable[[int, float], Kernel]] = {  # of one temperature, they differ by a factor of each row
    "softmax": lambda dim, temperature: Softmax(scale=dim**-0.5 / temperature),
    "gaussian": lambda dim, temperature: Gaussian(lengthscale=(dim**0.5 * temperature) ** 0.5),
}


class Problem(NamedTuple):
    """Rows, the kernel at all pairs, and attention by it: out_i = sum_j k_ij v_j / sum_j k_ij."""

    q: Float64
    k: Float64
    v: Float64
    entries: Float64
    exact: Float64
    unseen: Pair | None  # other rows of the source


def sweep(**asked: Any) -> Sweep:
    """Return the design: one number of features for all, rows of four kinds, and the temperature of the weights."""
    options = Options(**asked)
    served = estimators(Softmax())
    full = {
        "kernel": ("softmax", "gaussian"),
        "source": ("anisotropic", "china", "digits"),
        "temperature": (64.0, 16.0, 4.0, 2.0, 1.0, 0.5),
        "estimator": (*served, LEARNED),
        "projection": ("iid", "orthogonal"),
        "m": (64,),
    }
    small = {"source": ("anisotropic", "digits"), "temperature": (64.0, 1.0), "projection": ("iid",)}
    stop = options.stop(32, 12, of="over_uniform", least=FEWEST_OF_MEDIANS)
    own = options.choose_tokens(QUERIES, KEYS)
    known = (*MADE, *SOURCES) if own is None else (own.label,)
    if own is not None:
        full |= {"source": known, "estimator": tuple(served)}
        small["source"] = known
    allowed: dict[str, Any] = {"kernel": KERNELS, "source": known, "estimator": full["estimator"]}
    chosen = options.choose_axes(full, small, allowed)

    @lru_cache(maxsize=32)
    def problem(name: str, source: str, temperature: float) -> Problem:
        q, k, v, unseen = _rows(source, options.seed) if own is None else (own.q, own.k, own.v, None)
        entries = np.asarray(KERNELS[name](q.shape[1], temperature)(q, k))
        return Problem(q, k, v, entries, entries @ v / entries.sum(axis=1, keepdims=True), unseen)

    @lru_cache(maxsize=1)
    def phi(cell: Cell) -> FeatureMap:
        given = problem(cell["kernel"], cell["source"], cell["temperature"])
        dim = given.q.shape[1]
        kernel = KERNELS[cell["kernel"]](dim, cell["temperature"])
        if cell["estimator"] == LEARNED and given.unseen is not None:
            with catch_warnings():
                simplefilter("ignore", UserWarning)  # of fits that do not help
                return fit(kernel, given.unseen, cell["m"], rng=0)
        return random_features(
            kernel, dim, cell["m"], cell["estimator"], cell["projection"], data=(given.q, given.k), rng=0
        )

    @lru_cache(maxsize=1)
    def predict(cell: Cell) -> tuple[Float64 | None, NDArray[np.bool_]]:
        """Return the variance at all pairs, in closed form, and the pairs at which redraws see the squares."""
        given = problem(cell["kernel"], cell["source"], cell["temperature"])
        if cell["estimator"] == LEARNED:  # an estimate of attention's outputs, not of the kernel
            return None, np.zeros(given.entries.shape, bool)
        x, y = given.q[:, None], given.k[None]
        # the square of an exponential term is the term of rows twice as long
        seen = np.asarray(is_signed(phi(cell)) | where_settled(phi(cell), 2 * x, 2 * y, stop.draws))
        try:
            return np.asarray(phi(cell).variance(x, y)), seen
        except NoClosedForm:
            return None, seen

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        given = problem(cell["kernel"], cell["source"], cell["temperature"])
        drawn = phi(cell).redraw(rng)
        estimate = drawn.query(given.q) @ drawn.key(given.k).T
        errors = {"attention": attention_mse(estimate @ given.v / estimate.sum(axis=1, keepdims=True), given.exact)}
        if cell["estimator"] == LEARNED:
            return errors
        squares = (estimate - given.entries) ** 2
        variance, seen = predict(cell)
        errors["error"] = np.mean(squares) / np.mean(given.entries**2)
        if variance is not None and (known := _which_tell(variance, seen, given.entries)).any():
            errors["ratio"] = np.mean(squares[known] / variance[known])
        return errors

    def facts(cell: Cell) -> dict[str, Any]:
        given = problem(cell["kernel"], cell["source"], cell["temperature"])
        variance, seen = predict(cell)
        fields: dict[str, Any] = {
            "uniform": attention_mse(given.v.mean(axis=0), given.exact),
            "error_settled": bool(seen.all()),
            "error_predicted": None,
            "typical": None,
            "pairs": seen.size,
            "ratio_pairs": 0,
            "ratio_predicted": 1.0,
        }
        if variance is None:
            return fields
        return fields | {
            "error_predicted": np.mean(variance) / np.mean(given.entries**2),
            # the geometric mean of what one feature's term has as its squared mean, over the kernel's square
            "typical": np.exp(np.mean(np.log1p(cell["m"] * variance / given.entries**2))),
            "ratio_pairs": int(_which_tell(variance, seen, given.entries).sum()),
        }

    return Sweep(
        "estimators",
        chosen,
        trial,
        facts,
        keep=lambda cell: (
            cell["estimator"] != LEARNED or (cell["kernel"], cell["projection"]) == ("softmax", "orthogonal")
        ),
        paired=("kernel", "source", "temperature", "estimator", "projection", "m"),
        version=2,
        stop=stop,
        seed=options.seed,
        reduce=_reduce,
        prepare=preparation(float64=("features", "scales", "kernel", "attend", "pullback")),
    )


def _rows(source: str, seed: int) -> tuple[Float64, Float64, Float64, Pair]:
    """Return queries, keys and values of DIM columns, and other queries and keys."""
    if source not in MADE:
        tokens, unseen = shipped_tokens(source, QUERIES, KEYS, seed), unseen_tokens(source, KEYS, seed)
        return tokens.q, tokens.k, tokens.v, (unseen.q, unseen.k)
    rng = np.random.default_rng(stream(seed, f"estimators/{source}"))
    (q, k), other = MADE[source](rng)
    return q, k, rng.standard_normal((KEYS, VALUES)), other


def _which_tell(variance: Float64, seen: NDArray[np.bool_], entries: Float64) -> NDArray[np.bool_]:
    """Return the pairs at which a measured variance can be held against the closed one: some have none but rounding."""
    return np.asarray(seen & np.isfinite(variance) & (variance > 1e-9 * entries**2))


def _reduce(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return means of the kernel's error, medians of attention's: a ratio whose normaliser comes near 0 has no mean.

    A mean that few redraws carry has no interval.
    """
    del cell
    kernel = {name: draws[name] for name in ("error", "ratio") if name in draws}
    return {
        **with_ends("error", (np.nan,) * 3),
        **with_ends("ratio", (np.nan,) * 3),
        **means(facts, **kernel),
        **with_intervals(
            median_and_ci, attention=draws["attention"], over_uniform=draws["attention"] / facts["uniform"]
        ),
    }
