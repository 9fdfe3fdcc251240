"""Float64 NumPy oracles. Nothing of the library is imported here, and nothing here is fast.

Features are kept as (sign, log|phi|, log size), so that a dense attention matrix is right at any norm. `size` is the
magnitude against which the rounding of a feature is measured (1 for a cosine near its zero); from it comes the
condition number of every row.
"""

from typing import NamedTuple

import numpy as np


class Features(NamedTuple):
    sign: np.ndarray  # (..., n, M)
    log: np.ndarray  # (..., n, M), -inf where phi = 0
    size: np.ndarray  # (..., n, M), log of the rounding scale, at least log

    @property
    def values(self):
        return self.sign * np.exp(self.log)


def _log(x):
    with np.errstate(divide="ignore"):
        return np.log(x)


def explicit(phi, size=None):
    """Any features given as numbers."""
    size = np.abs(phi) if size is None else size
    return Features(np.sign(phi), _log(np.abs(phi)), _log(size))


# ---- maps ----


def elu1(x):
    log = np.where(x > 0, np.log1p(np.maximum(x, 0)), x)
    return Features(np.ones_like(x), log, log)


def relu(x, size=None):
    return explicit(np.maximum(x, 0), size)


def exponential(log):
    return Features(np.ones_like(log), log, log)


def bounded(values, log_scale):
    """values in [-1, 1] times exp(log_scale)."""
    return Features(np.sign(values), _log(np.abs(values)) + log_scale, np.broadcast_to(log_scale, values.shape))


def quadratic(x, c, *, softmax):
    """The row factor that turns features of exp(x'.y') into those of the kernel, x' = c x: 0 or -|x'|^2/2."""
    return np.zeros((*x.shape[:-1], 1)) if softmax else -np.sum((c * x) ** 2, axis=-1, keepdims=True) / 2


def trigonometric(x, omega, c, *, softmax):
    u = (c * x) @ omega.T
    log = (
        quadratic(x, c, softmax=softmax) + np.sum((c * x) ** 2, axis=-1, keepdims=True) / 2 - np.log(omega.shape[0]) / 2
    )
    return bounded(np.concatenate([np.cos(u), np.sin(u)], axis=-1), log)


def phase(x, omega, c, offset, *, softmax):
    u = (c * x) @ omega.T + offset
    log = (
        quadratic(x, c, softmax=softmax)
        + np.sum((c * x) ** 2, axis=-1, keepdims=True) / 2
        + np.log(2 / omega.shape[0]) / 2
    )
    return bounded(np.cos(u), log)


def positive(x, omega, c, *, softmax):
    row = quadratic(x, c, softmax=softmax) - np.sum((c * x) ** 2, axis=-1, keepdims=True) / 2
    return exponential((c * x) @ omega.T + row - np.log(omega.shape[0]) / 2)


def hyperbolic(x, omega, c, *, softmax):
    u = (c * x) @ omega.T
    row = quadratic(x, c, softmax=softmax) - np.sum((c * x) ** 2, axis=-1, keepdims=True) / 2
    return exponential(np.concatenate([u, -u], axis=-1) + row - np.log(2 * omega.shape[0]) / 2)


def optimal_positive(x, omega, c, a, *, softmax):
    m, d = omega.shape
    row = quadratic(x, c, softmax=softmax) - np.sum((c * x) ** 2, axis=-1, keepdims=True) / 2
    u = np.sqrt(1 - 4 * a) * ((c * x) @ omega.T)
    return exponential(d / 4 * np.log(1 - 4 * a) + a * np.sum(omega**2, axis=-1) + u + row - np.log(m) / 2)


def optimal_parameter(mean_square_sum, d):
    """A* of OPRF by search: least (1-4A)^d (1-8A)^(-d/2) exp(2(1-4A) s/(1-8A)), s = mean |x+y|^2."""
    a = -np.geomspace(1e-7, 50, 200_001)
    objective = d * np.log(1 - 4 * a) - d / 2 * np.log(1 - 8 * a) + 2 * (1 - 4 * a) * mean_square_sum / (1 - 8 * a)
    return a[np.argmin(objective)]


def row_form(x, factor, centre, linear):
    """The logarithm l.x - |F (x - c)|^2 / 2 that all features of a row share."""
    return (x @ linear - np.sum(((x - centre) @ factor.T) ** 2, axis=-1) / 2)[..., None]


def from_spec(x, kind, omega, row_weights, offset, amplitude, form=None, normalised=False):
    """The formulas of MapSpec, in the log domain; `form` are F, c and l of its row_form."""
    d = x.shape[-1]
    u = x if omega is None else x @ omega.T
    reach = np.abs(x) if omega is None else np.abs(x) @ np.abs(omega).T
    r = np.sum((np.zeros(d) if row_weights is None else row_weights) * x**2, axis=-1, keepdims=True)
    if form is not None:
        r = r + row_form(x, *form)
    b = 0.0 if offset is None else offset
    scale = np.log(amplitude)
    if normalised:
        r = -np.logaddexp.reduce((u if kind == "exp" else np.concatenate([u, -u], axis=-1)) + b, axis=-1)[..., None]
    if kind == "elu1":
        return Features(np.ones_like(u), elu1(u).log + scale, elu1(u).log + scale)
    if kind == "relu":
        return relu(amplitude * u, None if omega is None else amplitude * reach)
    if kind == "exp":
        return exponential(u + b + r + scale)
    if kind == "exp_pair":
        return exponential(np.concatenate([u, -u], axis=-1) + b + r + scale)
    if kind == "cos":
        return bounded(np.cos(u + b), r + scale)
    if kind == "sincos":
        return bounded(np.concatenate([np.cos(u), np.sin(u)], axis=-1), r + scale)
    raise ValueError(kind)


def reach(x, omega, row_weights, offset, form=None):
    """The largest sum of absolute values behind a log feature or a phase: its rounding is about eps times this."""
    u = np.abs(x) if omega is None else np.abs(x) @ np.abs(omega).T
    r = np.sum((np.zeros(x.shape[-1]) if row_weights is None else np.abs(row_weights)) * x**2, axis=-1, keepdims=True)
    if form is not None:
        factor, centre, linear = map(np.abs, form)
        squares = ((np.abs(x) + centre) @ factor.T) ** 2
        r = r + (np.sum(squares, axis=-1) + np.abs(x) @ linear)[..., None]
    return float(np.max(u, initial=0.0) + np.max(r, initial=0.0) + (0.0 if offset is None else np.max(np.abs(offset))))


# ---- frames ----


def frames(a):
    """(..., r, d) -> the rows of Q in A = L Q, L lower triangular with a positive diagonal."""
    q, r = np.linalg.qr(np.swapaxes(a, -1, -2))
    return np.swapaxes(q * np.sign(np.diagonal(r, axis1=-2, axis2=-1))[..., None, :], -1, -2)


# ---- kernels ----


def softmax_kernel(x, y, scale=None):
    scale = x.shape[-1] ** -0.5 if scale is None else scale
    return np.exp(scale * np.einsum("...nd,...kd->...nk", x, y))


def gaussian_kernel(x, y, lengthscale=1.0):
    difference = (x[..., :, None, :] - y[..., None, :, :]) / lengthscale
    return np.exp(-np.sum(difference**2, axis=-1) / 2)


# ---- attention ----


def segments(ids):
    """Consecutive equal ids are one segment: (..., n) -> the number of each position's segment."""
    change = np.concatenate([np.zeros((*ids.shape[:-1], 1), int), (ids[..., 1:] != ids[..., :-1]).astype(int)], axis=-1)
    return np.cumsum(change, axis=-1)


def allowed(n, length, *, causal=False, key_mask=None, segment_ids=None):
    """(..., n, length), True where row i may look at key j."""
    result = np.tri(n, length, dtype=bool) if causal else np.ones((n, length), bool)
    if key_mask is not None:
        result = result & key_mask[..., None, :]
    if segment_ids is not None:
        number = segments(segment_ids)
        result = result & (number[..., :, None] == number[..., None, :])
    return result


def softmax_attention(q, k, v, *, scale=None, may=None):
    """-> out (..., n, e), log normaliser (..., n); 0 and -inf for a row that sees no key."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    logits = scale * np.einsum("...nd,...kd->...nk", q, k)
    if may is not None:
        logits = np.where(may, logits, -np.inf)
    peak = np.max(logits, axis=-1, keepdims=True, initial=-np.inf)
    safe = np.where(np.isfinite(peak), peak, 0.0)
    weights = np.exp(logits - safe)
    total = weights.sum(axis=-1, keepdims=True)
    out = weights @ v / np.where(total == 0, 1.0, total)
    return out, (_log(total) + safe)[..., 0]


def weighted_by(logs, v, may):
    """Weights from their logarithms; 0 for a row without any."""
    logs = np.where(may, logs, -np.inf)
    peak = np.max(logs, axis=-1, keepdims=True)
    weights = np.exp(logs - np.where(np.isfinite(peak), peak, 0.0))
    total = weights.sum(axis=-1, keepdims=True)
    return weights @ v / np.where(total == 0, 1.0, total)


def linear_attention(fq, fk, v, may=None):
    """Dense: sum_j w_ij v_j / sum_j w_ij, w_ij = phi(q_i).phi(k_j); exactly 0 where no key weighs anything.

    -> out (..., n, e), condition (..., n): the sizes of everything added over |denominator|, 0 where nothing is added.
    Numerator and denominator have relative errors of about eps * condition.
    """

    def pairs(x, y):
        sums = x[..., :, None, :] + y[..., None, :, :]  # (..., n, l, M)
        return sums if may is None else np.where(may[..., None], sums, -np.inf)

    def exponentials(log):
        log -= peak
        return np.exp(log, out=log)

    log = pairs(fq.log, fk.log)
    peak = np.max(log, axis=(-1, -2), keepdims=True, initial=-np.inf)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    terms = exponentials(log)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        plain = fq.size is fq.log and fk.size is fk.log
        sizes = np.sum(terms if plain else exponentials(pairs(fq.size, fk.size)), axis=(-1, -2))
    terms *= fq.sign[..., :, None, :]
    terms *= fk.sign[..., None, :, :]
    weights = np.sum(terms, axis=-1)  # (..., n, l)
    total = weights.sum(axis=-1, keepdims=True)
    out = weights @ v / np.where(total == 0, 1.0, total)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        condition = np.where(sizes == 0, 0.0, sizes / np.abs(total[..., 0]))
    return np.where(total == 0, 0.0, out), condition


def recurrent(fq, fk, v, *, key_mask=None, segment_ids=None):
    """The same, token by token, for features of plain size: S += phi(k) v^T, z += phi(k), o = phi(q) S / phi(q) z."""
    phi_q, phi_k = fq.values, fk.values
    lead = np.broadcast_shapes(phi_q.shape[:-2], phi_k.shape[:-2], v.shape[:-2])
    s = np.zeros((*lead, phi_k.shape[-1], v.shape[-1]))
    z = np.zeros((*lead, phi_k.shape[-1]))
    number = None if segment_ids is None else segments(segment_ids)
    rows = []
    for t in range(v.shape[-2]):
        if number is not None and t > 0:
            same = (number[..., t] == number[..., t - 1]).astype(float)
            s, z = s * same[..., None, None], z * same[..., None]
        there = 1.0 if key_mask is None else key_mask[..., t].astype(float)[..., None]
        key = phi_k[..., t, :] * there
        s = s + key[..., :, None] * v[..., t, None, :]
        z = z + key
        num = np.einsum("...m,...me->...e", phi_q[..., t, :], s)
        den = np.einsum("...m,...m->...", phi_q[..., t, :], z)[..., None]
        rows.append(np.where(den == 0, 0.0, num / np.where(den == 0, 1.0, den)))
    return np.stack(rows, axis=-2)


def softmax_gradients(q, k, v, seen, scale, bias, g, h):
    """Cotangents of q, k, v, the scale and the bias of keys from g of the outputs and h of the log normalisers."""
    bias = np.broadcast_to(bias, k.shape[:-1])[..., None, :]
    raw = q @ np.swapaxes(k, -1, -2)
    scores = np.where(seen, scale * raw + bias, -np.inf)
    peak = np.max(scores, axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(axis=-1, keepdims=True)
    weights /= np.where(total > 0, total, 1)
    of_weights = g @ np.swapaxes(v, -1, -2) + np.asarray(h)[..., None]
    slopes = weights * (of_weights - (weights * (of_weights - np.asarray(h)[..., None])).sum(axis=-1, keepdims=True))
    turned = np.swapaxes(slopes, -1, -2)
    of_values = np.swapaxes(weights, -1, -2) @ g
    return scale * slopes @ k, scale * turned @ q, of_values, (slopes * raw).sum(), slopes.sum(axis=-2)
