"""The layers, for whole sequences and single tokens alike: what attends is handed in."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from kernattn._arrays.namespaces import Array, namespace
from kernattn.transformer._attention import HeadAttention, Memory
from kernattn.transformer._config import Config
from kernattn.transformer._experts import Experts
from kernattn.transformer._gated import Mix, mix
from kernattn.transformer._members import Gated
from kernattn.transformer._mixture_of_experts import mixture_of_experts
from kernattn.transformer._parts import Params, feed_forward, linear, norm, sigmoid
from kernattn.transformer._positions import Rotations, rotate

Attending: TypeAlias = Callable[[int, Array, Array, Array], Array]  # layer, q, k, v -> out
Crossing: TypeAlias = Callable[[int, Array], Array]  # layer, q -> out
Mixing: TypeAlias = Callable[[int, Mix], Array]  # layer, what takes its memory before and a mask -> out


class Means(NamedTuple):
    """How layers look at other rows."""

    attending: Attending
    crossing: Crossing
    mixing: Mixing


def apply_layers(params: Params, config: Config, rows: Array, by: Rotations | None, means: Means) -> Array:
    """Return the rows after all layers."""
    for i in range(config.layers):
        across = partial(means.crossing, i) if config.cross else None
        look = partial(means.attending if config.mixer(i) is None else means.mixing, i)
        rows = apply_layer(params, config, f"layers.{i}", rows, look, by, across, config.mixer(i), config.experts_of(i))
    return norm(params, config, "norm", rows) if config.norm_first else rows


def apply_layer(
    params: Params,
    config: Config,
    name: str,
    rows: Array,
    look: Callable[..., Array],
    by: Rotations | None = None,
    across: Callable[[Array], Array] | None = None,
    mixer: Gated | None = None,
    experts: Experts | None = None,
) -> Array:
    """Return the rows (..., n, dim) after the layer of that name, which looks at others by attention or by a mixer."""
    parts: dict[str, Callable[[Array], Array]] = {}
    if mixer is None:
        parts["attention"] = partial(_attend_self, params, config, f"{name}.attention", by, look)
    else:
        parts["gated"] = lambda x: look(partial(mix, params, config.eps, mixer, f"{name}.gated", x))
    if across is not None:
        parts["cross"] = partial(_attend_cross, params, config, f"{name}.cross", across)
    if experts is not None:
        parts["feed_forward"] = partial(mixture_of_experts, params, experts, f"{name}.feed_forward")
    elif config.hidden_width:
        parts["feed_forward"] = partial(feed_forward, params, config, f"{name}.feed_forward")
    for part, function in parts.items():
        of = f"{name}.{part}.norm"
        if config.norm_first:
            rows = rows + function(norm(params, config, of, rows))
        else:
            rows = norm(params, config, of, rows + function(rows))
    return rows


def _attend_self(
    params: Params, config: Config, name: str, by: Rotations | None, attend: Callable[..., Array], x: Array
) -> Array:
    q = split_heads(linear(params, f"{name}.q", x), config.heads)
    k = split_heads(linear(params, f"{name}.k", x), config.key_heads)
    v = split_heads(linear(params, f"{name}.v", x), config.key_heads)
    if config.head_norm:
        q, k = norm(params, config, f"{name}.q_norm", q), norm(params, config, f"{name}.k_norm", k)
    q, k = rotate(q, by), rotate(k, by)
    out = attend(_group_queries(config, q), *(add_group_axis(config, each) for each in (k, v)))
    rows = _join_heads(config, out)
    if config.head_gate:
        rows = rows * sigmoid(linear(params, f"{name}.gate", x))
    return linear(params, f"{name}.out", rows)


def _attend_cross(params: Params, config: Config, name: str, attend: Callable[[Array], Array], x: Array) -> Array:
    q = _group_queries(config, split_heads(linear(params, f"{name}.q", x), config.heads))
    return linear(params, f"{name}.out", _join_heads(config, attend(q)))


def split_heads(x: Array, heads: int) -> Array:
    """Return rows (..., n, h d) as heads (..., h, n, d)."""
    xp = namespace(x=x)
    return xp.moveaxis(xp.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads)), -2, -3)


def _group_queries(config: Config, q: Array) -> Array:
    """Return queries (..., h, n, d) as (..., h / g, g, n, d) where heads of keys serve groups of g."""
    if config.key_heads == config.heads:
        return q
    *lead, heads, n, d = q.shape
    return namespace(q=q).reshape(q, (*lead, config.key_heads, heads // config.key_heads, n, d))


def add_group_axis(config: Config, k: Array) -> Array:
    """Return keys, values or masks (..., h, n, d) as (..., h, 1, n, d) where their heads serve groups."""
    return k if config.key_heads == config.heads else k[..., None, :, :]


def _join_heads(config: Config, out: Array) -> Array:
    """Return heads (..., h, n, d), or groups of them, as rows (..., n, h d)."""
    xp = namespace(out=out)
    if config.key_heads != config.heads:
        *lead, kv, group, n, d = out.shape
        out = xp.reshape(out, (*lead, kv * group, n, d))
    out = xp.moveaxis(out, -3, -2)
    return xp.reshape(out, (*out.shape[:-2], out.shape[-2] * out.shape[-1]))


def mask_heads(config: Config, mask: Array | None) -> Array | None:
    """Return a mask (..., n) as that of heads, (..., 1, n) or (..., 1, 1, n)."""
    if mask is None:
        return None
    return mask[..., None, :] if config.key_heads == config.heads else mask[..., None, None, :]


def memory_reader(how: Sequence[HeadAttention], memory: Memory | None) -> Crossing:
    """Return the function of a layer and its queries that attends to a memory."""

    def crossing(layer: int, q: Array) -> Array:
        assert memory is not None
        return how[layer].read(memory.layers[layer], q)

    return crossing
