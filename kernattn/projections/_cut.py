r"""Rows of norm :math:`\sqrt p` and uniform direction in p dimensions, cut to their first d entries."""

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special
from kernattn.projections._norms import NORM_LAWS

LOGITS = np.arange(-120.0, 120.5, 0.5)
FINE, NEGLIGIBLE = 400, 45.0  # nodes, and how far below the peak the logarithm of the integrand ends


def cut_log_moment(p: int, d: int, t2: Float64, tilt: float) -> Float64:
    r"""Return :math:`\log E[e^{a |\omega|^2}\, e^{\omega^T s}]` at :math:`t^2 = |s|^2`, a the tilt.

    The cut row is isotropic, its squared norm p times a share B of law Beta(d/2, (p - d)/2), so this is the mean over
    B of :math:`e^{a p B}\, {}_0F_1(; d/2; t^2 p B / 4)`, by trapezoids in the logit of B.
    """

    def log_integrand(u: Float64, t2: Float64) -> Float64:
        squares = p * np.exp(special.log_expit(u))  # of norms
        density = d / 2 * special.log_expit(u) + (p - d) / 2 * special.log_expit(-u)
        return np.asarray(density + tilt * squares + NORM_LAWS["sqrt_d"].log_moment(d, t2 * squares / d))

    flat = t2.reshape(-1, 1)
    coarse = log_integrand(LOGITS, flat)  # (P, nodes)
    large = coarse > np.max(coarse, axis=-1, keepdims=True) - NEGLIGIBLE
    first, last = np.argmax(large, axis=-1), len(LOGITS) - 1 - np.argmax(large[:, ::-1], axis=-1)
    low, high = LOGITS[np.maximum(first - 1, 0)], LOGITS[np.minimum(last + 1, len(LOGITS) - 1)]
    u = np.linspace(low, high, FINE, axis=-1)
    total = special.logsumexp(log_integrand(u, flat), axis=-1) + np.log((high - low) / (FINE - 1))
    return np.asarray(total - special.betaln(d / 2, (p - d) / 2)).reshape(t2.shape)
