"""Parameters of a transformer: a plain dictionary of arrays, (in, out) where they multiply rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, check_floating, namespace
from kernattn._runtime.checks import instance_of, one_of, shown
from kernattn._runtime.random import RNG, generator
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.transformer._config import Config
from kernattn.transformer._experts import Experts
from kernattn.transformer._halves import DTYPES, cast, has_16_bits, host_floats
from kernattn.transformer._members import Gated


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Return the name and the shape of every parameter, in order of use.

    Parameters
    ----------
    config : Config
        Sizes and choices.

    Returns
    -------
    dict
        Names and shapes.

    Examples
    --------
    >>> from kernattn.transformer import Config, shapes
    >>> list(shapes(Config(dim=8, layers=1, heads=2, vocab=5, positions=None, bias=False)))[:3]
    ['embed.tokens', 'layers.0.attention.norm.scale', 'layers.0.attention.q.weight']
    """
    instance_of("config", config, Config)
    return dict(each_shape(config))


def each_shape(c: Config) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the names and shapes of parameters one by one: the config of a file may claim any number of layers."""
    if c.vocab is not None:
        yield "embed.tokens", (c.vocab, c.dim)
    else:
        yield from _linear(c, "embed.inputs", c.inputs or 0, c.dim)
    if c.positions == "learnt":
        yield "embed.positions", (c.length or 0, c.dim)
    for axis, size in enumerate(c.grid or ()):
        yield f"embed.positions.{axis}", (size, c.dim)
    if c.types:
        yield "embed.types", (c.types, c.dim)
    if c.embedding_norm:
        yield from _norm(c, "embed.norm")
    for i in range(c.layers):
        yield from layer_shapes(c, f"layers.{i}", c.mixer(i), c.experts_of(i))
    if c.norm_first:
        yield from _norm(c, "norm")
    if c.output == "tokens":
        yield from _linear(c, "output", c.dim, c.vocab or 0)
    if c.output == "classes":
        yield from _linear(c, "output", c.dim, c.classes or 0)


def layer_shapes(
    c: Config, name: str, mixer: Gated | None = None, experts: Experts | None = None
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the parameters of a layer."""
    if mixer is not None:
        yield from _gated(c, mixer, f"{name}.gated")
    else:
        yield from _attention(c, f"{name}.attention")
        if c.head_gate:
            yield from _linear(c, f"{name}.attention.gate", c.dim, c.heads * c.head_width)
        for part in "qk" if c.head_norm else "":
            yield from _norm(c, f"{name}.attention.{part}_norm", c.head_width)
    if c.cross:
        yield from _attention(c, f"{name}.cross")
    if experts is not None:
        yield from _experts(c, experts, f"{name}.feed_forward")
    elif c.hidden_width:
        yield from _feed_forward(c, f"{name}.feed_forward")


def _attention(c: Config, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _norm(c, f"{name}.norm")
    for part, heads in (("q", c.heads), ("k", c.key_heads), ("v", c.key_heads)):
        yield from _linear(c, f"{name}.{part}", c.dim, heads * c.head_width)
    yield from _linear(c, f"{name}.out", c.heads * c.head_width, c.dim)


def _gated(c: Config, m: Gated, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _norm(c, f"{name}.norm")
    for part, columns in (("q", m.keys), ("k", m.keys), ("v", m.values)):
        yield from _linear(c, f"{name}.{part}", c.dim, columns)
    if m.span:
        yield f"{name}.conv.weight", (m.span, m.channels)
        if m.conv_bias:
            yield f"{name}.conv.bias", (m.channels,)
    if (columns := m.decays) > 0:
        if m.decay_rank:
            yield f"{name}.decay.low.weight", (c.dim, m.decay_rank)
        yield f"{name}.decay.weight", (m.decay_rank or c.dim, columns)
        yield f"{name}.decay.bias", (columns,)
        if m.kind.rate:
            yield f"{name}.decay.log_rate", (m.heads if m.kind.decay == "head" else m.groups,)
    if m.kind.erases:
        yield from _linear(c, f"{name}.beta", c.dim, m.heads)
    if m.kind.state_space:
        yield f"{name}.skip", (m.heads,)
    if m.gate_rank:
        yield f"{name}.gate.low.weight", (c.dim, m.gate_rank)
    if m.kind.gate is not None:
        yield from _linear(c, f"{name}.gate", m.gate_rank or c.dim, m.values)
    yield f"{name}.out_norm.scale", (m.values if m.kind.gate_first else m.value_dim,)
    yield from _linear(c, f"{name}.out", m.values, c.dim)


def _feed_forward(c: Config, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _norm(c, f"{name}.norm")
    for part in ("gate", "up") if c.activation == "swiglu" else ("up",):
        yield from _linear(c, f"{name}.{part}", c.dim, c.hidden_width)
    yield from _linear(c, f"{name}.down", c.hidden_width, c.dim)


def _experts(c: Config, experts: Experts, name: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _norm(c, f"{name}.norm")
    yield f"{name}.router.weight", (c.dim, experts.num_experts)
    for part, shape in _swiglu(c.dim, experts.hidden):
        yield f"{name}.experts.{part}", (experts.num_experts, *shape)
    if experts.shared:
        yield f"{name}.shared.weight", (c.dim, 1)
        for part, shape in _swiglu(c.dim, experts.shared):
            yield f"{name}.shared.{part}.weight", shape


def _swiglu(dim: int, hidden: int) -> tuple[tuple[str, tuple[int, int]], ...]:
    return ("gate", (dim, hidden)), ("up", (dim, hidden)), ("down", (hidden, dim))


def _linear(c: Config, name: str, rows: int, columns: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.weight", (rows, columns)
    if c.bias:
        yield f"{name}.bias", (columns,)


def _norm(c: Config, name: str, width: int | None = None) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield f"{name}.scale", (width or c.dim,)
    if c.norm == "layer" and c.bias:
        yield f"{name}.bias", (width or c.dim,)


def initial_params(config: Config, rng: RNG = None, dtype: str = "float32") -> dict[str, NDArray[Any]]:
    r"""Return parameters to begin training with: weights :math:`N(0, 1/\mathrm{in})`, embeddings :math:`N(0, .02^2)`.

    What a layer adds to its input is smaller by the root of 2 L, so that rows do not grow with the depth (Radford et
    al. 2019). Biases are 0 and scales of norms 1. Gates :math:`-e^A \log(1 + e^{x + b})` begin as those of Mamba-2: e^A
    uniform in [1, 16], and log(1 + e^b) of a uniform log, from 0.001 to 0.1.

    Parameters
    ----------
    config : Config
        Sizes and choices.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the draw.
    dtype : {"float32", "float64"}
        Of the arrays.

    Returns
    -------
    dict of numpy.ndarray
        The parameters by the names of `shapes`.

    Raises
    ------
    DTypeError, ParameterError
        If an argument is not one of those allowed.

    Examples
    --------
    >>> from kernattn.transformer import Config, initial_params
    >>> config = Config(dim=8, layers=1, heads=2, vocab=5, positions=None)
    >>> initial_params(config, rng=0)["layers.0.attention.q.weight"].shape
    (8, 8)
    """
    return draw_params(shapes(config), config, rng, dtype)


def draw_params(wanted: Mapping[str, tuple[int, ...]], config: Config, rng: RNG, dtype: str) -> dict[str, NDArray[Any]]:
    """Draw initial parameters of these names and shapes."""
    source = generator(rng)
    one_of("dtype", dtype, ("float32", "float64"))
    values = {}
    for name, shape in wanted.items():
        if name.endswith(("scale", "skip")):
            value = np.ones(shape)
        elif name.endswith("log_rate"):
            value = np.log(source.uniform(1, 16, shape))
        elif name.endswith("decay.bias") and f"{name[:-4]}log_rate" in wanted:
            value = np.log(np.expm1(np.exp(source.uniform(np.log(1e-3), np.log(0.1), shape))))
        elif name.endswith("bias"):
            value = np.zeros(shape)
        else:
            size = 0.02 if name.startswith("embed.") and not name.endswith("weight") else shape[-2] ** -0.5
            last = name.endswith(("out.weight", "down.weight", "experts.down"))
            value = size / ((2 * config.layers) ** 0.5 if last else 1) * source.standard_normal(shape)
        values[name] = value.astype(dtype)
    return values


def cast_params(params: Mapping[str, Array], dtype: str) -> dict[str, NDArray[Any]]:
    """Return parameters as arrays of NumPy in another dtype; with 16 bits matrices alone, beside vectors in float32.

    Vectors (scales of norms, biases, rates of gates) take no room, and would lose digits. Of 16 bits a model takes half
    the memory, and a step of `Decoder` half the time where reading the weights is what takes it; rows, sums and states
    are float32.

    Parameters
    ----------
    params : dict of arrays
        The parameters, of any library.
    dtype : {"bfloat16", "float16", "float32", "float64"}
        Numbers are rounded to the nearest, ties to even.

    Returns
    -------
    dict of numpy.ndarray
        The parameters.

    Raises
    ------
    DTypeError, ParameterError
        If an argument is not one of those allowed, or the dtype cannot hold a number.
    MissingExtra
        If ml_dtypes is not installed, which has bfloat16.

    Examples
    --------
    >>> from kernattn.transformer import Config, cast_params, initial_params
    >>> config = Config(dim=8, layers=1, heads=2, vocab=5, positions=None)
    >>> params = cast_params(initial_params(config, rng=0), "bfloat16")
    >>> params["embed.tokens"].dtype, params["norm.scale"].dtype
    (dtype(bfloat16), dtype('float32'))
    """
    given: object = params
    if not isinstance(given, Mapping) or not given:
        raise DTypeError(f"params must be a dictionary of arrays; got {shown(params)}")
    one_of("dtype", dtype, DTYPES)
    kept = {}
    for name, value in params.items():
        namespace(**{name: value})
        check_floating(name, value)
        kept[name] = cast(host_floats(value), dtype)
        if not np.isfinite(kept[name]).all():
            raise ParameterError(f"params[{name!r}] must be finite numbers of {dtype}; got others")
    return kept


def check_params(
    params: Mapping[str, Array], config: Config, wanted: Mapping[str, tuple[int, ...]] | None = None
) -> Array:
    """Check names, shapes and dtypes of parameters, and return the first of them, beside which the others are."""
    given: object = params
    if not isinstance(given, Mapping) or not given:
        raise DTypeError(f"params must be a dictionary of arrays; got {shown(params)}")
    wanted = shapes(config) if wanted is None else wanted
    missing, more = [name for name in wanted if name not in params], [name for name in params if name not in wanted]
    if missing or more:
        parts = [f"{what} {', '.join(names[:5])}" for what, names in (("lack", missing), ("hold", more)) if names]
        raise ParameterError(f"params must be those of the config, as shapes(config) tells; they {' and '.join(parts)}")
    first = params[next(iter(wanted))]
    dtypes: set[str] = set()
    of_vectors: set[str] = set()
    for name, shape in wanted.items():
        namespace(params=first, **{name: params[name]})
        (dtypes if len(shape) > 1 else of_vectors).add(check_floating(name, params[name]))
        if tuple(params[name].shape) != shape:
            raise ShapeError(f"params[{name!r}] must be {shape}; got shape {tuple(params[name].shape)}")
    if len(dtypes) > 1 or not of_vectors <= dtypes | ({"float32"} if has_16_bits(first) else set()):
        raise DTypeError(
            "params must be of one dtype, or matrices of NumPy with 16 bits beside vectors in float32; "
            f"got {', '.join(sorted(dtypes | of_vectors))}"
        )
    return first
