"""How a kernel is evaluated, in blocks of rows: its matrix, entries of it, and products with it."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any, final

import numpy as np

from kernattn._arrays.csr import as_floats, is_sparse
from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import Array, Float64, check_floating, namespace, placement
from kernattn._arrays.plain import on_plain
from kernattn._arrays.shapes import strips
from kernattn._runtime.checks import positive_integer
from kernattn.errors import DTypeError, EmptyInputError, ShapeError
from kernattn.kernels import _csr
from kernattn.kernels._rows import Rows, check_rows

BLOCK = 2**18  # entries of a kernel matrix that are computed at a time: they stay in a cache
COLUMNS = 2**10  # of a block of a matrix that is only multiplied


class Pairwise(ABC):
    """A function of two rows, which are scaled by `input_scale` first."""

    _takes_integers: bool = False  # whether bits and whole numbers are rows, as float32

    def input_scale(self, d: int) -> Float64:
        """Return the positive vector c (d,), float64, that scales inputs, x' = c x: ones unless a kernel has one."""
        return np.ones(positive_integer("d", d))

    @abstractmethod
    def _evaluate(self, rows: Rows) -> Array:
        """Return the kernel of scaled rows."""

    def _place(self, rows: Rows) -> Rows:
        """Return the rows, which a kernel of differences may move."""
        return rows

    @property
    def _in_one_pass(self) -> bool:
        """Is `_evaluate` of near rows one function of one measure, `Rows.of`, which a loop may write at once?"""
        return False

    def check_domain(self, name: str, x: Array) -> None:  # noqa: B027
        """Raise ParameterError, which calls x by the name, where a value lies outside of the kernel's domain.

        Most kernels take every number. Values of traced arrays cannot be looked at.
        """

    def _csr_rows(self, x: Any, y: Any) -> Callable[[slice], Array] | None:
        """Return what makes some rows of the matrix of CSR rows without dense ones; None where there is nothing."""
        return None

    def _log_scaled(self, rows: Rows) -> tuple[Array, Array]:
        """Return the kernel of all pairs (..., n, k) as values times e^log, log (..., n, 1), which no row overflows."""
        return self._of(rows), rows.xp.zeros_like(rows.x[..., :1])

    def _logs(self, rows: Rows) -> Array:
        """Return the logarithm of the kernel of all pairs (..., n, k), -inf where it is 0, if it is not signed."""
        xp, (values, log) = rows.xp, self._log_scaled(rows)
        return xp.where(values > 0, xp.log(xp.where(values > 0, values, xp.ones_like(values))) + log, -xp.inf)

    @final
    def _log_scaled_matrix(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return the kernel matrix of x (..., n, d) and y (..., k, d) so, of an accumulation dtype."""
        xp, rows = namespace(x=x, y=y), self._rows(x, y, cross=True)
        logs = []

        def parts() -> Iterator[Array]:
            for block in rows.blocks(BLOCK):
                part, log = self._log_scaled(block)
                logs.append(log)
                yield part

        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            values = _join_blocks(xp, parts(), rows.x.shape[-2])
        log = logs[0] if len(logs) == 1 else xp.concat(logs, axis=-2)
        return values, log

    @final
    def _of(self, rows: Rows) -> Array:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # a kernel may be beyond its dtype
            return self._place(rows).evaluate(self.input_scale(rows.dim), self._evaluate)

    @final
    def _floats(self, name: str, x: Any) -> Any:
        return as_floats(name, x) if self._takes_integers and x is not None else x

    @final
    def _rows(self, x: Array, y: Array | None, cross: bool) -> Rows:
        rows = check_rows(x, x if y is None else y, cross)
        self.check_domain("x", x)
        if y is not None:
            self.check_domain("y", y)
        return rows

    @final
    @on_plain
    @outside_graphs
    def __call__(self, x: Array, y: Array | None = None) -> Array:
        """Return the kernel matrix K_ij = k(x_i, y_j), computed in blocks of rows of x.

        Parameters
        ----------
        x : (..., n, d) array
            Rows, of a real floating dtype.
        y : (..., k, d) array, optional
            Other rows, of the library and dtype of x; leading axes broadcast. Without it y = x, and the diagonal is
            exactly `diag` of x. Either may be a CSR matrix of SciPy, of which blocks of 2^21 numbers are made dense
            where no loop over entries is faster.

        Returns
        -------
        (..., n, k) array
            The matrix, of the kind, device and dtype of x.

        Raises
        ------
        ShapeError
            If the last axes differ, the leading ones do not broadcast, or an axis is empty.
        DTypeError
            If x or y is no array of a real floating dtype, or their dtypes differ.
        MixedLibraryError
            If x and y come from two libraries or devices.
        ParameterError
            If a value lies outside of the kernel's domain.
        """
        x, y = self._floats("x", x), self._floats("y", y)
        if is_sparse(x) or is_sparse(y):
            return _csr.matrix(self, x, y, self._csr_rows)
        rows = self._rows(x, y, cross=True)
        matrix = self._matrix(rows, x.dtype)
        return matrix if y is not None else _set_diagonal(rows.xp, matrix, self._diagonal(rows, x.dtype))

    @final
    def _matrix(self, rows: Rows, dtype: Any) -> Array:
        """Return the matrix (..., n, k): at once where a loop writes it and nothing else, or else in blocks."""
        xp, at_once = rows.xp, self._in_one_pass and rows.has_loop
        near = self._place(rows).near(self.input_scale(rows.dim)) if at_once else None
        if near is not None:
            return self._evaluate(replace(near, dtype=dtype))
        parts = (xp.astype(self._of(block), dtype, copy=False) for block in rows.blocks(BLOCK))
        with np.errstate(over="ignore", under="ignore"):
            return _join_blocks(xp, parts, rows.x.shape[-2])

    @final
    def _diagonal(self, rows: Rows, dtype: Any) -> Array:
        with np.errstate(over="ignore", under="ignore"):
            return rows.xp.astype(self._of(rows.own()), dtype, copy=False)  # (..., n)

    @final
    @on_plain
    @outside_graphs
    def matmul(self, x: Array, y: Array | None, v: Array) -> Array:
        r"""Return K v, :math:`o_i = \sum_j k(x_i, y_j)\, v_j`, in blocks: the matrix K is never held.

        Where the kernel is one function of a product or a distance (Gaussian, Laplacian, Polynomial, Softmax, and
        Matern of order 1/2, 3/2 and 5/2) a compiled loop multiplies entries in cache; without y each is computed once
        for both of its rows. Sums and multiples of kernels are products of their members. Errors of entries are those
        of the matrix; with more than 16 axes, exponents of kernels of a squared distance may err by 16 epsilons in
        float32, and by 1,024 in float64.

        Parameters
        ----------
        x : (n, d) array
            Rows, of a real floating dtype.
        y : (k, d) array or None
            Other rows, of the library and dtype of x; None is y = x.
        v : (k,) or (k, c) array
            What the matrix is multiplied by, of that library and dtype.

        Returns
        -------
        (n,) or (n, c) array
            The product, of the kind, device and dtype of x.

        Raises
        ------
        ShapeError, EmptyInputError, DTypeError, MixedLibraryError, ParameterError
            Before any work, if an argument does not fit, or a value lies outside of the kernel's domain.

        Examples
        --------
        >>> import numpy as np
        >>> import kernattn as ka
        >>> x = np.array([[0.0], [1.0], [3.0]])
        >>> ka.kernels.Laplacian().matmul(x, None, np.ones(3)).round(4)
        array([1.4177, 1.5032, 1.1851])
        """
        x, y = self._floats("x", x), self._floats("y", y)
        if is_sparse(x) or is_sparse(y):
            return _csr.product(self.matmul, x, y, v, self._csr_rows)
        namespace(x=x, v=v)
        rows = self._rows(x, y, cross=True)
        _check_values(x, x if y is None else y, v)
        values = rows.xp.astype(v, rows.x.dtype, copy=False)
        product = self._multiply(rows, values[:, None] if v.ndim == 1 else values, y is None)
        product = rows.xp.astype(product, x.dtype, copy=False)
        return product[:, 0] if v.ndim == 1 else product

    def _multiply(self, rows: Rows, v: Array, symmetric: bool) -> Array:
        """Return K v, (n, c)."""
        near = self._place(rows).near(self.input_scale(rows.dim)) if self._in_one_pass and rows.has_loop else None
        if near is not None:
            return self._evaluate(replace(near, values=v))
        xp, n, k = rows.xp, rows.x.shape[0], v.shape[0]
        diagonal = self._diagonal(rows, rows.x.dtype) if symmetric else None
        cuts = strips(k, COLUMNS)
        columns = [(replace(rows, y=rows.y[cut, :], kept={}), v[cut, :], cut.start) for cut in cuts]
        parts = []
        for here in strips(n, BLOCK // min(k, COLUMNS)):
            part = 0.0
            for some, values, j in columns:
                matrix = self._of(some.block(here))
                if diagonal is not None:
                    matrix = _set_diagonal(xp, matrix, diagonal[here], here.start - j)
                part = part + xp.matmul(matrix, values)
            parts.append(part)
        return parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)

    @final
    @on_plain
    @outside_graphs
    def pairs(self, x: Array, y: Array) -> Array:
        """Return k(x_i, y_i) of rowwise pairs, (..., d), (..., d) -> (...), of the kind, device and dtype of x.

        Leading axes broadcast; the errors are those of the matrix. CSR rows (n, d) have others of their shape.
        """
        x, y = self._floats("x", x), self._floats("y", y)
        if is_sparse(x) or is_sparse(y):
            return _csr.pairs(self.pairs, x, y)
        rows = self._rows(x, y, cross=False)
        values = self._of(rows)
        values = np.asarray(values) if isinstance(values, np.generic) else values  # PyTorch's `asarray` drops gradients
        with np.errstate(over="ignore", under="ignore"):
            return rows.xp.astype(values, x.dtype, copy=False)

    @final
    @on_plain
    @outside_graphs
    def diag(self, x: Array) -> Array:
        """Return k(x_i, x_i), the matrix's diagonal, (..., n, d) -> (..., n); the errors are those of the matrix."""
        x = self._floats("x", x)
        if is_sparse(x):
            return _csr.diagonal(self.diag, x)
        return self._diagonal(self._rows(x, None, cross=True), x.dtype)


def _check_values(x: Array, y: Array, v: Array) -> None:
    if x.ndim != 2 or y.ndim != 2:
        raise ShapeError(f"x and y must be (n, d) and (k, d); got shapes {tuple(x.shape)} and {tuple(y.shape)}")
    if v.ndim not in (1, 2) or v.shape[0] != y.shape[0]:
        raise ShapeError(f"v must be ({y.shape[0]},) or ({y.shape[0]}, c); got shape {tuple(v.shape)}")
    if 0 in tuple(v.shape):
        raise EmptyInputError(f"v must have no empty axis; got shape {tuple(v.shape)}")
    if check_floating("v", v) != check_floating("x", x):
        raise DTypeError(f"x and v must have one dtype; got {x.dtype} and {v.dtype}")


def _join_blocks(xp: ModuleType, parts: Iterator[Array], n: int) -> Array:
    """Return the matrix (..., n, k) of blocks of its rows."""
    first = next(parts)
    if first.shape[-2] == n:
        return first
    if not isinstance(first, np.ndarray):
        return xp.concat([first, *parts], axis=-2)
    matrix, low = np.empty((*first.shape[:-2], n, first.shape[-1]), first.dtype), 0
    for part in itertools.chain([first], parts):  # each in turn, where the one before it lay in the cache
        matrix[..., low : low + part.shape[-2], :] = part
        low += part.shape[-2]
    return matrix


def _set_diagonal(xp: ModuleType, matrix: Array, entries: Array, begin: int = 0) -> Array:
    """Return a matrix (..., n, k) with the entries (..., n) on its diagonal that begins at column `begin`."""
    n, k = matrix.shape[-2:]
    if isinstance(matrix, np.ndarray):
        own = np.arange(max(0, -begin), min(n, k - begin))
        matrix[..., own, begin + own] = entries[..., own]
        return matrix
    i, j = xp.arange(n, **placement(matrix)), xp.arange(k, **placement(matrix))
    return xp.where(i[:, None] + begin == j[None, :], entries[..., None], matrix)
