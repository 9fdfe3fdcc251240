r"""Spectral densities: :math:`k(\delta) = (2 \pi)^{-d} \int S(\omega) \cos \omega^T \delta\, d\omega`.

Gaussian, Matern, rational quadratic kernels and their products are mixtures of :math:`e^{-\tau |\delta|^2 / 2}`;
those without a closed form are sums over nodes of :math:`\tau`, by the trapezoidal rule in its logarithm, which
converges geometrically. Densities of lengthscale 1 are array expressions, so that lengthscales may be arrays that a
framework traces: :math:`S(\omega) = \prod_i \ell_i\, S_1(\ell \omega)`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma, log, pi
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
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

STEP = 0.2  # of log tau, where the trapezoidal rule errs by e^(-pi^2 / step), less where the law is narrow
SMALL, FAR = 1e-6, 45.0  # the least |omega|^2 in lengthscales, and -log of what a node is left out for
MOST_WIDE = 2  # members of a product whose laws of tau are no points

Points = tuple[Float64, Float64]


def check_density(kernel: Kernel) -> None:
    """Raise unless the kernel has a spectral density that is known here."""
    if isinstance(kernel, Scaled):
        check_density(kernel.kernel)
    elif isinstance(kernel, Sum):
        for member in kernel.kernels:
            check_density(member)
    elif isinstance(kernel, Product):
        wide = sum(type(member) in (Matern, RationalQuadratic) for member in kernel.kernels)
        if wide > MOST_WIDE or any(type(member) not in MIXTURES for member in kernel.kernels):
            names = ", ".join(kind.__name__ for kind in MIXTURES)
            raise ParameterError(
                f"kernel must be a product of {names}, {MOST_WIDE} at most of them not Gaussian; got {shown(kernel)}"
            )
    elif type(kernel) not in DENSITIES:
        names = ", ".join(kind.__name__ for kind in DENSITIES)
        raise ParameterError(
            f"kernel must be one of {names}, or of their sums, multiples and products; got {shown(kernel)}"
        )


def density(kernel: Kernel, omega: Float64) -> Float64:
    """Return S at frequencies (m, d), in float64."""
    if isinstance(kernel, Scaled):
        return kernel.factor * density(kernel.kernel, omega)
    if isinstance(kernel, Sum):
        return np.asarray(sum(density(member, omega) for member in kernel.kernels))
    if isinstance(kernel, Product):
        return _of_product(kernel, omega)
    assert isinstance(kernel, Stationary)
    scale = kernel.input_scale(omega.shape[1])
    return np.asarray(DENSITIES[type(kernel)](kernel, np, omega / scale) / np.prod(scale))


def traced_density(kernel: Stationary, xp: ModuleType, omega: Array, lengthscale: Array) -> Array:
    """Return S at frequencies (m, d) with lengthscales (), or (d,), in place of the kernel's."""
    d = omega.shape[1]
    volume = lengthscale**d if lengthscale.ndim == 0 else xp.prod(lengthscale)
    return volume * DENSITIES[type(kernel)](kernel, xp, omega * lengthscale)


class Nodes(NamedTuple):
    """A product as a mixture: precisions of its members add, axis by axis."""

    logs: Float64  # of weights times volumes (k,)
    precisions: Float64  # (k, d)
    taus: list[Float64]  # of each member (k,)


def nodes_of(kernel: Product, d: int) -> Nodes:
    """Return the mixture that a product of kernels is."""
    weights, precisions = np.ones(1), np.zeros((1, d))
    taus: list[Float64] = []
    for member in kernel.kernels:
        assert isinstance(member, Stationary)
        tau, share = MIXTURES[type(member)](member)
        taus = [np.repeat(each, len(tau)) for each in taus] + [np.tile(tau, len(weights))]
        precisions = (precisions[:, None] + tau[:, None] * member.input_scale(d) ** 2).reshape(-1, d)
        weights = (weights[:, None] * share).reshape(-1)
    return Nodes(np.log(weights) + 0.5 * np.sum(np.log(2 * pi / precisions), axis=1), precisions, taus)


def _of_product(kernel: Product, omega: Float64) -> Float64:
    """Return S of a product."""
    logs, precisions, _ = nodes_of(kernel, omega.shape[1])
    halves = 0.5 / precisions
    return np.array([np.sum(np.exp(logs - halves @ square)) for square in omega**2])


def _nodes(shape: float, tau_of: Callable[[Float64], Float64]) -> Points:
    """Return nodes of tau and weights, where tau is a function of a Gamma variable of that shape."""
    step = min(STEP, 0.6 / shape**0.5)
    low = min(log(SMALL / (2 * FAR)), log(shape + 1) - FAR / min(shape, 1.0))
    low = max(low, -200.0) if shape < 20 else log(shape) - 12 / shape**0.5
    high = log(shape + FAR + (2 * FAR * shape) ** 0.5)
    u = np.arange(low, high + step, step)
    return tau_of(np.exp(u)), np.exp(shape * u - np.exp(u) - lgamma(shape)) * step


MIXTURES: dict[type[Kernel], Callable[[Any], Points]] = {
    Gaussian: lambda kernel: (np.ones(1), np.ones(1)),
    Matern: lambda kernel: _nodes(kernel.nu, lambda g: kernel.nu / g),
    RationalQuadratic: lambda kernel: _nodes(kernel.alpha, lambda g: g / kernel.alpha),
}


def _gaussian(kernel: Any, xp: ModuleType, z: Array) -> Array:
    return (2 * pi) ** (z.shape[1] / 2) * xp.exp(-0.5 * xp.sum(z * z, axis=1))


def _matern(kernel: Any, xp: ModuleType, z: Array) -> Array:
    """Rasmussen and Williams (2006), equation 4.15."""
    nu, d = kernel.nu, z.shape[1]
    front = d * log(2) + d / 2 * log(pi) + lgamma(nu + d / 2) - lgamma(nu) + nu * log(2 * nu)
    return xp.exp(front - (nu + d / 2) * xp.log(2 * nu + xp.sum(z * z, axis=1)))


def _rational_quadratic(kernel: Any, xp: ModuleType, z: Array) -> Array:
    d, squares = z.shape[1], xp.sum(z * z, axis=1)
    total = 0.0
    for tau, weight in zip(*MIXTURES[RationalQuadratic](kernel), strict=True):
        total = total + float(weight * (2 * pi / tau) ** (d / 2)) * xp.exp(-float(0.5 / tau) * squares)
    return total


def _over_axes(f: Callable[[ModuleType, Array], Array]) -> Callable[[Any, ModuleType, Array], Array]:
    return lambda kernel, xp, z: xp.prod(f(xp, z), axis=1)


DENSITIES: dict[type[Kernel], Callable[[Any, ModuleType, Array], Array]] = {
    Cauchy: _over_axes(lambda xp, z: pi * xp.exp(-xp.abs(z))),
    Gaussian: _gaussian,
    Laplacian: _over_axes(lambda xp, z: 2 / (1 + z * z)),
    Matern: _matern,
    RationalQuadratic: _rational_quadratic,
    Sech: _over_axes(lambda xp, z: 2 * pi / xp.cosh(xp.clip(pi * z, min=-300.0, max=300.0))),
}
