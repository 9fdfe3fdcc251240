r"""The law of the frequencies of each kernel that has a spectral measure.

Isotropic measures are a law of norms: any projection arranges their directions. Product measures draw each axis on its
own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, TypeGuard, final

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen
from kernattn._maps.chains import Chains
from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.kernels import (
    Cauchy,
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
    Periodic,
    Product,
    RationalQuadratic,
    Scaled,
    Sech,
    SkewedChi2,
    Softmax,
    Sum,
)
from kernattn.kernels._own import OwnStationary
from kernattn.kernels._periodic import frequencies
from kernattn.kernels._stationary import OfDifferences
from kernattn.projections import NORM_LAWS, Iid, NormLaw, Pair, Projection
from kernattn.projections._scale_mixtures import MaternNorms, RationalQuadraticNorms

Entries = Callable[[np.random.Generator, tuple[int, int]], Float64]


class Spectrum(ABC):
    """The joint law of the frequencies of a kernel under a projection, and the moments of their cosines."""

    @abstractmethod
    def draw(self, m: int, d: int, rng: np.random.Generator) -> Float64 | Chains:
        """Return m frequencies, (m, d)."""

    @abstractmethod
    def cosine(self, delta: Float64, m: int, pair: Pair | None = None) -> Float64:
        """Return E cos w.delta of one of m, of a pair E cos (w + w').delta, for scaled differences delta (..., d)."""

    def log_cosine(self, delta: Float64, m: int) -> Float64 | None:
        """Return log E cos w.delta of one of m, where its law is normal; None of other laws, whose sign may change."""
        return None


@final
@dataclass(frozen=True)
class Isotropic(Spectrum):
    """Norms of some law, in directions that the projection arranges."""

    projection: Projection
    own: NormLaw

    def draw(self, m: int, d: int, rng: np.random.Generator) -> Float64 | Chains:
        return self.projection.factors(m, d, rng, self.own)

    def cosine(self, delta: Float64, m: int, pair: Pair | None = None) -> Float64:
        law, t2 = self.projection.law(self.own), -np.sum(delta**2, axis=-1)
        d = self.projection.sphere(m, delta.shape[-1])
        return law.moment(d, t2) if pair is None else pair.moment(law, d, t2)

    def log_cosine(self, delta: Float64, m: int) -> Float64 | None:
        self.projection.sphere(m, delta.shape[-1])  # raises where directions are uniform only nearly
        normal = self.projection.law(self.own) == NORM_LAWS["chi"]
        return -np.sum(delta**2, axis=-1) / 2 if normal else None


@final
@dataclass(frozen=True)
class ProductMeasure(Spectrum):
    """Every entry of every frequency on its own."""

    kernel: Kernel  # of scaled inputs
    entries: Entries

    def draw(self, m: int, d: int, rng: np.random.Generator) -> Float64:
        return frozen(self.entries(rng, (m, d)))

    def cosine(self, delta: Float64, m: int, pair: Pair | None = None) -> Float64:
        """Return E cos w.delta for scaled differences delta (..., d); the projection, iid, has no pairs."""
        one: Float64 = self.kernel.pairs(delta, np.zeros_like(delta))
        return one


@final
@dataclass(frozen=True)
class Convolution(Spectrum):
    """Sums of independent frequencies, one of each member's law: those of a product of kernels."""

    members: tuple[tuple[Kernel, Spectrum], ...]

    def draw(self, m: int, d: int, rng: np.random.Generator) -> Float64:
        return frozen(np.sum([kernel.input_scale(d) * law.draw(m, d, rng) for kernel, law in self.members], axis=0))

    def cosine(self, delta: Float64, m: int, pair: Pair | None = None) -> Float64:
        d = delta.shape[-1]
        return np.asarray(prod(law.cosine(kernel.input_scale(d) * delta, m, pair) for kernel, law in self.members))


def _sech(rng: np.random.Generator, shape: tuple[int, int]) -> Float64:
    """Return numbers of density sech(pi w): the inverse of F(w) = 2 atan(e^(pi w)) / pi."""
    return np.asarray(np.log(np.tan(np.pi / 2 * rng.uniform(np.finfo(float).tiny, 1.0, shape))) / np.pi)


ISOTROPIC: dict[type[Kernel], Callable[[Any], NormLaw]] = {
    Gaussian: lambda kernel: NORM_LAWS["chi"],
    Matern: lambda kernel: MaternNorms(kernel.nu),
    RationalQuadratic: lambda kernel: RationalQuadraticNorms(kernel.alpha),
    Softmax: lambda kernel: NORM_LAWS["chi"],
}
PRODUCT: dict[type[Kernel], Callable[[Any], Entries | None]] = {
    Cauchy: lambda kernel: lambda rng, shape: rng.laplace(size=shape),
    Laplacian: lambda kernel: lambda rng, shape: rng.standard_cauchy(shape),
    OwnStationary: lambda kernel: None if kernel.frequencies is None else kernel.draw,
    Periodic: lambda kernel: partial(frequencies, kernel),
    Sech: lambda kernel: _sech,
}


def has_spectrum(kernel: Kernel) -> bool:
    """Say whether the kernel has a spectral measure. A product of kernels of x - y has one: their frequencies add."""
    return type(kernel) in ISOTROPIC or _entries(kernel) is not None or is_convolution(kernel)


def _entries(kernel: Kernel) -> Entries | None:
    """Return how the entries of frequencies are drawn, where each axis is drawn on its own."""
    entries = PRODUCT.get(type(kernel))
    return None if entries is None else entries(kernel)


def has_normal_frequencies(kernel: Kernel) -> bool:
    """Say whether the kernel's frequencies are N(0, I)."""
    law = ISOTROPIC.get(type(kernel))
    return law is not None and law(kernel) == NORM_LAWS["chi"]


def is_by_axes(kernel: Kernel) -> bool:
    """Say whether the frequencies of a kernel, or of a member of its sum or product, are drawn axis by axis."""
    if isinstance(kernel, Scaled):
        return is_by_axes(kernel.kernel)
    if isinstance(kernel, Product | Sum):
        return any(map(is_by_axes, kernel.kernels))
    return type(kernel) in PRODUCT or isinstance(kernel, SkewedChi2)


def spectrum(kernel: Kernel, projection: Projection) -> Spectrum:
    """Return the law of the kernel's frequencies; the softmax kernel has that of the Gaussian one."""
    kind = type(kernel)
    if is_convolution(kernel):
        return Convolution(tuple((member, spectrum(member, projection)) for member in kernel.kernels))
    if kind in ISOTROPIC:
        own = ISOTROPIC[kind](kernel)
        projection.law(own)  # raises where the projection cannot take it
        return Isotropic(projection, own)
    check_spectrum(kernel)
    check_axes(kernel, projection)
    entries = _entries(kernel)
    assert isinstance(kernel, OfDifferences)
    assert entries is not None
    return ProductMeasure(kernel.of_scaled(), entries)


def check_normal(projection: Projection, name: str = "favor_sharp") -> None:
    """Raise unless the projection's rows are normal."""
    if projection.law() != NORM_LAWS["chi"]:
        raise ParameterError(
            f"projection must give frequencies N(0, I), norms 'chi', for {shown(name)}; got {projection!r}"
        )


def check_spectrum(kernel: Kernel) -> None:
    """Raise unless the kernel has a spectral measure."""
    if not has_spectrum(kernel):
        kinds = ", ".join(kind.__name__ for kind in (*ISOTROPIC, *PRODUCT) if kind is not OwnStationary)
        raise ParameterError(
            f"kernel must be one of {kinds}, which have a spectral measure, or from_function with frequencies; "
            f"got {shown(kernel)}"
        )


def is_convolution(kernel: Kernel) -> TypeGuard[Product]:
    """Say whether it is a product of kernels of x - y, whose characteristic functions multiply as frequencies add."""
    return isinstance(kernel, Product) and all(
        not k.row_exponent and (type(k) in ISOTROPIC or _entries(k) is not None) for k in kernel.kernels
    )


def check_axes(kernel: Kernel, projection: Projection) -> None:
    """Raise unless the projection leaves every axis of every frequency on its own."""
    if projection != Iid():
        raise ParameterError(
            f"projection must be 'iid' with norms 'chi' for {shown(kernel)}: its frequencies are drawn axis by axis, "
            f"their directions are not uniform, and no other arrangement keeps their law; got {projection!r}"
        )
