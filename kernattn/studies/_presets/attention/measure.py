"""One cell of the attention study: redraw a map, estimate kernel and attention, hold both against the exact ones."""

from collections.abc import Mapping
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._maps.kinds import KINDS
from kernattn.attention import linear_attention
from kernattn.errors import NoClosedForm
from kernattn.features import FeatureMap
from kernattn.metrics import attention_kl, attention_mse, empirical_variance, mean_and_ci, median_and_ci, variance_ratio
from kernattn.studies._means import mean_interval
from kernattn.studies._presets.attention.delta import Independent, delta_fields
from kernattn.studies._presets.attention.own import find_settled, make_map
from kernattn.studies._presets.attention.problem import Problem, without_rounding
from kernattn.studies._records import with_ends
from kernattn.studies._sweep import Cell

Number = Any  # float, int or None
SERIAL = 64**3  # multiplications up to which OpenBLAS starts no threads
NEGLIGIBLE = 1e-9  # relative variance below which an entry counts as known exactly


class Draws(NamedTuple):
    """What the redraws gave; first axis R."""

    entries: Float64  # (R, P)
    normalisers: Float64  # (R, n)
    outputs: Float64  # (R, n, e)
    kl: Float64  # (R, n)
    call: Float64  # (R,): seconds


class Task:
    """What the redraws of a cell share: exact attention, a map, and the delta method for independent frequencies."""

    def __init__(self, problem: Problem, cell: Cell, independent: Independent) -> None:
        self.problem, self.independent = problem, independent
        tokens = problem.tokens
        data = np.concatenate([tokens.q, tokens.k])
        self.phi = make_map(problem.kernel, data, cell["m"], cell["estimator"], cell["projection"])

    def trial(self, rng: np.random.Generator) -> dict[str, Any]:
        """Estimate with one redraw of the map."""
        q, k, v = self.problem.tokens.q, self.problem.tokens.k, self.problem.tokens.v
        phi = self.phi.redraw(rng)
        started = perf_counter()
        out = linear_attention(q, k, v, phi)
        call = perf_counter() - started
        gram = _product(phi.query(q), phi.key(k))
        normaliser = gram.sum(axis=1)  # (n,)
        kl = attention_kl(gram / normaliser[:, None], self.problem.weights)
        return Draws(gram[self.problem.pairs], normaliser, out, kl, np.asarray(call))._asdict()

    def numbers(self, draws: Mapping[str, Any]) -> dict[str, Number]:
        """Return the numbers of a record from all redraws."""
        estimates = Draws(**draws)
        numbers = {**_entries(self.problem, self.phi, estimates), **_attention(self.problem, estimates)}
        return {
            **{name: None if value is None else np.asarray(value) for name, value in numbers.items()},
            **delta_fields(self.problem, self.phi, self.independent, estimates.outputs, estimates.normalisers),
            "attention_seconds": round(float(np.median(estimates.call)), 6),
        }


def _product(phi_q: Float64, phi_k: Float64) -> Float64:
    """Return phi(Q) phi(K)^T, (n, l), in tiles that BLAS leaves on one thread.

    Its threads gain little on products of this size, and on a busy machine they wait for each other.
    """
    n, m = phi_q.shape
    width = max(1, SERIAL // (n * m))
    gram = np.empty((n, len(phi_k)))
    for low in range(0, len(phi_k), width):
        gram[:, low : low + width] = phi_q @ phi_k[low : low + width].T
    return gram


def _entries(problem: Problem, phi: FeatureMap, estimates: Draws) -> dict[str, Number]:
    """Return bias mean_p E k' / mean_p k - 1, error mean_p (k' - k)^2 / mean_p k^2, variance of the kernel entries p.

    The bias is over the entries whose mean the redraws settle, for elsewhere they miss the tail that carries it. The
    error is over all entries, and has an interval where the redraws see the squares of all.
    """
    exact = problem.entries
    square = np.mean(exact**2)
    rows, columns = problem.pairs
    q, k = problem.tokens.q[rows], problem.tokens.k[columns]
    sure, seen = find_settled(phi, q, k, len(estimates.entries)), _which_settle(phi, q, k, len(estimates.entries))
    mse = mean_and_ci(np.mean((estimates.entries - exact) ** 2, axis=1))
    result: dict[str, Number] = {
        **with_ends("bias", (None,) * 3),
        "bias_pairs": int(sure.sum()),
        "kernel_mse": mse.value,
        **with_ends(
            "kernel_relative_mse", (mse.value / square, *(e / square if seen.all() else None for e in mse[1:]))
        ),
    }
    if sure.any():
        result |= with_ends("bias", mean_and_ci(np.mean(estimates.entries[:, sure], axis=1) / np.mean(exact[sure]) - 1))
    measured = empirical_variance(estimates.entries)
    try:
        expected, variance = phi.bias(q, k), phi.variance(q, k)
    except NoClosedForm:
        return result | {"variance": np.mean(measured) / _unit(exact)}
    return result | {
        "bias_predicted": np.mean(expected[sure]) / np.mean(exact[sure]) if sure.any() else None,
        "kernel_relative_mse_predicted": np.mean(variance + expected**2) / square,
        **_variance(problem, estimates, measured, variance, seen),
    }


def _which_settle(phi: FeatureMap, q: Float64, k: Float64, redraws: int) -> NDArray[np.bool_]:
    """Return of which pairs the redraws see the squares: of bounded features all, else where rows twice as long settle.

    The square of an exponential term is the term of rows twice as long.
    """
    if phi.spec is not None and KINDS[phi.spec.kind].bounded:
        return np.ones(len(q), bool)
    return find_settled(phi, 2 * q, 2 * k, redraws)


def _variance(
    problem: Problem, estimates: Draws, measured: Float64, predicted: Float64, seen: NDArray[np.bool_]
) -> dict[str, Number]:
    """Return variances over redraws, measured and predicted, in units of the squared error of the best constant.

    A sample variance is held against theory where the redraws see the squares (`_which_settle`). Entries of no variance
    (x = y for cosines) have no ratio. The fields named "seen" are over the entries that settle; their unit too.
    """
    exact = problem.entries
    seen = seen & np.isfinite(predicted) & (predicted > NEGLIGIBLE * exact**2)
    result: dict[str, Number] = {
        "variance": np.mean(measured) / _unit(exact),
        "variance_predicted": np.mean(predicted) / _unit(exact),
        "variance_pairs": int(seen.sum()),
    }
    if seen.any():
        result |= {
            "variance_seen": np.mean(measured[seen]) / _unit(exact[seen]),
            "variance_seen_predicted": np.mean(predicted[seen]) / _unit(exact[seen]),
            **with_ends("variance_ratio", variance_ratio(estimates.entries[:, seen], predicted[seen])),
        }
    return result


def _unit(exact: Float64) -> float:
    """Return the squared error of the best constant kernel; NaN where that is exact, for it measures nothing then."""
    return float(without_rounding(np.var(exact), exact)) or np.nan


def _attention(problem: Problem, estimates: Draws) -> dict[str, Number]:
    """Return the squared error of the outputs; the median over redraws leads.

    A ratio whose normaliser comes near 0 has no mean squared error.
    """
    errors = without_rounding(attention_mse(estimates.outputs, problem.exact), problem.tokens.v)  # (R,)
    finite = np.isfinite(estimates.kl)
    return {
        **with_ends("attention_mse", median_and_ci(errors)),
        **with_ends("attention_mse_mean", mean_interval(errors)),
        "row_kl": estimates.kl[finite].mean() if finite.any() else None,
        "row_kl_rows": finite.mean(),
        "nonpositive_normalisers": np.mean(estimates.normalisers <= 0),
    }
