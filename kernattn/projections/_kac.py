"""Frequencies from Kac's random walk on the rotations."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import positive_integer
from kernattn.errors import NoClosedForm
from kernattn.projections._base import Structured


@final
@dataclass(frozen=True)
class Kac(Structured):
    r"""Frequencies :math:`\Omega = R\, G_T \cdots G_1 P` in orthogonal blocks of d rows; every G turns two rows.

    Choromanski, Rowland, Chen and Weller (2019): each Givens rotation G picks two coordinates and an angle at random.
    The walk starts from P, a random signed permutation; R is the diagonal of the norms, blocks are independent.

    Exact at every length: rows of a block are orthogonal, and :math:`E\,\omega\omega^T = I`, so linear kernels are
    unbiased. Only in the limit of a long walk is the direction of a row uniform, and what it estimates its kernel: no
    closed form is known for `mean` and `variance`. The slowest is an axis, along which the kernel comes out high after
    :math:`d \log d` steps; little of that is left after the default of :math:`4 d \log d` (the example).

    Parameters
    ----------
    steps : int, optional
        The number T of rotations of a block; :math:`\lceil 4 d \log d \rceil` where it is not given.
    norms : str
        Law of the norms, a name in `kernattn.projections.NORM_LAWS`: "chi", or "sqrt_d" for the constant
        :math:`\sqrt{d}`.

    Raises
    ------
    ParameterError
        If steps is no positive integer, or norms no such name.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> spec = ka.projections.Kac(norms="sqrt_d")
    >>> omega = spec.draw(5, 3, rng=0)
    >>> spec.blocks(5, 3), bool(np.allclose(omega[:3] @ omega[:3].T, 3 * np.eye(3)))
    ((3, 2), True)

    The mean of cosines over the Gaussian kernel, along an axis, after d log d, twice and 4 times as many steps:

    >>> for steps in (45, 89, None):
    ...     omega = ka.projections.Kac(steps=steps).draw(2**15, 16, rng=0)
    ...     print((np.cos(omega[:, 0]).mean() / np.exp(-0.5)).round(2))
    1.11
    1.02
    1.0
    """

    steps: int | None = None
    norms: str = "chi"

    def __post_init__(self) -> None:
        if self.steps is not None:
            positive_integer("steps", self.steps)
        super().__post_init__()

    _why = "Kac's walk: after finitely many rotations two rows are orthogonal, but their frame is not uniform"

    def sphere(self, m: int, d: int, /) -> int:
        """Raise NoClosedForm: directions are uniform only as the walk grows long."""
        raise NoClosedForm(
            "no closed form is known for means with Kac's walk: its directions are uniform only as the walk grows long"
        )

    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        count = -(-m // d)
        order = generator.permuted(np.broadcast_to(np.arange(d), (count, d)), axis=1)
        signs = 1.0 - 2.0 * generator.integers(0, 2, (count, d, 1))
        frames, each = signs * np.eye(d)[order], np.arange(count)  # (count, d, d)
        steps = 0 if d == 1 else self.steps or ceil(4 * d * log(d))
        for _ in range(steps):
            i = generator.integers(0, d, count)
            j = (i + generator.integers(1, d, count)) % d
            angle = generator.uniform(0.0, 2 * np.pi, (count, 1))
            cosine, sine, first, second = np.cos(angle), np.sin(angle), frames[each, i], frames[each, j]
            frames[each, i] = cosine * first - sine * second
            frames[each, j] = sine * first + cosine * second
        return np.asarray(frames.reshape(-1, d)[:m])
