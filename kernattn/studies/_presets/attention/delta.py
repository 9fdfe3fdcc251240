"""Attention is a ratio N/Z: its error by the delta method, with moments that are not those of the redraws compared."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.features import FeatureMap, RandomFeatureMap, random_features
from kernattn.metrics import DeltaMethod, attention_delta_method, attention_mse, empirical_variance, ratio_delta_method
from kernattn.projections import Iid
from kernattn.studies._presets.attention.own import is_own
from kernattn.studies._presets.attention.problem import Problem

QUERIES = 16  # that the delta method is asked of


class Independent(NamedTuple):
    """The closed form of independent frequencies for one number of them; every moment is as one over a power of it."""

    frequencies: int
    rows: NDArray[np.intp]  # the queries asked
    found: DeltaMethod | None  # None where there is no closed form

    @classmethod
    def of(cls, problem: Problem, estimator: str) -> Independent:
        """Return it for some of the queries, at equal steps; nothing is trusted where moments are beyond float64."""
        q, k, v = problem.tokens.q, problem.tokens.k, problem.tokens.v
        count = min(QUERIES, len(q))
        rows = np.arange(count) * len(q) // count
        if is_own(estimator):
            return cls(1, rows, None)
        data = np.concatenate([q, k])
        phi = random_features(problem.kernel, q.shape[1], 2, estimator, "iid", data=data, rng=0)
        try:
            return cls(_frequencies(phi), rows, attention_delta_method(q[rows], k, v, phi))
        except NoClosedForm:
            return cls(_frequencies(phi), rows, None)
        except ParameterError:
            outputs, sums = np.full((count, v.shape[1]), np.inf), np.full(count, np.inf)
            return cls(_frequencies(phi), rows, DeltaMethod(outputs, outputs, sums, sums))

    def at(self, frequencies: int) -> DeltaMethod | None:
        """Return the closed form for another number of frequencies."""
        if self.found is None:
            return None
        share = self.frequencies / frequencies
        return DeltaMethod(
            self.found.bias * share,
            self.found.variance * share,
            self.found.relative_sd * share**0.5,
            self.found.tail * share,
        )


def _frequencies(phi: FeatureMap) -> int:
    return int(phi.omega.shape[0]) if isinstance(phi, RandomFeatureMap) else 1


def delta_fields(
    problem: Problem, phi: FeatureMap, independent: Independent, outputs: Float64, normalisers: Float64
) -> dict[str, Any]:
    """Return the bias and the error of attention outputs (R, n, e), measured and predicted, over the trusted rows.

    The closed form is held against all redraws. Where it is not known, or takes minutes (orthogonal frequencies), the
    first half of the redraws give the moments, N = (N/Z) Z, and the second half is what they are held against. Redraws
    do not see the tail of exponential features: the third moment of Z is then that of independent frequencies, as in
    the closed form for orthogonal ones.
    """
    outputs, normalisers = outputs[:, independent.rows], normalisers[:, independent.rows]
    exact, closed = problem.exact[independent.rows], independent.at(_frequencies(phi))
    by_redraws = closed is None or getattr(phi, "projection", None) != Iid()
    if by_redraws:
        half = len(outputs) // 2
        delta = ratio_delta_method(outputs[:half] * normalisers[:half, :, None], normalisers[:half])
        if closed is not None:
            delta = delta._replace(tail=closed.tail * (closed.relative_sd / delta.relative_sd) ** 2)
        outputs = outputs[half:]
    else:
        assert closed is not None
        delta = closed
    trusted = delta.trusted
    result = {
        "delta_moments": "redraws" if by_redraws else "closed form",
        "delta_queries": len(independent.rows),
        "delta_rows": float(trusted.mean()),
    }
    if trusted.any():
        kept, target, bias = outputs[:, trusted], exact[trusted], delta.bias[trusted]
        noise = empirical_variance(kept) / len(kept)
        result |= {
            "delta_mse": float(np.mean(delta.variance[trusted] + bias**2)),
            "delta_mse_measured": float(np.mean(attention_mse(kept, target))),
            "delta_bias2": float(np.mean(bias**2)),
            "delta_bias2_measured": float(np.mean((kept.mean(axis=0) - target) ** 2 - noise)),
        }
    return result
