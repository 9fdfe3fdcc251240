"""Moments as files: npz without pickle, written whole or not at all."""

from __future__ import annotations

from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen
from kernattn._arrays.shapes import strips
from kernattn._runtime.archive import Archive, open_archive, save_archive
from kernattn._runtime.checks import instance_of, shown
from kernattn._runtime.deprecated import old_arguments
from kernattn.errors import FileFormatError, StateMismatchError
from kernattn.features import FeatureMap
from kernattn.solvers._moments import Moments, Targets
from kernattn.solvers._sums import PRODUCTS

FORMAT = "kernattn moments 3"
ROUNDED = 1.01  # the root of a sum of squares, at most, over what rounding left of it


class Place(NamedTuple):
    """How far a stream of blocks was taken in."""

    blocks: int
    rows: int
    digest: str  # of all blocks
    products: str  # as they were asked for: those of float64 rows are in float64 in any case


@old_arguments(m="moments")
def save_moments(moments: Moments, path: str | PathLike[str]) -> None:
    """Write moments to an .npz file, without pickle, whole or not at all; the map is not in it.

    Parameters
    ----------
    moments : Moments
        The sums.
    path : str or PathLike
        Where to.
    """
    instance_of("moments", moments, Moments)
    store(moments, Place(0, 0, "", moments.products), path)


def load_moments(path: str | PathLike[str], phi: FeatureMap) -> Moments:
    """Return the moments that `save_moments` wrote, or a checkpoint of `accumulate`: the same bits.

    Parameters
    ----------
    path : str or PathLike
        The file; nothing in it is executed.
    phi : FeatureMap
        The map that they were made with.

    Raises
    ------
    FileFormatError
        If the file is damaged or not one of moments.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.elu1()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "moments.npz"
    ...     ka.solvers.save_moments(ka.solvers.moments(np.ones((5, 2)), phi), path)
    ...     ka.solvers.load_moments(path, phi).n
    5
    """
    return read(path, phi)[0]


def store(m: Moments, place: Place, path: str | PathLike[str]) -> None:
    """Write moments, and how far a stream was taken in."""
    header = {
        "fingerprint": m.fingerprint,
        "n": m.n,
        "weighted": m.weighted,
        "vector": m.vector,
        "products": m.products,
        "targets": len(m._targets.total),
        "place": [*place],
    }
    arrays = {"weight": np.array([m.weight]), "s": m.s, "gram": m.gram}
    cross, y_sum, y_gram, shift = m._targets
    if len(y_sum):
        arrays |= {"cross": cross, "y_sum": y_sum, "y_gram": y_gram}
    if shift.any():  # a version that knows no shift refuses the file
        arrays |= {"y_shift": shift}
    save_archive(path, FORMAT, header, arrays)


def read(path: str | PathLike[str], phi: FeatureMap) -> tuple[Moments, Place]:
    """Return the moments that `store` wrote, and how far a stream was taken in."""
    instance_of("phi", phi, FeatureMap)
    with open_archive(path, FORMAT) as archive:
        header = archive.header
        place = _check_place(header)
        if header["fingerprint"] != phi.fingerprint:
            made = shown(header["fingerprint"])
            raise StateMismatchError(f"{path} holds moments of another draw than {phi!r}: {made}")
        return _read_moments(archive, header, phi), place


def _check_place(header: Any) -> Place:
    """Return how far a stream was taken in, by a description that must be whole."""
    kinds = {"fingerprint": int, "n": int, "weighted": bool, "vector": bool, "products": str, "targets": int}
    kinds["place"] = list
    if not isinstance(header, dict) or {k: type(v) for k, v in header.items()} != kinds:
        raise FileFormatError(f"its description must have {', '.join(kinds)}; got {shown(header)}")
    place = [type(part) for part in header["place"]]
    if place != [int, int, str, str] or not {header["products"], header["place"][3]} <= {*PRODUCTS}:
        raise FileFormatError(f"its description holds values that are not allowed: {shown(header)}")
    if min(header["n"], header["targets"], *header["place"][:2]) < 0 or header["vector"] > header["targets"]:
        raise FileFormatError(f"its description holds sizes that are not allowed: {shown(header)}")
    return Place(*header["place"])


def _read_moments(archive: Archive, header: dict[str, Any], phi: FeatureMap) -> Moments:
    """Return the sums of an archive, which must be finite, of shapes that fit, and of some rows."""

    def take(name: str, *shape: int | None) -> Float64:
        return frozen(archive.array(name, ("float64",), shape))

    weight, s, c = take("weight", 1), take("s", phi.num_features), header["targets"]
    m = len(s)
    gram, cross, y_sum, y_gram = take("gram", m, m), np.zeros((m, 0)), np.zeros(0), np.zeros((0, 0))
    if c:
        cross, y_sum, y_gram = take("cross", m, c), take("y_sum", c), take("y_gram", c, c)
    shift = take("y_shift", c) if c and "y_shift" in archive else frozen(np.zeros(c))
    sums = {"s": s, "gram": gram, "cross": frozen(cross), "y_sum": frozen(y_sum), "y_gram": frozen(y_gram)}
    _check_bounds(header, float(weight[0]), sums)
    n, weighted, vector, products = (header[name] for name in ("n", "weighted", "vector", "products"))
    targets = Targets(sums["cross"], sums["y_sum"], sums["y_gram"], shift)
    return Moments(phi, n, float(weight[0]), weighted, s, gram, targets, vector, products)


def _check_bounds(header: dict[str, Any], weight: float, sums: dict[str, Float64]) -> None:
    """Raise where no rows have such sums, by Cauchy and Schwarz: |sum w a b|^2 <= sum w a^2 sum w b^2."""
    n, squares = header["n"], [np.diagonal(sums[name]) for name in ("gram", "y_gram")]
    fits = weight >= 0 and (header["weighted"] or weight == n) and all(np.all(each >= 0) for each in squares)
    if fits:
        # squares are of numbers times the root of a weight over that of the largest: those below tiny are lost
        lost = (n * float(np.finfo(header["products"]).tiny)) ** 0.5 * max(weight, 1.0) ** 0.5
        one, left, right = (ROUNDED * np.sqrt(each) + lost for each in (np.array(weight), *squares))
        pairs = {"s": (left, one), "y_sum": (right, one), "gram": (left, left), "cross": (left, right)}
        pairs["y_gram"] = right, right
        fits = all(
            np.all(np.abs(sums[name][i]) <= np.multiply.outer(a[i], b))
            for name, (a, b) in pairs.items()
            for i in strips(len(a), 1024)
        )
    if not fits:
        raise FileFormatError(f"its sums are of no {n} rows of weight {weight:g}")
