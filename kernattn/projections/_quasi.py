"""Frequencies from scrambled low-discrepancy points."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import one_of, positive_integer
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.projections._base import Projection
from kernattn.projections._coupling import law_named
from kernattn.projections._norm_law import NormLaw
from kernattn.projections._norms import NORM_LAWS
from kernattn.projections._pairs import Pair

BITS = 52  # of a Sobol coordinate: the middles of 2^52 intervals are floats, none of them 0 or 1
SOBOL_DIMENSIONS = 21201  # of SciPy's direction numbers (Joe and Kuo 2008)


@dataclass(frozen=True)
class _Quasi(Projection):
    """Scrambled points in d + 1 dimensions: normal quantiles, and one coordinate for a scale where the law has one."""

    norms: str = "chi"

    def __post_init__(self) -> None:
        one_of("norms", self.norms, NORM_LAWS)

    @abstractmethod
    def _points(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        """Return m points, (m, d), each uniform on the open unit cube."""

    def blocks(self, m: int, d: int, /) -> tuple[int, ...]:
        """Return m: all points belong to one net."""
        positive_integer("d", d)
        return (positive_integer("m", m),)

    @final
    def pairs(self, m: int, d: int, /) -> dict[Pair, int]:
        """Raise NoClosedForm, but for a single row."""
        if self.blocks(m, d) == (1,):
            return {}
        raise NoClosedForm(
            f"no closed form is known for the variance with {type(self).__name__} points: what two of them have in "
            "common depends on the digits of their numbers in the sequence"
        )

    @final
    def law(self, own: NormLaw = NORM_LAWS["chi"]) -> NormLaw:
        return law_named(self.norms, own)

    @final
    def _draw(self, m: int, d: int, law: NormLaw, generator: np.random.Generator) -> Float64:
        points = self._points(m, d + 1, generator)
        normal = special.ndtri(points[:, :d])
        norms = np.linalg.norm(normal, axis=-1)
        return np.asarray(normal * (law.of_chi(norms, d, points[:, d]) / norms)[:, None])


@final
@dataclass(frozen=True)
class Sobol(_Quasi):
    r"""Frequencies :math:`\omega_i = \Phi^{-1}(p_i)` of scrambled Sobol points p; each row alone is :math:`N(0, I_d)`.

    Quasi-Monte Carlo feature maps, Avron et al. (2016), with the scrambling of Matousek (1998) and a random digital
    shift: every redraw scrambles anew, so estimates are unbiased. The points fill the cube evenly where m is a power of
    two. They depend on each other as no closed form says: `variance` has none. Beyond a few dozen dimensions little is
    gained over independent rows.

    Parameters
    ----------
    norms : str
        Law of the norms, a name in `kernattn.projections.NORM_LAWS`: "chi", or "sqrt_d", which stretches every row to
        :math:`\sqrt{d}`. The scales of a kernel's own law are quantiles at one more coordinate of the points.

    Raises
    ------
    ParameterError
        If norms is no such name.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> omega = ka.projections.Sobol().draw(256, 3, rng=0)
    >>> bool(np.abs(omega.mean(axis=0)).max() < 0.02)  # 0.06 is usual for independent rows
    True
    """

    def blocks(self, m: int, d: int, /) -> tuple[int, ...]:
        if positive_integer("d", d) >= SOBOL_DIMENSIONS:
            raise ParameterError(f"d must be below {SOBOL_DIMENSIONS} for Sobol points; got {d}")
        return super().blocks(m, d)

    def _points(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        numbers = _scramble(_direction_numbers(d, (m - 1).bit_length()), generator)
        points = generator.integers(2**BITS, size=(1, d), dtype=np.uint64)  # the digital shift
        for column in numbers.T:
            points = np.concatenate([points, points[::-1] ^ column])  # in the order of a Gray code
        middles: Float64 = (points[:m] + np.float64(0.5)) * 2.0**-BITS
        return middles


@lru_cache(maxsize=16)
def _direction_numbers(d: int, count: int) -> NDArray[np.uint64]:
    """Return the first direction numbers of every coordinate, (d, count): digits of BITS, the leading one on top."""
    from scipy.stats import qmc

    points = qmc.Sobol(d, scramble=False, bits=BITS).random_base2(count)
    numbers: NDArray[np.uint64] = (points[(2 << np.arange(count)) - 1].T * 2.0**BITS).astype(np.uint64)
    numbers.flags.writeable = False
    return numbers


def _scramble(numbers: NDArray[np.uint64], generator: np.random.Generator) -> NDArray[np.uint64]:
    """Return L v of every coordinate's numbers v, L lower triangular in GF(2) with a diagonal of 1, drawn anew.

    The first k numbers have no digits but the k leading ones, so the first k columns of L are all that is needed.
    """
    d, count = numbers.shape
    points = np.zeros_like(numbers)
    for digit in range(count):
        place = BITS - 1 - digit
        column = generator.integers(2**place, 2 ** (place + 1), size=(d, 1), dtype=np.uint64)
        points ^= column * (numbers >> np.uint64(place) & np.uint64(1))
    return points


@final
@dataclass(frozen=True)
class Halton(_Quasi):
    r"""Frequencies :math:`\omega_i = \Phi^{-1}(p_i)` of scrambled Halton points p; each row alone is :math:`N(0, I_d)`.

    Quasi-Monte Carlo feature maps, Avron et al. (2016), with random permutations of every digit (Owen 2017): every
    redraw scrambles anew, so estimates are unbiased. Any m is as good as its neighbours. The points depend on each
    other as no closed form says: `variance` has none. Beyond a few dozen dimensions, where the bases of the digits
    outgrow m, little is gained over independent rows.

    Parameters and errors are those of :class:`Sobol`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> omega = ka.projections.Halton().draw(300, 3, rng=0)
    >>> bool(np.abs(omega.mean(axis=0)).max() < 0.03)  # 0.06 is usual for independent rows
    True
    """

    def _points(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        from scipy.stats import qmc

        points: Float64 = qmc.Halton(d, scramble=True, seed=generator).random(m)
        return np.clip(points, 2.0**-54, 1 - 2.0**-53)
