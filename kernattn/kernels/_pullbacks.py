r"""How cotangents of a kernel matrix flow back to its rows.

A function f of the squared distance of scaled rows has :math:`dx_i = 2 \sum_j W_{ij} (x_i - y_j)` with
:math:`W = g f'`, two products of matrices; one of products of the axes has a sum over rows for each axis. Inputs are
divided by the lengthscale, so that its cotangent follows: :math:`dl_a = -\sum_i x_{ia} dx_{ia} / l_a`, of x and of y.
Those of a sum or a product are a tuple, of each member's; None stands for a kernel without lengthscales.
"""

from collections.abc import Callable
from functools import reduce
from math import gamma, sqrt
from operator import mul
from types import ModuleType
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, constant, namespace, sign, to_numpy64
from kernattn._runtime.checks import shown
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError
from kernattn.kernels._base import Kernel, Product, Scaled, Sum
from kernattn.kernels._cauchy import Cauchy
from kernattn.kernels._chi2 import Sech
from kernattn.kernels._gaussian import Gaussian
from kernattn.kernels._laplacian import Laplacian
from kernattn.kernels._matern import Matern, matern
from kernattn.kernels._periodic import Periodic
from kernattn.kernels._polynomial import Polynomial
from kernattn.kernels._rational_quadratic import RationalQuadratic
from kernattn.kernels._softmax import Softmax
from kernattn.kernels._stationary import Stationary
from kernattn.ops.pairwise import OP
from kernattn.ops.pairwise.forms import EXPONENTIAL, MATERN, SQUARED, Form

Pulled = tuple[Array, Array]
Numbers = Any
"""An array (), or (d,), of a kernel's lengthscales; a tuple of those of its members; None where it has none."""


def has_pullback(kernel: Kernel) -> bool:
    """Say whether cotangents flow back through a kernel."""
    if isinstance(kernel, Sum | Product):
        return all(map(has_pullback, kernel.kernels))
    return has_pullback(kernel.kernel) if isinstance(kernel, Scaled) else type(kernel) in PULLBACKS


def pull(kernel: Kernel, x: Array, y: Array, g: Array) -> Pulled:
    """Return the cotangents of rows x (n, d) and y (k, d) from those of k(x, y), (n, k), all of one dtype."""
    return pull_all(kernel, x, y, g)[:2]


def pull_all(kernel: Kernel, x: Array, y: Array, g: Array) -> tuple[Array, Array, Numbers]:
    """Return the cotangents of rows x (n, d) and y (k, d), and of lengthscales, from those of k(x, y), (n, k)."""
    if isinstance(kernel, Scaled):
        return pull_all(kernel.kernel, x, y, kernel.factor * g)
    if isinstance(kernel, Sum | Product):
        members = kernel.kernels
        shares = [g] * len(members) if isinstance(kernel, Sum) else _shares(members, x, y, g)
        of_x, of_y, lengthscales = zip(
            *(pull_all(member, x, y, share) for member, share in zip(members, shares, strict=True)), strict=True
        )
        return sum(of_x), sum(of_y), lengthscales
    if type(kernel) not in PULLBACKS:
        raise ParameterError(f"kernel must be one that has a pullback; got {shown(kernel)}")
    xp = namespace(x=x, y=y, g=g)
    scale = constant(xp, kernel.input_scale(x.shape[-1]), x.dtype, x)
    near, far = x * scale, y * scale
    dx, dy = PULLBACKS[type(kernel)](kernel, xp, near, far, g)
    lengthscale = None
    if isinstance(kernel, Stationary):
        lengthscale = -(xp.sum(near * dx, axis=0) + xp.sum(far * dy, axis=0)) * scale
        lengthscale = xp.sum(lengthscale) if isinstance(kernel.lengthscale, float) else lengthscale
    return dx * scale, dy * scale, lengthscale


def _shares(members: tuple[Kernel, ...], x: Array, y: Array, g: Array) -> list[Array]:
    """Return the cotangents of each factor of a product of kernels: g times all others."""
    values = [member(x, y) for member in members]
    return [reduce(mul, values[:i] + values[i + 1 :], g) for i in range(len(values))]


def _of_squares(
    slope: Callable[[Any, ModuleType, Array], Array], loop: Callable[[Any], tuple[float, Form] | None] = lambda _: None
) -> Callable[..., Pulled]:
    """Return the pullback of a function of the squared distance, of its derivative; `loop` states it as a form."""

    def pull_back(kernel: Any, xp: ModuleType, x: Array, y: Array, g: Array) -> Pulled:
        centre = xp.mean(y, axis=0)
        x, y = x - centre, y - centre
        known = loop(kernel) if isinstance(x, np.ndarray) and OP.choose(x) != "reference" else None
        if known is not None:
            factor, form = known
            weights = OP.implementation(x)(x, y, form, x.dtype)
            weights *= g
            weights *= 2 * factor
        else:
            across = 2 * xp.matmul(x, xp.matrix_transpose(y))
            squares = xp.sum(x * x, axis=-1)[:, None] + xp.sum(y * y, axis=-1) - across
            weights = 2 * g * slope(kernel, xp, xp.clip(squares, min=0.0))
        turned = xp.matrix_transpose(weights)
        dx = xp.sum(weights, axis=1)[:, None] * x - xp.matmul(weights, y)
        return dx, xp.sum(turned, axis=1)[:, None] * y - xp.matmul(turned, x)

    return pull_back


def _of_products(slope: Callable[[Any, ModuleType, Array], Array]) -> Callable[..., Pulled]:
    """Return the pullback of a function of the inner product, of its derivative."""

    def pull_back(kernel: Any, xp: ModuleType, x: Array, y: Array, g: Array) -> Pulled:
        weights = g * slope(kernel, xp, xp.matmul(x, xp.matrix_transpose(y)))
        return xp.matmul(weights, y), xp.matmul(xp.matrix_transpose(weights), x)

    return pull_back


def _of_axes(log: Callable[..., Array], slope: Callable[..., Array]) -> Callable[..., Pulled]:
    """Return the pullback of a product over axes of f(x_i - y_i), of log f and its derivative."""

    def pull_back(kernel: Any, xp: ModuleType, x: Array, y: Array, g: Array) -> Pulled:
        apart = [x[:, None, i] - y[None, :, i] for i in range(x.shape[-1])]
        weights = g * xp.exp(sum(log(kernel, xp, z) for z in apart))
        parts = [weights * slope(kernel, xp, z) for z in apart]
        return (
            xp.stack([xp.sum(part, axis=1) for part in parts], axis=-1),
            -xp.stack([xp.sum(part, axis=0) for part in parts], axis=-1),
        )

    return pull_back


def _of_matern(kernel: Matern, xp: ModuleType, squares: Array) -> Array:
    r"""Return :math:`dk/dz^2 = -c_\nu \nu s^{\nu - 1} K_{\nu - 1}(s)`; up to nu = 1 it is 0 at 0."""
    nu, s = kernel.nu, sqrt(2 * kernel.nu) * xp.sqrt(squares)
    if nu == 1.5:
        return -1.5 * xp.exp(-s)
    if nu == 2.5:
        return -5 / 6 * (1 + s) * xp.exp(-s)
    if nu == 0.5:
        known = xp.where(s > 0, s, xp.ones_like(s))
        return xp.where(s > 0, -0.5 * xp.exp(-s) / known, xp.zeros_like(s))
    wide = to_numpy64(s)
    if nu > 1:
        values = -nu / (2 * (nu - 1)) * matern(nu - 1, wide)
    else:
        known = np.where(wide > 0, wide, 1.0)
        values = -nu * 2 ** (1 - nu) / gamma(nu) * known ** (nu - 1) * special.kv(1 - nu, known)
        values = np.where(wide > 0, values, 0.0)
    return constant(xp, values, s.dtype, s)


def _loop_of_matern(kernel: Matern) -> tuple[float, Form] | None:
    nu = kernel.nu
    return (-nu / (2 * (nu - 1)), Form(SQUARED, MATERN, 2 * nu, int(nu) - 1)) if nu in (1.5, 2.5) else None


def _of_rational(kernel: RationalQuadratic, xp: ModuleType, squares: Array) -> Array:
    return -0.5 * xp.exp(-(kernel.alpha + 1) * xp.log1p(squares / (2 * kernel.alpha)))


def _log_sech(kernel: Sech, xp: ModuleType, z: Array) -> Array:
    size = xp.abs(z)
    return -size / 2 - xp.log1p(xp.exp(-size)) + np.log(2.0)


PULLBACKS: dict[type[Kernel], Callable[..., Pulled]] = {
    Cauchy: _of_axes(lambda kernel, xp, z: -xp.log1p(z * z), lambda kernel, xp, z: -2 * z / (1 + z * z)),
    Gaussian: _of_squares(
        lambda kernel, xp, squares: -0.5 * xp.exp(-0.5 * squares),
        lambda kernel: (-0.5, Form(SQUARED, EXPONENTIAL, -0.5)),
    ),
    Laplacian: _of_axes(lambda kernel, xp, z: -xp.abs(z), lambda kernel, xp, z: -sign(xp, z)),
    Matern: _of_squares(_of_matern, _loop_of_matern),
    Periodic: _of_axes(
        lambda kernel, xp, z: -2 * (xp.sin(z / 2) / kernel.lengthscale) ** 2,
        lambda kernel, xp, z: -kernel.concentration * xp.sin(z),
    ),
    Polynomial: _of_products(lambda kernel, xp, u: kernel.degree * (u + kernel.coef0) ** (kernel.degree - 1)),
    RationalQuadratic: _of_squares(_of_rational),
    Sech: _of_axes(_log_sech, lambda kernel, xp, z: -xp.tanh(z / 2) / 2),
    Softmax: _of_products(lambda kernel, xp, u: xp.exp(u)),
}
