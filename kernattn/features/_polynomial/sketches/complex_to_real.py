"""Complex-to-real sketches: products of complex projections, real and imaginary parts kept as two features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, namespace
from kernattn._runtime.checks import check_room, host_array, one_of, positive_integer
from kernattn.errors import ParameterError
from kernattn.features._polynomial.inputs import PairSums, width
from kernattn.features._polynomial.sketches.base import PolynomialSketch
from kernattn.features._polynomial.sketches.weights import project
from kernattn.kernels import Polynomial

_DTYPES = {"gaussian": "float64", "rademacher": "int8"}


@final
@dataclass(frozen=True, eq=False, repr=False)
class ComplexToReal(PolynomialSketch):
    r"""Complex-to-real sketch: :math:`\phi(x) = D^{-1/2} [\mathrm{Re}\, z, \mathrm{Im}\, z]`,
    :math:`z_a = \prod_{i=1}^p \omega_{ia}^T \tilde x` with complex weights, M = 2D.

    Wacker, Ohana and Filippone (2022). The weights are standard complex Gaussian, with variance
    :math:`[((N + a)^p + (2a)^p) / 2 - a^p] / D`, or uniform on 1, -1, i, -i ("rademacher"), with variance
    :math:`[((N + a - s)^p + (2a - s)^p) / 2 - a^p] / D`, which is never larger. For parallel x and y the second
    moment of a feature grows as :math:`2^p`, where that of the real sketches grows as :math:`3^p`.
    """

    law: str  # "gaussian" | "rademacher"
    real: NDArray[Any]  # (p, D, width)
    imag: NDArray[Any]  # (p, D, width)

    _step: ClassVar[int] = 2
    _block = 2  # the parts of one complex feature

    def _check_draw(self) -> None:
        """Raise unless both parts are weights of that law."""
        dtype = _DTYPES[one_of("law", self.law, _DTYPES)]
        host_array("real", self.real, (self.kernel.degree, "D", "width"), (dtype,))
        host_array("imag", self.imag, self.real.shape, (dtype,))
        if self.law == "rademacher" and not (np.abs(self.real) + np.abs(self.imag) == 1).all():
            raise ParameterError("real and imag must be the parts of 1, -1, i and -i")

    @property
    def _width(self) -> int:
        return int(self.real.shape[2])

    @property
    def _design(self) -> dict[str, Any]:
        return {"law": self.law}

    @classmethod
    def _sample(
        cls, kernel: Polynomial, number: int, dim: int, rng: np.random.Generator, law: str = "rademacher"
    ) -> Self:
        shape = (kernel.degree, number, width(kernel, dim))
        check_room("the weights", shape, 16 if law == "gaussian" else 2)
        if law == "gaussian":
            real, imag = rng.standard_normal((2, *shape)) * 0.5**0.5
        else:
            turns = rng.integers(4, size=shape)
            real, imag = (np.array(unit, np.int8)[turns] for unit in ([1, 0, -1, 0], [0, 1, 0, -1]))
        real.setflags(write=False)
        imag.setflags(write=False)
        return cls(kernel, law, real, imag)

    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return 2 * int(self.real.shape[1])

    def _product(self, x: Any, backend: str | None) -> Array:
        amplitude = self.real.shape[1] ** -0.5
        real, imag = project(x, self.real[0]) * amplitude, project(x, self.imag[0]) * amplitude
        for weights in zip(self.real[1:], self.imag[1:], strict=True):
            a, b = (project(x, part) for part in weights)
            real, imag = real * a - imag * b, real * b + imag * a
        return namespace(real=real).concat([real, imag], axis=-1)

    def _pair_variance(self, pair: PairSums, num_features: int) -> Float64:
        p = self.kernel.degree
        shared = pair.shared if self.law == "rademacher" else 0.0
        second = ((pair.norms + pair.square - shared) ** p + (2 * pair.square - shared) ** p) / 2
        variance: Float64 = (second - pair.square**p) / (num_features / 2)
        return variance

    @property
    def _is_bounded(self) -> bool:
        """True for weights that are roots of unity."""
        return self.law == "rademacher"
