"""What stands before the first layer and after the last one."""

from kernattn._arrays.namespaces import Array, namespace, placement, zero_masked
from kernattn.errors import ParameterError, ShapeError
from kernattn.transformer._checks import check_indices
from kernattn.transformer._config import Config
from kernattn.transformer._halves import multiply
from kernattn.transformer._parts import Params, linear, norm
from kernattn.transformer._positions import position_rows, take_rows


def wide_integers(x: Array) -> Array:
    """Return integers in the usual dtype of their library: counts of uint8 would begin anew after 255."""
    xp = namespace(x=x)
    return xp.astype(x, xp.arange(1, **placement(x)).dtype, copy=False)


def embed(params: Params, config: Config, x: Array, positions: Array, types: Array | None) -> Array:
    """Return the rows (..., n, dim) that the first layer gets."""
    rows = linear(params, "embed.inputs", x) if config.vocab is None else take_rows(params["embed.tokens"], x)
    if config.types:
        kinds = namespace(x=x).zeros_like(positions) if types is None else types
        namespace(x=x, types=kinds)
        check_indices("types", kinds, config.types)
        if kinds.shape != positions.shape:
            raise ShapeError(f"types must be as many as the tokens; got shapes {kinds.shape} and {positions.shape}")
        rows = rows + take_rows(params["embed.types"], kinds)
    elif types is not None:
        raise ParameterError("types are for a config that has some; got types with types=0")
    where = position_rows(params, config, positions, rows)
    rows = rows if where is None else rows + where
    return norm(params, config, "embed.norm", rows) if config.embedding_norm else rows


def apply_head(params: Params, config: Config, rows: Array) -> Array:
    """Return logits of rows, or the rows where the config has no output."""
    if config.output is None:
        return rows
    if config.output == "tied":
        return multiply(rows, params["embed.tokens"].T)
    return linear(params, "output", rows)


def mean_rows(rows: Array, mask: Array | None) -> Array:
    """Return the mean (..., dim) of the rows (..., n, dim) whose mask is True."""
    xp = namespace(rows=rows)
    if mask is None:
        return xp.mean(rows, axis=-2)
    number = xp.sum(xp.astype(mask, rows.dtype)[..., None], axis=-2)
    return xp.sum(zero_masked(rows, mask), axis=-2) / xp.where(number > 0, number, xp.ones_like(number))


def count_positions(config: Config, x: Array, mask: Array | None = None) -> Array:
    """Return positions (..., n) of whole sequences: 0, 1, ... from the first token that is there, if not of a grid."""
    lead = x.shape if config.vocab is not None else x.shape[:-1]
    xp = namespace(x=x)
    positions = xp.broadcast_to(xp.arange(lead[-1], **placement(x)), tuple(lead))
    if mask is None or config.grid is not None:
        return positions
    first = xp.argmax(xp.astype(mask, xp.int32), axis=-1, keepdims=True)
    return xp.clip(positions - first, min=0)
