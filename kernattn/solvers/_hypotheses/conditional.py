"""A test on features: are two variables independent, given others?"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import array_api_compat as compat
import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import (
    FLOATS,
    INTEGERS,
    Array,
    Float64,
    constant,
    dtype_name,
    hint_at_columns,
    namespace,
    to_numpy64,
    without_flags,
)
from kernattn._arrays.shapes import strips
from kernattn._runtime.checks import positive_integer
from kernattn._runtime.lazy_scipy import special
from kernattn._runtime.random import RNG, generator
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError
from kernattn.solvers._hypotheses.on_moments import ROUNDING, SampleTest
from kernattn.solvers._hypotheses.smoothers import (
    BLOCK,
    LOOKED_AT,
    AdditiveSmoother,
    JointSmoother,
    Smoother,
    gaussian,
    inverse_root,
    smooth,
    transpose,
)
from kernattn.solvers._hypotheses.tail import upper_tail

FEWEST_ROWS = 20
SCALES = 1.0, 3.0  # of the kernels of z, by half the root mean square distance of two rows
SCALE_OF_ONE_COLUMN = 0.5  # another, where z is one column
ADDITIVE_SCALE = 0.7  # of the kernels of one column each
ADDITIVE_LANDMARKS = 12  # of each
JUMP_SCALE = 2.0  # of the kernels of one column each for functions with jumps
FAR = 3.0  # deviations of a column of z beyond which it goes on as a logarithm
TURNS = 2  # times that the kernel of a variable's own takes the directions in which the last fit changes
RESIDUAL_COMPONENTS, RESIDUAL_SCALE = 4, 2.5  # of the features of either variable's residual, and of their kernel
WEIGHT_COMPONENTS, WEIGHT_SCALE = 4, 2.0  # of the features of z by which products are weighted
COMPONENT_LANDMARKS = 64  # of these two kernels
NEIGHBOURS, RARE = 8, 3.0  # rows of like z, with which products are larger by so much where rare values did not meet
LEAST_NOISE = 0.5  # over n: the mean square of a residual below which it is hardly more than the error of scores
LEAST_SHARE = 0.05  # of the variance of the null that is the law's
REAL = (*FLOATS, *INTEGERS, "bool")  # dtypes of rows
ENERGY = 1e-300  # in place of 0, which is divided by


@without_flags
def conditional_hsic(x: Array, y: Array, z: Array, *, num_features: int = 100, rng: RNG = None) -> SampleTest:
    r"""Test whether X and Y are independent given Z, by :math:`|E\,w(Z) \otimes r_X \otimes r_Y|^2`.

    Here :math:`r_X = \phi(e_X) - E[\phi(e_X) | Z]` are features of a residual :math:`e_X = X - E[X | Z]`, less what Z
    tells of them, and w(Z) are 1 and features of Z. The statistic is the estimate, less its mean where X and Y are
    independent given Z (Zhang et al. 2011; Shah & Peters 2020). Products of residuals then have the mean 0, up to the
    product of the errors of both regressions, and the square of their sum is a sum of squares weighted by the
    eigenvalues of their covariance: the p-value is the tail of that, with the variance as in `mmd`.

    The test keeps its size if the regressions are good. Columns of X and Y are first replaced by their normal scores.
    Those of Z are taken as they are, but for values beyond three deviations, or by their scores, whichever has the
    larger evidence. Features of the residual, rather than of X, depend little on Z, and a second regression removes
    what remains. Each regression chooses its kernel and its penalty by the largest evidence. The candidates are two
    lengthscales, sums over the columns of Z for smooth functions and for jumps, and kernels of the directions of the
    mean gradient and Hessian (Li 1992), and of those in which the last fit changes (Radhakrishnan et al. 2024). Fitted
    parameters make residuals smaller, and the covariance is scaled up accordingly.

    Rows must be independent draws: copies of rows, and rows that follow each other in time, make the test reject far
    too often. Oscillations and jumps of E[X | Z] and E[Y | Z] that n rows do not resolve count as dependence, the more
    so where X and Y have hardly any noise beside Z. Residuals with less than 1 / 2n of a variable's variance are within
    the error of scores, and count as none: where the fit tells all of X, or of Y, the p-value is 1. Where rare values
    of X and of Y never meet in a row, the covariance is that of products with rows of like Z.

    Parameters
    ----------
    x, y, z : (..., n, d) or (n,) array
        Rows of the three variables, each with columns of its own, 20 rows at least. Leading axes are tests of their
        own, and alike in all three: 40 tests of one column are (40, n, 1), for (40, n) is 40 rows of n columns.
    num_features : int
        Number of landmarks of the regressions, half the rows at most.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Which rows are landmarks.

    Returns
    -------
    SampleTest
        Floats, or arrays (...) where there are leading axes.

    Raises
    ------
    DTypeError, ShapeError, EmptyInputError, MixedLibraryError
        If the rows do not fit, or there are fewer than 20.
    ParameterError
        If num_features is not positive, or a column is not finite or has one value alone.

    Notes
    -----
    It takes O(n M^2) time and holds O(n) numbers, in float64: on the device of tensors and of CuPy's arrays, else on
    the host.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> z = np.random.default_rng(0).standard_normal((300, 2))
    >>> noise = np.random.default_rng(1).standard_normal((2, 300))
    >>> x, y = np.tanh(z[:, 0]) + noise[0], np.cos(z[:, 0]) + noise[1]
    >>> bool(ka.solvers.conditional_hsic(x, y, z, rng=0).p_value > 0.05)
    True
    >>> bool(ka.solvers.conditional_hsic(x, y + 0.5 * noise[0], z, rng=0).p_value < 1e-4)
    True
    """
    positive_integer("num_features", num_features)
    random = generator(rng)
    namespace(x=x, y=y, z=z)
    for name, rows in (("x", x), ("y", y), ("z", z)):
        if dtype_name(rows) not in REAL:
            raise DTypeError(f"{name} must hold real numbers; got {dtype_name(rows)}{hint_at_columns(rows)}")
        if not rows.ndim:
            raise ShapeError(f"{name} must be rows, (..., n, d) or (n,); got a number")
    a, b, c = _check_rows(x=x, y=y, z=z)
    lead = x.shape[:-2]
    a, b, scored, limited = (_like(x, rows) for rows in (_scores(a), _scores(b), _scores(c), _limited(c)))
    n, dim = scored.shape[1:]
    count = min(num_features, n // 2)
    chosen = np.sort(random.choice(n, count, replace=False))
    joint = _choose(a, b, limited, scored, chosen)
    c, marks = joint[0].z, joint[0].marks
    others = [AdditiveSmoother(c, max(count // dim, 2), JUMP_SCALE, jumps=True)]
    others += [AdditiveSmoother(c, ADDITIVE_LANDMARKS, ADDITIVE_SCALE)] if dim > 1 else []
    parts = [_residuals(rows, joint, others, marks, random) for rows in (a, b)]
    weights = _principal(c, WEIGHT_COMPONENTS, WEIGHT_SCALE, random)
    squares, spectra = _sum_products(parts, weights)
    spectra = _meet_neighbours(parts, weights, spectra)
    values = [_judge(*pair, n) for pair in zip(squares, spectra, strict=True)]
    if not lead:
        return values[0]
    statistics, p_values = np.reshape(np.asarray(values), (*lead, 2)).transpose(-1, *range(len(lead)))
    return SampleTest(statistics, p_values)


def _check_rows(**arrays: Array) -> list[Float64]:
    """Return rows (b, n, d) on the host, which fit each other and vary."""
    roots = []
    shapes, alike = [tuple(v.shape) for v in arrays.values()], arrays["z"].shape[: max(1, arrays["z"].ndim - 1)]
    for name, array in arrays.items():
        rows = to_numpy64(array)
        rows = rows[:, None] if rows.ndim == 1 else rows
        if rows.shape[:-1] != tuple(alike):
            raise ShapeError(f"x, y and z must have the same rows, (..., n, d) or (n,); got shapes {shapes}")
        if rows.shape[-2] < FEWEST_ROWS or not rows.size:
            raise EmptyInputError(
                f"{name} must hold {FEWEST_ROWS} rows at least, of a column or more; got {array.shape}"
            )
        if not np.isfinite(rows).all():
            raise ParameterError(f"{name} must be finite; it holds NaN or infinity")
        if np.any(np.max(rows, axis=-2) == np.min(rows, axis=-2)):
            raise ParameterError(f"{name} must not be the same in all rows of a column")
        roots.append(rows.reshape(-1, *rows.shape[-2:]))
    return roots


def _scores(rows: Float64) -> Float64:
    """Return normal scores of each column (b, n, d) with variance 1; equal values share one."""
    n, scores = rows.shape[1], np.empty_like(rows)
    for index in np.ndindex(rows.shape[0], rows.shape[2]):
        _, inverse, counts = np.unique(rows[index[0], :, index[1]], return_inverse=True, return_counts=True)
        scores[index[0], :, index[1]] = special.ndtri((np.cumsum(counts) - counts / 2) / n)[inverse]
    return _standard(scores)


def _limited(rows: Float64) -> Float64:
    """Return columns (b, n, d) with variance 1, in which far values are nearer: beyond `FAR` deviations by logarithms.

    A deviation is that of a normal with the column's quantiles. Columns most of whose values are equal have scores.
    """
    rows = rows / np.max(np.abs(rows), axis=1, keepdims=True)
    low, middle, high = np.quantile(rows, special.ndtr([-1.0, 0.0, 1.0]), axis=1, keepdims=True)
    wide = (high - low) / 2
    from_middle = (rows - middle) / np.where(wide > 0, wide, 1.0)
    size = np.abs(from_middle)
    near = np.sign(from_middle) * (np.minimum(size, FAR) + np.log1p(np.maximum(size - FAR, 0.0)))
    return _standard(near if np.all(wide > 0) else np.where(wide > 0, near, _scores(rows)))


def _standard(rows: Float64) -> Float64:
    """Return columns (b, n, d) with mean 0 and variance 1."""
    rows = rows - np.mean(rows, axis=1, keepdims=True)
    standard: Float64 = rows / np.std(rows, axis=1, keepdims=True)
    return standard


def _like(beside: Array, rows: Float64) -> Array:
    """Return rows on the device of tensors and of CuPy's arrays, else on the host."""
    if compat.is_torch_array(beside) or compat.is_cupy_array(beside):
        xp = namespace(beside=beside)
        return constant(xp, rows, xp.float64, beside)
    return rows


def _choose(a: Array, b: Array, limited: Array, scored: Array, chosen: NDArray[np.int64]) -> list[JointSmoother]:
    """Return smoothers of each test's z as it is or of its scores, whichever has the larger evidence.

    Scores of a sample are off by about n^(-1/2), which is felt where there is hardly any noise. Columns as they are
    can be bunched.
    """
    xp, (n, dim) = namespace(limited=limited), limited.shape[1:]
    targets, step = xp.concat([a, b], axis=2), -(-n // LOOKED_AT)
    targets = targets[:, ::step, :] - xp.mean(targets[:, ::step, :], axis=1, keepdims=True)
    scales = [sqrt(dim / 2) * scale for scale in (SCALES if dim > 1 else (SCALE_OF_ONE_COLUMN, *SCALES))]
    found, costs = [], []
    for z in (limited, scored):
        found.append([JointSmoother(z[:, ::step, :], _take(z, chosen), scale) for scale in scales])
        along = [each.coordinates(targets) for each in found[-1]]
        costs.append(xp.sum(smooth(found[-1], along, targets).costs, axis=1))
    mine = costs[0] <= costs[1]
    if step == 1:
        return [one.where(mine, other) for one, other in zip(*found, strict=True)]
    z = xp.where(mine[:, None, None], limited, scored)
    return [JointSmoother(z, _take(z, chosen), scale) for scale in scales]


def _residuals(
    rows: Array, joint: Sequence[JointSmoother], others: Sequence[Smoother], marks: Array, random: np.random.Generator
) -> tuple[Array, Array]:
    """Return features of a variable's residual less what z tells of them (b, n, f), and the parameters taken (b, f)."""
    xp, z = namespace(rows=rows), joint[0].z
    turned = list(joint)
    if z.shape[2] > 1:
        turned.append(JointSmoother(z, marks, sqrt(z.shape[2] / 2), _root(_curvature(z, rows))))
    along = [each.coordinates(rows) for each in turned]
    for _ in range(TURNS if z.shape[2] > 1 else 0):
        fit = smooth(turned, along, rows)
        parts = zip(turned, fit.coefficients, strict=True)
        slopes = sum((each.slopes(c) for each, c in parts if bool(xp.any(c != 0))), xp.zeros_like(z[:, :1, :]))
        turned.append(JointSmoother(z, marks, sqrt(z.shape[2] / 2), _root(slopes)))
        along.append(turned[-1].coordinates(rows))
    smoothers = [*turned, *others]
    along += [each.coordinates(rows) for each in others]
    residual = smooth(smoothers, along, rows).residuals
    energy = xp.mean(residual**2, axis=1, keepdims=True)
    left = xp.astype(energy > LEAST_NOISE / rows.shape[1], rows.dtype)  # (b, 1, d)
    features = _principal(left * residual / xp.sqrt(energy + ENERGY), RESIDUAL_COMPONENTS, RESIDUAL_SCALE, random)
    fit = smooth(smoothers, [each.coordinates(features) for each in smoothers], features)
    return fit.residuals * xp.max(left, axis=2, keepdims=True), fit.parameters


def _curvature(z: Array, rows: Array) -> Array:
    """Return the sum (b, d, d) of outer products of mean gradients, and of squares of mean Hessians, of E[y | z].

    They are E[y z] and E[y z z^T] if z is normal and y has the mean 0, by Stein's identities.
    """
    total, n = 0.0, z.shape[1]
    for c in range(rows.shape[2]):
        y = rows[:, :, c : c + 1]
        slope, bend = transpose(z) @ y / n, transpose(z * y) @ z / n
        total = total + slope @ transpose(slope) + bend @ bend
    return total


def _root(slopes: Array) -> Array:
    """Return the root R (b, d, d) of sums of outer products, scaled to the trace d; of 0 it is 0."""
    xp, dim = namespace(slopes=slopes), slopes.shape[2]
    values, vectors = xp.linalg.eigh(slopes)
    values = xp.clip(values, min=0.0)
    shares = dim * values / (xp.sum(values, axis=1, keepdims=True) + ENERGY)
    return (vectors * shares[:, None, :] ** 0.5) @ transpose(vectors)


def _principal(rows: Array, count: int, scale: float, random: np.random.Generator) -> Array:
    """Return principal components (b, n, count) of a Gaussian kernel's features, whose variances add to 1."""
    xp, n = namespace(rows=rows), rows.shape[1]
    chosen = np.sort(random.choice(n, min(COMPONENT_LANDMARKS, n), replace=False))
    marks, scale = _take(rows, chosen), scale * sqrt(rows.shape[2] / 2)
    features = gaussian(rows, marks, scale) @ inverse_root(gaussian(marks, marks, scale))
    features = features - xp.mean(features, axis=1, keepdims=True)
    values, vectors = xp.linalg.eigh(transpose(features) @ features / n)
    unit = xp.sqrt(xp.sum(xp.clip(values[:, -count:], min=0.0), axis=1) + ENERGY)
    return features @ vectors[:, :, -count:] / unit[:, None, None]


def _take(rows: Array, chosen: NDArray[np.int64]) -> Array:
    """Return some of the rows, the same of each test."""
    return namespace(rows=rows).stack([rows[:, int(i), :] for i in chosen], axis=1)


def _sum_products(parts: list[tuple[Array, Array]], weights: Array) -> tuple[Float64, Float64]:
    """Return the squared sums (b,) of products of residuals, over n, and the eigenvalues of their covariance (b, D)."""
    (r, taken), (s, also) = parts
    xp = namespace(r=r)
    batch, n = r.shape[:2]
    weights = xp.concat([xp.ones_like(weights[:, :, :1]), weights], axis=2)
    width = r.shape[2] * s.shape[2] * weights.shape[2]
    total, gram = 0.0, 0.0
    for here in strips(n, BLOCK // (batch * width)):
        pairs = r[:, here, :, None] * s[:, here, None, :]
        products = pairs[..., None] * weights[:, here, None, None, :]
        products = xp.reshape(products, (batch, products.shape[1], width))
        total, gram = total + xp.sum(products, axis=1), gram + transpose(products) @ products
    left = ((1 - taken / n)[:, :, None] * (1 - also / n)[:, None, :]) ** -0.25
    scale = xp.reshape(left[..., None] * xp.ones_like(weights[:, :1, None, :]), (batch, width))
    gram = gram / n * scale[:, :, None] * scale[:, None, :]
    spectra: Float64 = np.linalg.eigvalsh(to_numpy64(gram)).astype(np.float64, copy=False)
    return to_numpy64(xp.sum(total**2, axis=1)) / n, spectra


def _meet_neighbours(parts: list[tuple[Array, Array]], weights: Array, spectra: Float64) -> Float64:
    """Return the eigenvalues (b, D), of products with residuals of rows of like z where these are much larger.

    The largest products of rare values are those of rows where both occur. If there is no such row, the covariance of
    the products that are there is too small; where X and Y know nothing of each other, a neighbour's Y is as good.
    """
    (r, taken), (s, also) = parts
    order = np.argsort(to_numpy64(weights[:, :, -1]), axis=1)
    of_r, of_s, of_w = (
        np.take_along_axis(np.sum(to_numpy64(rows) ** 2, axis=2), order, axis=1) for rows in (r, s, weights)
    )
    left = of_r * (1 + of_w)
    steps = range(1, NEIGHBOURS + 1)
    elsewhere = sum(np.mean(left * np.roll(of_s, step, axis=1), axis=1) for step in steps) / NEIGHBOURS
    for i in np.flatnonzero(elsewhere > RARE * np.mean(left * of_s, axis=1)):
        mine = slice(i, i + 1)
        x, y, z = (to_numpy64(rows[mine, ...])[:, order[i]] for rows in (r, s, weights))
        taken_of, also_of = to_numpy64(taken[mine, ...]), to_numpy64(also[mine, ...])
        near = [_sum_products([(x, taken_of), (np.roll(y, step, axis=1), also_of)], z)[1][0] for step in steps]
        spectra[i] = np.mean(near, axis=0)
    return spectra


def _judge(square: float, spectrum: Float64, n: int) -> SampleTest:
    """Return the estimate and the tail of the sum of squares that the eigenvalues weight."""
    weights = spectrum[spectrum > ROUNDING * spectrum[-1]]
    if not len(weights):  # z tells all of x, or of y
        return SampleTest(0.0, 1.0)
    mean = float(np.sum(weights))
    share = max(1 - mean**2 / (n * float(np.sum(weights**2))), LEAST_SHARE)
    return SampleTest((float(square) - mean) / n, upper_tail(mean + (float(square) - mean) / sqrt(share), weights))
