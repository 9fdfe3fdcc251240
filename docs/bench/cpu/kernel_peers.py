"""Peers of kernel matrices: whole functions of scikit-learn, and the fewest passes of NumPy, SciPy and torch.

Where a kernel is a function of a product, both arrays get columns whose product does the rest: one product a block of
rows, then one function in place. Rows are not centred, which is unsafe far from zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from bench.cpu.peers import have, torch_of
from kernattn._runtime.parallel import threads
from kernattn.bench._clock import Call

BLOCK = 256  # rows of a block of products
TILES = {8: (256, 512), 512: (512, 1024)}  # rows and columns of a block that is multiplied, by the number of axes
SIDE = 2048  # bytes of a row of a block of a symmetric product
SUMS = 32  # rows of a block of distances, which stay in cache over all axes

_Factors = Callable[[], tuple[Any, Any]]
_Entries = Callable[[Any, Any, Any], Any]  # of rows, of columns, and where entries go


def gaussian(x: Any, y: Any) -> dict[str, Call]:
    """Return peers of exp(-|x - y|^2 / 2 d), by name."""
    gamma, factors = 0.5 / x.shape[1], partial(_exponents, x, y)
    calls = _of_sklearn("rbf", x, y, gamma=gamma) | {"NumPy, lean": partial(_by_numpy, factors, _exponential)}
    if have("torch"):
        calls |= {"torch, lean": _by_torch(factors, lambda u: u.exp_(), x)}
    return calls


def gaussian_matrix(x: Any, y: Any) -> Any:
    """Return exp(-|x - y|^2 / 2 d)."""
    return _by_numpy(partial(_exponents, x, y), _exponential)


def gaussian_products(x: Any, y: Any, v: Any) -> dict[str, Call]:
    """Return peers of the product of exp(-|x - y|^2 / 2 d) and v, by name."""
    calls = {"NumPy, lean": partial(gaussian_product, x, y, v)}
    if have("torch"):
        torch, _ = torch_of(x)

        def entries(block: Any, right: Any, out: Any) -> Any:
            a, b, u = map(torch.from_numpy, (block, right, out))
            torch.mm(a, b, out=u).exp_()
            return out

        calls["torch, lean"] = torch.inference_mode()(partial(gaussian_product, x, y, v, entries))
    return calls


def gaussian_product(x: Any, y: Any, v: Any, entries: _Entries | None = None) -> Any:
    """Return the product of exp(-|x - y|^2 / 2 d) and v: a block in cache, two products and an exponential in place."""
    out = np.zeros((len(x), v.shape[1]), x.dtype)
    for rows, columns, u in _blocks(x, y, entries or _entries):
        out[rows] += u @ v[columns]
        if y is x and columns != rows:
            out[columns] += u.T @ v[rows]
    return out


def gaussian_sum(x: Any, y: Any) -> float:
    """Return the sum of exp(-|x - y|^2 / 2 d) over all pairs."""
    return sum((1 + (y is x and columns != rows)) * float(np.sum(u)) for rows, columns, u in _blocks(x, y, _entries))


def _entries(block: Any, right: Any, out: Any) -> Any:
    return np.exp(np.matmul(block, right, out=out), out=out)


def _blocks(x: Any, y: Any, entries: _Entries) -> Iterator[tuple[slice, slice, Any]]:
    """Yield blocks of exp(-|x - y|^2 / 2 d), all in one room; where y is x, those on the diagonal and beyond it."""
    a, b = _exponents(x, y)
    same = y is x
    height, width = 2 * [SIDE // x.itemsize] if same else TILES[min(TILES, key=lambda d: abs(d - x.shape[1]))]
    across = [np.ascontiguousarray(b[j : j + width].T) for j in range(0, len(b), width)]
    room = np.empty(height * width, x.dtype)
    for i in range(0, len(a), height):
        block = a[i : i + height]
        for j in range(i if same else 0, len(b), width):
            right = across[j // width]
            u = room[: len(block) * right.shape[1]].reshape(len(block), -1)
            yield slice(i, i + height), slice(j, j + width), entries(block, right, u)


def _exponents(x: Any, y: Any) -> tuple[Any, Any]:
    """Return arrays whose product is -|x - y|^2 / 2 d."""
    gamma = x.dtype.type(0.5 / x.shape[1])
    a, b = (-gamma * np.einsum("ij,ij->i", z, z)[:, None] for z in (x, y))
    return np.hstack((2 * gamma * x, a, np.ones_like(a))), np.hstack((y, np.ones_like(b), b))


def polynomial(x: Any, y: Any) -> dict[str, Call]:
    """Return peers of (x y / d + 1)^3, by name; scikit-learn takes a power, slower than products."""
    gamma = x.dtype.type(1 / x.shape[1])

    def factors() -> tuple[Any, Any]:
        a, b = (np.ones((len(z), 1), z.dtype) for z in (x, y))
        return np.hstack((gamma * x, a)), np.hstack((y, b))

    calls = _of_sklearn("polynomial", x, y, degree=3, gamma=float(gamma), coef0=1.0)
    square = np.empty((BLOCK, len(y)), x.dtype)
    calls |= {"NumPy, lean": partial(_by_numpy, factors, partial(_cube, square))}
    if have("torch"):
        calls |= {"torch, lean": _by_torch(factors, lambda u: u.pow_(3), x)}
    return calls


def laplacian(x: Any, y: Any) -> dict[str, Call]:
    """Return peers of exp(-|x - y|_1 / d), by name; scikit-learn's and SciPy's give float64 for float32."""
    calls = _of_sklearn("laplacian", x, y, gamma=1 / x.shape[1])
    if have("scipy"):
        calls["SciPy's cdist, in place"] = partial(_by_cdist, import_module("scipy.spatial.distance").cdist, x, y)
    if have("torch"):
        calls["torch, lean"] = (_torch_laplacian if x.dtype == np.float32 else _torch_cdist)(x, y)
    return calls


def _of_sklearn(metric: str, x: Any, y: Any, **parameters: float) -> dict[str, Call]:
    """Return scikit-learn's function; its columns are shared among as many threads as ours take."""
    if not have("sklearn"):
        return {}
    function = import_module("sklearn.metrics.pairwise").pairwise_kernels
    call = partial(function, x, y, metric=metric, n_jobs=threads(), **parameters)
    return {f"scikit-learn's {metric}_kernel": call}


def _exponential(u: Any) -> None:
    np.exp(u, out=u)


def _cube(room: Any, u: Any) -> None:
    u *= np.multiply(u, u, out=room[: len(u)])


def _by_numpy(factors: _Factors, function: Callable[[Any], None]) -> Any:
    a, b = factors()
    out = np.empty((len(a), len(b)), a.dtype)
    for low in range(0, len(a), BLOCK):
        function(np.matmul(a[low : low + BLOCK], b.T, out=out[low : low + BLOCK]))
    return out


def _room(torch: Any, x: Any, y: Any) -> Any:
    """Return a new tensor in NumPy's memory, which asks for large pages: torch's own costs a fault every 4096 bytes."""
    return torch.from_numpy(np.empty((len(x), len(y)), x.dtype))


def _by_torch(factors: _Factors, function: Callable[[Any], Any], x: Any) -> Call:
    torch, _ = torch_of(x)

    def call() -> Any:
        a, b = factors()
        out = _room(torch, a, b)
        a, b = torch.from_numpy(a), torch.from_numpy(b).t()
        for low in range(0, len(a), BLOCK):
            function(torch.mm(a[low : low + BLOCK], b, out=out[low : low + BLOCK]))
        return out

    return torch.inference_mode()(call)


def _by_cdist(cdist: Callable[..., Any], x: Any, y: Any) -> Any:
    out = cdist(x, y, "cityblock")
    out *= -1 / x.shape[1]
    return np.exp(out, out=out)


def _torch_cdist(x: Any, y: Any) -> Call:
    """Distances of a block of rows, which stay in cache for what is left to do."""
    torch, (rows, columns) = torch_of(x, y)

    def call() -> Any:
        out = _room(torch, x, y)
        for low in range(0, len(rows), SUMS):
            block = torch.cdist(rows[low : low + SUMS], columns, p=1).mul_(-1 / x.shape[1])
            torch.exp(block, out=out[low : low + SUMS])
        return out

    return torch.inference_mode()(call)


def _torch_laplacian(x: Any, y: Any) -> Call:
    """-|x - y| is 2 min(x, y) - x - y: two passes an axis over a block in cache; in float32 faster than `cdist`."""
    torch, (rows, columns) = torch_of(x, y)
    scale = 2 / x.shape[1]

    def call() -> Any:
        out = _room(torch, x, y)
        a, b = rows * scale, (columns * scale).t().contiguous()
        of_rows, of_columns = a.sum(1, keepdim=True).mul_(-0.5), b.sum(0).mul_(-0.5)
        for low in range(0, len(a), SUMS):
            block = torch.add(of_rows[low : low + SUMS], of_columns, out=out[low : low + SUMS])
            least = torch.empty_like(block)
            for axis, of_axis in zip(a[low : low + SUMS].t().contiguous().unsqueeze(-1), b, strict=True):
                block.add_(torch.minimum(axis, of_axis, out=least))
            block.exp_()
        return out

    return torch.inference_mode()(call)
