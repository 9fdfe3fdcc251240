"""The decoder of images that attends along one axis at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from numpy.typing import NDArray

from kernattn._arrays.namespaces import INTEGERS, Array, dtype_name, namespace, placement
from kernattn._runtime.checks import instance_of, whole_number
from kernattn._runtime.random import RNG
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.transformer._attention import HeadAttention, Kind, resolve_attention
from kernattn.transformer._checks import check_indices
from kernattn.transformer._config import Config
from kernattn.transformer._ends import apply_head
from kernattn.transformer._layers import apply_layer
from kernattn.transformer._params import check_params, draw_params, layer_shapes, shapes
from kernattn.transformer._parts import Params, norm
from kernattn.transformer._positions import position_rows, take_rows


def axial_shapes(config: Config, outer: int) -> dict[str, tuple[int, ...]]:
    """Return the name and the shape of every parameter of `axial_decoder`.

    Parameters
    ----------
    config : Config
        Sizes and choices, with tokens, logits of tokens and a grid (h, w); its layers are the inner ones.
    outer : int
        Pairs of outer layers, along rows and along columns; 0 for an inner decoder alone.

    Returns
    -------
    dict
        Names and shapes.
    """
    _check(config)
    named = shapes(config)
    for i in range(whole_number("outer", outer)):
        for axis in ("rows", "columns"):
            named.update(layer_shapes(config, f"outer.{i}.{axis}"))
    return named


def axial_params(config: Config, outer: int, rng: RNG = None, dtype: str = "float32") -> dict[str, NDArray[Any]]:
    """Return parameters of `axial_decoder` to begin training with, as `initial_params` draws them.

    Parameters
    ----------
    config : Config
        As in `axial_shapes`.
    outer : int
        As in `axial_shapes`.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the draw.
    dtype : {"float32", "float64"}
        Of the arrays.

    Returns
    -------
    dict of numpy.ndarray
        The parameters.
    """
    return draw_params(axial_shapes(config, outer), config, rng, dtype)


def axial_decoder(params: Params, config: Config, x: Array, *, attention: Kind | Sequence[Kind] = None) -> Array:
    r"""Return logits of every pixel given those before it, by attention along rows and along columns in turn.

    Ho, Kalchbrenner, Weissenborn and Salimans (2019). Outer layers see all rows above: u = Embed(x) + pos, then for
    each pair attention along rows, unmasked, and along columns, masked. Inner layers see the row, masked:
    h = ShiftDown(u) + ShiftRight(Embed(x)) + pos. A pixel depends on exactly the earlier ones in raster order, and
    each layer costs O(h w (h + w)). Without outer layers h lacks u, and a pixel depends on its own row alone.

    Parameters
    ----------
    params : dict of arrays
        The parameters, by the names of `axial_shapes`; how many outer layers there are follows from them.
    config : Config
        As in `axial_shapes`.
    x : (..., h, w) integer array
        Images of tokens.
    attention : None, FeatureMap or callable, or a list of them
        How the heads of all layers attend, or those of each inner layer; outer ones attend as the first inner one.

    Returns
    -------
    (..., h, w, vocab) array
        Logits.

    Raises
    ------
    DTypeError, ShapeError, ParameterError, MixedLibraryError
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.transformer import Config, axial_decoder, axial_params
    >>> config = Config(dim=8, layers=1, heads=2, vocab=5, positions="axial", grid=(3, 4))
    >>> axial_decoder(axial_params(config, 2, rng=0), config, np.zeros((1, 3, 4), int)).shape
    (1, 3, 4, 5)
    """
    _check(config)
    outer = len({name.split(".")[1] for name in params if name.startswith("outer.")})
    beside = check_params(params, config, axial_shapes(config, outer))
    how = resolve_attention(attention, config.layers)
    xp, grid = namespace(params=beside, x=x), config.grid or (0, 0)
    if dtype_name(x) not in INTEGERS:
        raise DTypeError(f"x must be integers (..., {grid[0]}, {grid[1]}); got {dtype_name(x)}{tuple(x.shape)}")
    if tuple(x.shape[-2:]) != grid:
        raise ShapeError(f"x must be (..., {grid[0]}, {grid[1]}), the grid of the config; got shape {tuple(x.shape)}")
    check_indices("x", x, config.vocab or 0)

    places = xp.reshape(xp.arange(grid[0] * grid[1], **placement(x)), grid)
    where = position_rows(params, config, places, beside)
    seen = take_rows(params["embed.tokens"], x)
    rows = _shift(seen, -2) + where
    if outer:
        rows = rows + _shift(_apply_outer(params, config, seen + where, outer, how[0]), -3)
    for i in range(config.layers):
        rows = apply_layer(params, config, f"layers.{i}", rows, partial(how[i].attend, mask=None, causal=True))
    return apply_head(params, config, norm(params, config, "norm", rows) if config.norm_first else rows)


def _apply_outer(params: Params, config: Config, rows: Array, outer: int, how: HeadAttention) -> Array:
    """Return rows (..., h, w, dim) of which each has seen its own row of pixels and those above."""
    xp, attend = namespace(rows=rows), partial(how.attend, mask=None)
    for i in range(outer):
        rows = apply_layer(params, config, f"outer.{i}.rows", rows, partial(attend, causal=False))
        columns = xp.moveaxis(rows, -3, -2)
        columns = apply_layer(params, config, f"outer.{i}.columns", columns, partial(attend, causal=True))
        rows = xp.moveaxis(columns, -2, -3)
    return rows


def _shift(rows: Array, axis: int) -> Array:
    """Shift an array by one along an axis, zeros first."""
    xp = namespace(rows=rows)
    first = xp.zeros_like(rows[..., :1, :] if axis == -2 else rows[..., :1, :, :])
    rest = rows[..., :-1, :] if axis == -2 else rows[..., :-1, :, :]
    return xp.concat([first, rest], axis=axis)


def _check(config: Config) -> None:
    instance_of("config", config, Config)
    more = config.gated or config.experts
    plain = config.vocab is not None and config.output in ("tokens", "tied") and not config.types
    if not plain or config.grid is None or len(config.grid) != 2 or config.cross or config.embedding_norm or more:
        raise ParameterError(
            "an axial decoder needs tokens, their logits and a grid (h, w), without types, cross attention, a norm of "
            f"embeddings, gated layers and experts; got {config!r}"
        )
