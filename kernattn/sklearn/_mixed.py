"""A line and a kernel in one logistic fit: the sum of two, by how much rows left out prefer the kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.features import Concatenated, FeatureMap, Transformed
from kernattn.solvers import Logistic
from kernattn.solvers._losses.logistic_penalty import Choice
from kernattn.solvers._losses.softmax import judge

SHARES = np.linspace(0.0, 1.0, 21)


def split_map(phi: FeatureMap) -> tuple[FeatureMap, FeatureMap]:
    """Return the maps of a kernel and of the line beside it, in the same metric."""
    if isinstance(phi, Transformed):
        kernel, line = split_map(phi.inner)
        return Transformed(kernel, phi.matrix), Transformed(line, phi.matrix)
    assert isinstance(phi, Concatenated)
    kernel, line = phi.maps
    return kernel, line


def share_of_kernel(kernel: Choice, line: Choice) -> float:
    r"""Return the share s of the kernel in the scores, :math:`s f_k + (1 - s) f_l`, that rows left out prefer.

    It makes their log loss, summed over the n rows that differ, plus :math:`s^2 \log n`, least. Where folds tell
    nothing, the kernel has all.
    """
    if kernel.held is None or line.held is None:
        return 1.0
    scores, codes, weights = kernel.held
    other = line.held.features
    losses = [weights @ judge(other + share * (scores - other), codes)[0] for share in SHARES]
    cost = np.array(losses) / weights.sum() * kernel.rows + np.log(kernel.rows) * SHARES**2
    return float(SHARES[np.argmin(cost)])


def mix(phi: FeatureMap, kernel: Logistic, line: Logistic, share: float) -> Logistic:
    """Return the fit whose scores are those of two, of features (M,): the line's are the last, and may be in both."""
    of_line = (1 - share) * line._weights
    weights: Float64 = share * kernel._weights
    if kernel.phi is phi:
        weights[-len(of_line) :] += of_line
    else:
        weights = np.concatenate([weights, of_line])
    return replace(
        kernel,
        phi=phi,
        iterations=max(kernel.iterations, line.iterations),
        converged=kernel.converged and line.converged,
        _weights=weights,
        _intercept=share * kernel._intercept + (1 - share) * line._intercept,
    )
