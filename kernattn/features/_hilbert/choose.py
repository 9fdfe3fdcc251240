"""A reduced-rank map for a domain: its box, and its eigenfunctions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64, frozen, without_flags
from kernattn._arrays.shapes import strips
from kernattn._runtime.checks import array_of, check_room, one_of, positive_integer, positive_number, shown
from kernattn._runtime.elsewhere import told_keywords
from kernattn.errors import ParameterError, ShapeError
from kernattn.features._hilbert.indices import grid, largest
from kernattn.features._hilbert.map import ENDS, MOST, Hilbert, check_ends, first_index, scales
from kernattn.kernels import Kernel, Periodic, Product, Scaled, Sum
from kernattn.kernels._stationary import OfDifferences

AXES = 4  # beyond, boxes hold too many eigenfunctions
INSIDE = 32  # points of the domain between which errors are looked for, beside its corners and its centre
ALONG = (33, 17, 9, 5)  # points along each axis of half a domain at which a row meets itself, by dimension
NEAR = (0.01, 0.05, 0.15)  # of the way from a corner to the centre
MARGINS = np.geomspace(0.2, 300.0, 32)  # between the domain and the ends, in lengthscales
SLACK = 2.0  # times the error: a box or a number of features that is further off is not looked at
BLOCK = 2**22  # numbers of a table of errors that are held at once

Box = tuple[Float64, Float64]
"""The lower and the upper ends, (d,) each."""
Chosen = Callable[[Float64], NDArray[np.int64]]


@told_keywords
@without_flags
def hilbert(
    kernel: Kernel,
    domain: Any,
    num_features: int | Sequence[int] | None = None,
    *,
    error: float | None = None,
    boundary: float | None = None,
    ends: str | None = None,
) -> Hilbert:
    r"""Return the reduced-rank features of a kernel of differences on a box in up to four dimensions.

    Solin and Sarkka (2020): :math:`k(x, y) \approx \sum_j S(\omega_j)\, e_j(x)\, e_j(y)` with the spectral density S of
    the kernel and the eigenfunctions of the Laplacian on a box, :math:`e_j(x) = \prod_i (2 / L_i)^{1/2} \sin
    \omega_{j_i} (x_i - a_i)`, :math:`\omega_{j_i} = \pi j_i / L_i`, or cosines. Nothing is random, and the error is
    known: `bias`. It falls with M as fast as S does, so that in one or two dimensions few features are needed. The
    kernel on the box differs from k near its ends, where functions vanish (Dirichlet) or are flat (Neumann): the
    box is larger than the domain.

    Of a :class:`~kernattn.kernels.Periodic` kernel they are its Fourier series on one period,
    :math:`\cos 2 \pi j x / p` and :math:`\sin 2 \pi j x / p` with the weights :math:`e^{-\kappa} I_j(\kappa)`. Locally
    periodic functions have a product of maps, ``hilbert(gaussian, ...) * hilbert(periodic, ...)``.

    Parameters
    ----------
    kernel : Kernel
        Gaussian, Matern, rational quadratic, Cauchy, Laplacian or Sech, a product of the first three, sums and
        multiples of them; or Periodic.
    domain : (2,) or (d, 2) array_like
        Where the rows are: from and to, along each axis, d at most 4. Rows outside of the box about it are refused.
    num_features : int or (d,) sequence of int, optional
        The number M, of the eigenfunctions with the largest densities; or numbers along the axes, all of whose tuples
        are taken, as NumPyro and PyMC do. Exactly one of this and `error` is given.
    error : float, optional
        The largest error :math:`|\phi(x)^T \phi(y) - k(x, y)|` on the domain, absolute: the fewest features that keep
        it, at points that fill the domain, are taken, over sizes of the box.
    boundary : float, optional
        How many times as long as the domain the box is along each axis, 1 or more: the factor c of PyMC. None takes
        what makes the error least.
    ends : {None, "dirichlet", "neumann", "periodic"}
        What the eigenfunctions do at the ends. None takes "dirichlet", and "periodic" for a Periodic kernel.

    Returns
    -------
    Hilbert
        The map: no draw, no variance, and a redraw is the map itself.

    Raises
    ------
    ParameterError
        If the kernel has no density that is known here, an argument is out of range, or no 16,384 features keep the
        error.
    ShapeError
        If the domain is no (2,) or (d, 2) array.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> kernel = ka.kernels.Matern(1.5, lengthscale=0.5)
    >>> phi = ka.features.hilbert(kernel, [-1.0, 1.0], 64)
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> bool(np.max(np.abs(phi(x) @ phi(x).T - kernel(x))) < 2e-3)
    True
    >>> ka.features.hilbert(ka.kernels.Gaussian(0.5), [-1.0, 1.0], error=1e-6).num_features
    15
    """
    ends = one_of("ends", ("periodic" if isinstance(kernel, Periodic) else "dirichlet") if ends is None else ends, ENDS)
    check_ends(kernel, ends)
    low, high = _check_domain(domain)
    if (num_features is None) == (error is None):
        raise ParameterError(
            "give one of num_features and error, and no more; "
            f"got num_features {shown(num_features)} and error {shown(error)}"
        )
    search = _Search(kernel, ends, low, high, _lengths(kernel, len(low)))
    boxes = _boxes(search, boundary)
    if error is not None:
        return search.fewest(positive_number("error", error), boxes)
    return search.best(_make_chooser(search, num_features), boxes)


class _Search(NamedTuple):
    """A kernel on a domain."""

    kernel: Kernel
    ends: str
    low: Float64  # (d,)
    high: Float64  # (d,)
    lengths: Float64  # lengthscales (d,), beyond which the kernel is small

    def box(self, margin: float) -> Box:
        """Return the ends of the box so many lengthscales beyond the domain; of a periodic kernel, of a period."""
        if isinstance(self.kernel, Periodic):
            return self.low, self.low + self.lengths
        return self.low - margin * self.lengths, self.high + margin * self.lengths

    def make(self, box: Box, indices: NDArray[np.int64]) -> Hilbert:
        lower, upper = (frozen(np.array(end)) for end in box)
        indices = indices.copy()
        indices.setflags(write=False)
        return Hilbert(self.kernel, self.ends, lower, upper, indices)

    def largest(self, count: int, length: Float64) -> NDArray[np.int64]:
        """Return the eigenfunctions of the largest densities in a box with these sides."""
        value = partial(scales, self.kernel, self.ends, length=length)
        return largest(count, len(length), first_index(self.ends), value)

    def errors(self, phi: Hilbert) -> Float64:
        """Return the largest error on the domain of the first 1, 2, ..., M features (M,)."""
        points = _points(self.low, self.high)
        features = phi(points)
        first, second = np.triu_indices(len(points))
        kernel, worst = self.kernel.pairs(points[first], points[second]), np.zeros(features.shape[1])
        for here in strips(len(first), BLOCK // features.shape[1]):
            sums = np.cumsum(features[first[here]] * features[second[here]], axis=1)
            worst = np.maximum(worst, np.max(np.abs(sums - kernel[here, None]), axis=0))
        same = _evenly(self.low, self.high)
        kernel = self.kernel.pairs(same, same)
        for here in strips(len(same), BLOCK // features.shape[1]):
            sums = np.cumsum(phi(same[here]) ** 2, axis=1)
            worst = np.maximum(worst, np.max(np.abs(sums - kernel[here, None]), axis=0))
        return worst

    def fewest(self, error: float, boxes: list[Box]) -> Hilbert:
        """Return the map of the fewest features whose error, and that of all more, is no larger."""
        best: Hilbert | None = None
        boxes = self._not_too_small(boxes, error)
        if boxes and self._beyond(boxes[0]) > SLACK * error:
            boxes = []  # all larger ones lack as much
        for box in boxes:
            enough = self._enough(box, error, MOST if best is None else len(best.indices) - 1)
            if enough is not None:
                best = enough
            elif best is not None:
                break  # boxes grow, and the numbers with them
        if best is None:
            raise ParameterError(
                f"error must be one that {MOST} features of a box keep; {error:g} is too small for "
                f"{shown(self.kernel)} on this domain: random features or landmarks need no box"
            )
        return best

    def _not_too_small(self, boxes: list[Box], error: float) -> list[Box]:
        """Return the boxes but those whose ends are felt: the mirror image of an end of the domain is k(2 margin) off.

        A Dirichlet end takes at least nearly that from k(x, x), a Neumann end adds it.
        """
        if isinstance(self.kernel, Periodic):
            return boxes
        images = (np.diag(2 * (self.low - lower)) for lower, _ in boxes)
        felt = [np.max(self.kernel.pairs(image, np.zeros_like(image))) > SLACK * error for image in images]
        return boxes[felt.index(False) :] if False in felt else []

    def _beyond(self, box: Box) -> float:
        """Return the part of k(x, x) at the centre that is in the features after the `MOST` largest, as many again.

        All maps of this box and of larger ones lack it, or more: larger boxes have more frequencies below any other.
        """
        phi = self.make(box, self.largest(2 * MOST, box[1] - box[0])[MOST:])
        centre = (self.low + self.high)[None] / 2
        return float(np.sum(phi(centre) ** 2))

    def _enough(self, box: Box, error: float, most: int) -> Hilbert | None:
        count = min(most, 64)
        while count:
            phi = self.make(box, self.largest(count, box[1] - box[0]))
            errors = self.errors(phi)
            if errors[-1] <= error:
                last = np.flatnonzero(errors > error)
                return self.make(box, phi.indices[: last[-1] + 2 if len(last) else 1])
            if count == most or (count > 64 and errors[-1] > 0.98 * errors[count // 2]):
                return None  # the rest is the box's
            count = min(4 * count, most)
        return None

    def best(self, chosen: Chosen, boxes: list[Box]) -> Hilbert:
        """Return the map of the box with the least error."""
        maps = [self.make(box, chosen(box[1] - box[0])) for box in boxes]
        return min(maps, key=lambda phi: float(self.errors(phi)[-1])) if len(maps) > 1 else maps[0]


def _boxes(search: _Search, boundary: float | None) -> list[Box]:
    """Return the boxes that are looked at, from the smallest on."""
    if isinstance(search.kernel, Periodic):
        if boundary is not None:
            raise ParameterError(f"boundary must be None for a Periodic kernel; got {shown(boundary)}")
        return [search.box(0.0)]
    if boundary is None:
        return [search.box(float(margin)) for margin in MARGINS]
    if not (times := positive_number("boundary", boundary)) >= 1:
        raise ParameterError(f"boundary must be 1 or more, as the box holds the domain; got {shown(boundary)}")
    centre, half = (search.low + search.high) / 2, (search.high - search.low) / 2
    return [(centre - times * half, centre + times * half)]


def _make_chooser(search: _Search, num_features: Any) -> Chosen:
    """Return a function that gives the indices of a box with these sides."""
    d = len(search.low)
    if isinstance(num_features, Sequence) and not isinstance(num_features, str | bytes):
        if len(num_features) != d:
            raise ParameterError(f"num_features must be a number, or one for each of {d} axes; got {num_features!r}")
        sizes = tuple(positive_integer("num_features", size) for size in num_features)
        check_room("eigenfunctions", (int(np.prod([float(size) for size in sizes])), d))
        indices = grid(sizes, first_index(search.ends))
        return lambda length: indices
    count = positive_integer("num_features", num_features)
    check_room("eigenfunctions", (4 * count, d))
    return lambda length: search.largest(count, length)


def _check_domain(domain: Any) -> tuple[Float64, Float64]:
    """Return the ends of the domain, (d,) each."""
    given = array_of(domain)
    if given.dtype.kind not in "iuf" or given.ndim not in (1, 2) or given.shape[-1] != 2 or not given.size:
        raise ShapeError(f"domain must be (2,) or (d, 2), from and to along each axis; got {shown(domain)}")
    ends = given.astype(np.float64).reshape(-1, 2)
    if len(ends) > AXES:
        raise ParameterError(
            f"domain must have {AXES} axes at most; got {len(ends)}: random features have no such limit. The domain of "
            "rows x is numpy.stack([x.min(axis=0), x.max(axis=0)], axis=1)"
        )
    wrong = ~np.isfinite(ends).all(axis=1) | ~(ends[:, 0] < ends[:, 1])
    if wrong.any():
        axis = int(wrong.argmax())
        low, high = ends[axis]
        advice = ": leave out a column that is the same in all rows, or give it a wider domain" if low == high else ""
        raise ParameterError(
            f"domain must hold finite numbers, the lower first; got {low:g} to {high:g} along axis {axis}{advice}"
        )
    return ends[:, 0].copy(), ends[:, 1].copy()


def _lengths(kernel: Kernel, d: int) -> Float64:
    """Return lengthscales (d,): of a product those of its curvature, of a sum the largest; a period."""
    if isinstance(kernel, Scaled):
        return _lengths(kernel.kernel, d)
    if isinstance(kernel, Sum):
        return np.asarray(np.max([_lengths(member, d) for member in kernel.kernels], axis=0))
    if isinstance(kernel, Product):
        return np.asarray(np.sum([_lengths(member, d) ** -2.0 for member in kernel.kernels], axis=0) ** -0.5)
    assert isinstance(kernel, OfDifferences)
    return np.asarray((2 * np.pi if isinstance(kernel, Periodic) else 1.0) / kernel.input_scale(d))


def _points(low: Float64, high: Float64) -> Float64:
    """Return points of the domain: its corners, its centre, and others that fill it evenly."""
    d = len(low)
    root = 2.0
    for _ in range(60):
        root = (1 + root) ** (1 / (d + 1))
    inside = np.arange(1, INSIDE + 1)[:, None] * root ** -np.arange(1.0, d + 1) % 1.0
    corners = np.array(list(product((0.0, 1.0), repeat=d)))
    near = [corners + step * (0.5 - corners) for step in NEAR]  # where the ends of the box are felt most
    unit = np.concatenate([corners, *near, np.full((1, d), 0.5), inside])
    return low + unit * (high - low)


def _evenly(low: Float64, high: Float64) -> Float64:
    """Return a grid between the centre and a corner: of a row with itself, errors are the same in all such parts."""
    d = len(low)
    axes = np.meshgrid(*[np.linspace(0.5, 1.0, ALONG[d - 1])] * d)
    return low + np.stack(axes, axis=-1).reshape(-1, d) * (high - low)
