r"""How cotangents of spectral densities flow back to lengthscales.

With :math:`S(\omega) = \prod_i \ell_i\, S_1(\ell \omega)` and :math:`z = \ell \omega`,
:math:`\ell_i\, \partial S / \partial \ell_i = S + \prod_i \ell_i\, z_i\, \partial S_1 / \partial z_i`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.features._hilbert.density import DENSITIES, MIXTURES, nodes_of
from kernattn.kernels import (
    Cauchy,
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
    Product,
    RationalQuadratic,
    Scaled,
    Sech,
    Stationary,
    Sum,
)


def pull_density(kernel: Kernel, omega: Float64, g: Float64) -> Any:
    """Return the cotangents of lengthscales from those of S at frequencies (m, d); a tuple of those of members."""
    if isinstance(kernel, Scaled):
        return pull_density(kernel.kernel, omega, kernel.factor * g)
    if isinstance(kernel, Sum):
        return tuple(pull_density(member, omega, g) for member in kernel.kernels)
    if isinstance(kernel, Product):
        return _of_product(kernel, omega, g)
    assert isinstance(kernel, Stationary)
    scale = kernel.input_scale(omega.shape[1])
    z = omega / scale
    value = np.asarray(DENSITIES[type(kernel)](kernel, np, z))
    return _fold_axes(kernel, g @ (value[:, None] + SLOPES[type(kernel)](kernel, z, value)) / np.prod(scale) * scale)


def _fold_axes(kernel: Stationary, each: Float64) -> Float64:
    """Return the cotangents of a kernel's lengthscales from those of each axis."""
    return np.asarray(np.sum(each)) if isinstance(kernel.lengthscale, float) else each


def _of_product(kernel: Product, omega: Float64, g: Float64) -> Any:
    """Return the cotangents of the lengthscales of each member, by those of the precisions of nodes."""
    logs, precisions, taus = nodes_of(kernel, omega.shape[1])
    halves, of_precisions = 0.5 / precisions, np.zeros_like(precisions)
    for square, one in zip(omega**2, g, strict=True):
        terms = one * np.exp(logs - halves @ square)
        of_precisions += terms[:, None] * halves * (square / precisions - 1)
    cotangents = []
    for member, tau in zip(kernel.kernels, taus, strict=True):
        assert isinstance(member, Stationary)
        scale = member.input_scale(omega.shape[1])
        cotangents.append(_fold_axes(member, -2 * scale**3 * (tau @ of_precisions)))
    return tuple(cotangents)


def _of_rational(kernel: RationalQuadratic, z: Float64, value: Float64) -> Float64:
    d, squares, total = z.shape[1], np.sum(z * z, axis=1), np.zeros(len(z))
    for tau, weight in zip(*MIXTURES[RationalQuadratic](kernel), strict=True):
        total -= weight / tau * (2 * pi / tau) ** (d / 2) * np.exp(-0.5 / tau * squares)
    return total[:, None] * z * z


def _of_matern(kernel: Matern, z: Float64, value: Float64) -> Float64:
    squares = np.sum(z * z, axis=1)
    return np.asarray(-(2 * kernel.nu + z.shape[1]) * (value / (2 * kernel.nu + squares))[:, None] * z * z)


SLOPES: dict[type[Kernel], Callable[[Any, Float64, Float64], Float64]] = {
    Cauchy: lambda kernel, z, value: -np.abs(z) * value[:, None],
    Gaussian: lambda kernel, z, value: -z * z * value[:, None],
    Laplacian: lambda kernel, z, value: -2 * z * z / (1 + z * z) * value[:, None],
    Matern: _of_matern,
    RationalQuadratic: _of_rational,
    Sech: lambda kernel, z, value: -pi * z * np.tanh(pi * z) * value[:, None],
}
"""z_i dS/dz_i (m, d), of lengthscale 1."""
