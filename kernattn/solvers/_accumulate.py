"""Moments of rows that come in blocks, resumed where a run was killed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, on_host
from kernattn._runtime.checks import checked_target, instance_of, one_of, positive_number, shown
from kernattn._runtime.deprecated import old_order
from kernattn._runtime.extras import bar
from kernattn.errors import EmptyInputError, KernattnError, ParameterError, StateMismatchError
from kernattn.features import FeatureMap
from kernattn.solvers._files import Place, read, store
from kernattn.solvers._moments import Moments, add_to
from kernattn.solvers._sums import PRODUCTS, Rows, check_rows, sum_rows

DIGEST, LAST_BLOCK = 20, 16  # bytes of a digest of all blocks; of the last one alone, as older checkpoints have it


@old_order(FeatureMap, "phi")
def accumulate(
    blocks: Iterable[Array | tuple[Array, ...]],
    phi: FeatureMap,
    *,
    checkpoint: str | PathLike[str] | None = None,
    every: float = 60.0,
    products: str = "float64",
    progress: bool | None = False,
    backend: str | None = None,
) -> Moments:
    r"""Return the moments of blocks of rows, :math:`\sum_{b} \sum_{i \in b} \phi(x_i) \phi(x_i)^T` and the others.

    Blocks are added in their order, one at a time. With `checkpoint`, what was added is written to a file from time to
    time, and once at the end. A call that finds the file passes over the blocks that are in it: given the same blocks
    it returns the same bits as one that was never interrupted on as many threads, and no row is counted twice or lost.
    A digest of all blocks passed over tells if they are others. A note of an error says which block it is about; what
    was added before is in the last checkpoint.

    Parameters
    ----------
    blocks : iterable
        Blocks x (n, d), or tuples (x, y) or (x, y, weights), as `moments` takes them; y may be None. A block of
        some thousand rows or more keeps the machine busy.
    phi : FeatureMap
        The map.
    checkpoint : str or PathLike, optional
        An .npz file, written whole or not at all.
    every : float
        Seconds between checkpoints.
    products : {"float64", "float32"}
        As in `moments`.
    progress : bool or None
        Show the number of rows on stderr; None shows it on a terminal only.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Raises
    ------
    StateMismatchError
        If the checkpoint is of another draw of the map, of other products, or of other blocks.
    FileFormatError
        If the checkpoint is damaged, or not one.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((1000, 3))
    >>> ka.solvers.accumulate((x[i : i + 100] for i in range(0, 1000, 100)), ka.features.elu1()).n
    1000
    """
    instance_of("phi", phi, FeatureMap)
    one_of("products", products, PRODUCTS)
    positive_number("every", every)
    given: object = blocks
    if not isinstance(given, Iterable) or hasattr(given, "shape"):
        raise ParameterError(f"blocks must be an iterable of blocks of rows; got {shown(given)}")
    path = None if checkpoint is None else checked_target("checkpoint", checkpoint)
    begin = Place(0, 0, "", products)
    total, place = (None, begin) if path is None or not path.exists() else _resume(path, phi, products)
    here, digest, saved = begin, blake2b(digest_size=DIGEST), monotonic()
    with bar("accumulate", progress, unit="row", unit_scale=True) as shown_rows:
        for i, block in enumerate(blocks):
            with _name_block(i):
                rows = check_rows(phi, *_split_block(block), products, backend)
                here = here._replace(blocks=i + 1, rows=here.rows + len(rows.y))
                if path is not None:  # now: whoever gives the next block may write over this one
                    _take_in(digest, rows)
                    here = here._replace(digest=digest.hexdigest())
                if here.blocks > place.blocks:
                    part = sum_rows(rows)
                    total = part if total is None else add_to(total, part)
                    if path is not None and monotonic() - saved > every:
                        store(total, here, path)
                        saved = monotonic()
            if here.blocks == place.blocks:
                _check_passed(here, place, rows)
            if shown_rows is not None:
                shown_rows.update(len(rows.y))
    if total is None:
        raise EmptyInputError("blocks must hold rows; there was no block")
    if here.blocks < place.blocks:
        raise StateMismatchError(f"the checkpoint holds {place.blocks} blocks; of these there were {here.blocks}")
    if path is not None and here.blocks > place.blocks:
        store(total, here, path)
    return total


def _split_block(block: Any) -> tuple[Any, Any, Any]:
    """Return x, y and weights of a block, None where there are none."""
    parts = block if isinstance(block, tuple) else (block,)
    if not 1 <= len(parts) <= 3:
        raise ParameterError(f"a block must be x, (x, y) or (x, y, weights); got a tuple of {len(parts)}")
    return (*parts, None, None)[:3]


@contextmanager
def _name_block(i: int) -> Iterator[None]:
    """Say in an error which block it is about."""
    try:
        yield
    except KernattnError as error:
        error.add_note(f"in block {i}, counted from 0")
        raise


def _resume(path: Path, phi: FeatureMap, products: str) -> tuple[Moments, Place]:
    """Return the sums of a checkpoint, and how far they go."""
    total, place = read(path, phi)
    if place.blocks == 0:
        raise StateMismatchError(f"{path} holds moments, but no place in a stream: it is no checkpoint")
    if place.products != products:
        raise StateMismatchError(f"{path} is of a stream whose products are {place.products}; got products={products}")
    return total, place


def _check_passed(here: Place, place: Place, rows: Rows) -> None:
    """Raise unless what is passed over is in the checkpoint, by the number of rows and by all that they hold."""
    digest = here.digest
    if len(place.digest) == 2 * LAST_BLOCK:
        last = blake2b(digest_size=LAST_BLOCK)
        _take_in(last, rows)
        digest = last.hexdigest()
    if here.rows != place.rows or digest != place.digest:
        raise StateMismatchError(
            f"the checkpoint holds {place.rows} rows in {place.blocks} blocks; those given are others, of "
            f"{here.rows} rows"
        )


def _take_in(digest: blake2b, rows: Rows) -> None:
    """Take a block's numbers into a digest, which tells them from others."""
    x = rows.x
    parts = (x.data, x.indices, x.indptr) if is_sparse(x) else (on_host("x", x),)
    for array in (*parts, rows.y, *(() if rows.weights is None else (rows.weights,))):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
