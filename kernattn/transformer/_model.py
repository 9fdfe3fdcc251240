"""The transformer: whole sequences, and token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernattn._arrays.namespaces import Array, dtype_name, namespace, zero_masked
from kernattn._runtime.checks import instance_of
from kernattn._runtime.elsewhere import told_keywords
from kernattn.attention._state_parts import holds_states
from kernattn.errors import EmptyInputError, ParameterError, ShapeError
from kernattn.transfer import Transfer
from kernattn.transformer._attention import Kind, LayerState, Memory, resolve_attention
from kernattn.transformer._checks import (
    as_sequence,
    check_call,
    check_mask,
    check_positions,
    check_remembered,
    check_steps,
    check_whole,
    mask_lengths,
)
from kernattn.transformer._config import Config
from kernattn.transformer._ends import apply_head, count_positions, embed, mean_rows, wide_integers
from kernattn.transformer._gated import GatedLayer, Mix
from kernattn.transformer._halves import row_dtype
from kernattn.transformer._layers import (
    Means,
    add_group_axis,
    apply_layers,
    mask_heads,
    memory_reader,
    split_heads,
)
from kernattn.transformer._params import check_params
from kernattn.transformer._parts import Params, linear
from kernattn.transformer._positions import limit, rotations


@holds_states
class State(NamedTuple):
    """What a causal transformer remembers of the tokens that it has seen."""

    layers: tuple[LayerState, ...]
    positions: Array  # (...,), where the next token stands
    memory: Memory | None

    def _check_whole(self) -> None:
        check_whole(self.layers, self.positions, self.memory)


def _run(
    params: Params,
    config: Config,
    x: Array,
    positions: Array,
    types: Array | None,
    means: Means,
) -> Array:
    """Return the rows (..., n, dim) of tokens at these positions after all layers."""
    rows = embed(params, config, x, positions, types)
    return apply_layers(params, config, rows, rotations(config, positions, rows), means)


@told_keywords
def forward(
    params: Params,
    config: Config,
    x: Array,
    *,
    attention: Kind | Transfer | Sequence[Kind] = None,
    key_mask: Array | None = None,
    types: Array | None = None,
    memory: Memory | None = None,
) -> Array:
    r"""Return the outputs of whole sequences, :math:`T_L(\cdots T_1(x))`, :math:`T_l(x) = f_l(A_l(x) + x)`.

    Vaswani et al. (2017); Katharopoulos et al. (2020), eqs. 1 to 7, for attention by a feature map. Every operation is
    one of the array API or of this library, so that tensors with gradients train it.

    Parameters
    ----------
    params : dict of arrays
        The parameters, by the names of `shapes`, of one library and dtype; of NumPy, matrices may have 16 bits, as
        `cast_params` makes them, and are widened block by block.
    config : Config
        Sizes and choices.
    x : (..., n) integer array, or (..., n, inputs) array
        Tokens, or vectors.
    attention : None, Pattern, FeatureMap, Heads or callable, a list of them, or a Transfer
        How heads attend: exactly, over a pattern, by features, by maps of their own, or by a function
        ``f(q, k, v, causal=, key_mask=)`` of heads (..., h, n, d); for all layers, or for each. What `transfer` returns
        is the attention of the layers that it names; others attend exactly. Where heads of keys serve groups, q is
        (..., h, g, n, d) and k and v are (..., h, 1, n, d). Layers of gated linear attention do not attend: theirs has
        no effect.
    key_mask : (..., n) bool array, optional
        True where there is a token. Positions, but those of a grid, and tokens of a pattern count from the first that
        there is: padding, before or behind, changes nothing.
    types : (..., n) integer array, optional
        Type of each token, where the config has types; 0 by default.
    memory : Memory, optional
        What `prepare_memory` made of an encoder's rows, where the config has cross attention.

    Returns
    -------
    array
        Logits (..., n, vocab); logits (..., classes) of the mean over tokens; or rows (..., n, dim).

    Raises
    ------
    DTypeError, ShapeError, EmptyInputError, ParameterError, MixedLibraryError
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> from kernattn.transformer import Config, forward, initial_params
    >>> config = Config(dim=8, layers=2, heads=2, vocab=5, length=16)
    >>> tokens = np.array([[0, 3, 1, 4]])
    >>> forward(initial_params(config, rng=0), config, tokens, attention=ka.features.elu1()).shape
    (1, 4, 5)
    """
    how = check_call(params, config, x, attention, key_mask, memory)
    mask, positions = mask_heads(config, key_mask), count_positions(config, x, key_mask)

    def attending(layer: int, q: Array, k: Array, v: Array) -> Array:
        return how[layer].attend(q, k, v, mask, config.causal)

    x = x if config.inputs is None else zero_masked(x, key_mask)
    means = Means(attending, memory_reader(how, memory), lambda layer, mix: mix(None, key_mask)[0])
    rows = _run(params, config, x, positions, types, means)
    if config.output == "classes":
        rows = mean_rows(rows, key_mask)
    return apply_head(params, config, rows)


def prepare_memory(
    params: Params,
    config: Config,
    rows: Array,
    *,
    attention: Kind | Sequence[Kind] = None,
    key_mask: Array | None = None,
) -> Memory:
    r"""Return the keys and values of an encoder's rows, or :math:`\sum \phi(k) v^T`, which cross attention reads.

    Parameters
    ----------
    params : dict of arrays
        Parameters of the decoder.
    config : Config
        Of the decoder, which has cross attention.
    rows : (..., n, dim) array
        Rows of the encoder.
    attention : None or FeatureMap, or a list of them
        How the decoder's heads attend to them.
    key_mask : (..., n) bool array, optional
        True where there is a row.

    Returns
    -------
    Memory
        What `forward`, `prefill` and `step` read.

    Raises
    ------
    DTypeError, ShapeError, EmptyInputError, ParameterError, MixedLibraryError
        If an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.transformer import Config, forward, initial_params, prepare_memory
    >>> config = Config(dim=8, layers=1, heads=2, vocab=5, length=16, cross=True)
    >>> params = initial_params(config, rng=0)
    >>> memory = prepare_memory(params, config, np.ones((1, 7, 8), np.float32))
    >>> forward(params, config, np.array([[0, 3]]), memory=memory).shape
    (1, 2, 5)
    """
    instance_of("config", config, Config)
    beside = check_params(params, config)
    how = resolve_attention(attention, config.layers)
    if not config.cross:
        raise ParameterError("prepare_memory is for a config with cross=True; got cross=False")
    namespace(params=beside, rows=rows)
    if rows.ndim < 2 or rows.shape[-1] != config.dim or dtype_name(rows) != row_dtype(beside):
        raise ShapeError(
            f"rows must be (..., n, {config.dim}) of {row_dtype(beside)}; got {dtype_name(rows)}{tuple(rows.shape)}"
        )
    if 0 in rows.shape:
        raise EmptyInputError(f"rows must not be empty; got shape {tuple(rows.shape)}")
    check_mask(key_mask, rows.shape[:-1])
    mask, there = mask_heads(config, key_mask), zero_masked(rows, key_mask)
    layers: list[LayerState] = []
    for layer, each in enumerate(how):
        name = f"layers.{layer}.cross"
        k, v = (split_heads(linear(params, f"{name}.{part}", there), config.key_heads) for part in "kv")
        layers.append(each.summarise(add_group_axis(config, k), add_group_axis(config, v), mask))
    return Memory(tuple(layers))


@told_keywords
def prefill(
    params: Params,
    config: Config,
    x: Array,
    *,
    attention: Kind | Transfer | Sequence[Kind] = None,
    lengths: Array | None = None,
    types: Array | None = None,
    memory: Memory | None = None,
) -> tuple[Array, State]:
    """Return the outputs of whole prompts, and the state from which `step` goes on.

    Parameters
    ----------
    params : dict of arrays
        The parameters.
    config : Config
        Sizes and choices; causal.
    x : (..., n) integer array, or (..., n, inputs) array
        Tokens, or vectors.
    attention : None, Pattern, FeatureMap or Heads, a list of them, or a Transfer
        As in `forward`; patterns are those of any length whose rows stay as
        they are when tokens follow: not `bigbird`.
    lengths : (...) integer array, optional
        Tokens of each prompt, at the beginning of its row, where they are of unequal length.
    types : (..., n) integer array, optional
        As in `forward`.
    memory : Memory, optional
        As in `forward`.

    Returns
    -------
    out : (..., n, vocab) or (..., n, dim) array
        Outputs of all tokens; those of a prompt's last token stand at its length less one.
    state : State
        The state after the prompts.

    Raises
    ------
    DTypeError, ShapeError, EmptyInputError, ParameterError, MixedLibraryError
        Before any work, if an argument does not fit, or attention is by a function.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> from kernattn.transformer import Config, initial_params, prefill, step
    >>> config = Config(dim=8, layers=2, heads=2, vocab=5, length=16)
    >>> params, phi = initial_params(config, rng=0), ka.features.elu1()
    >>> out, state = prefill(params, config, np.array([[0, 3, 1]]), attention=phi)
    >>> out, state = step(params, config, state, np.array([4]), attention=phi)
    >>> out.shape
    (1, 5)
    """
    mask = None if lengths is None else mask_lengths(config, x, lengths)
    how = check_call(params, config, x, attention, mask, memory)
    check_steps(config, how)
    if lengths is not None and any(getattr(each, "pattern", None) is not None for each in how):
        raise ParameterError("a pattern counts tokens from the end: prompts must be of one length; got lengths")
    of_heads = mask_heads(config, mask)
    layers: list[LayerState] = []

    def attending(layer: int, q: Array, k: Array, v: Array) -> Array:
        return keep(how[layer].prefill(q, k, v, of_heads))

    def keep(made: tuple[Array, LayerState]) -> Array:
        layers.append(made[1])
        return made[0]

    x = x if config.inputs is None else zero_masked(x, mask)
    means = Means(attending, memory_reader(how, memory), lambda layer, mix: keep(mix(None, mask)))
    rows = _run(params, config, x, count_positions(config, x), types, means)
    after = (count_positions(config, x)[..., -1:] + 1)[..., 0] if lengths is None else wide_integers(lengths)
    return apply_head(params, config, rows), State(tuple(layers), after, memory)


@told_keywords
def step(
    params: Params,
    config: Config,
    state: State,
    x: Array,
    *,
    attention: Kind | Transfer | Sequence[Kind] = None,
    types: Array | None = None,
) -> tuple[Array, State]:
    r"""Take one token: what `forward` gives for it as the last one, from a state that does not grow.

    Attention by a feature map remembers S and z (Katharopoulos et al. 2020, eqs. 16 to 20), gated linear attention S
    and the last inputs of its convolution; exact attention remembers all keys and values, and does grow.

    Parameters
    ----------
    params : dict of arrays
        The parameters.
    config : Config
        Sizes and choices.
    state : State
        The state before the token, which stays as it is.
    x : (...) integer array, or (..., inputs) array
        The token, or vector.
    attention : None, Pattern, FeatureMap or Heads, a list of them, or a Transfer
        As in `prefill`.
    types : (...) integer array, optional
        Its type.

    Returns
    -------
    out : (..., vocab) or (..., dim) array
        Output of the token.
    state : State
        The state after it.

    Raises
    ------
    DTypeError, ShapeError, ParameterError, StateMismatchError, MixedLibraryError
        Before any work, if an argument does not fit.

    Examples
    --------
    See `prefill`.
    """
    instance_of("config", config, Config)
    instance_of("state", state, State)
    x, types = as_sequence("x", x, config.vocab is None), None if types is None else as_sequence("types", types)
    how = check_call(params, config, x, attention, None, state.memory)
    check_steps(config, how)
    sequences = check_positions(state.positions, limit(config))
    check_remembered("state", config, how, state.layers, sequences)
    lead = tuple(x.shape[:-1] if config.vocab is not None else x.shape[:-2])
    if lead != sequences:
        raise ShapeError(f"x must be of sequences {sequences}, as the state is; got {lead}")
    layers: list[LayerState] = []

    def attending(layer: int, q: Array, k: Array, v: Array) -> Array:
        return keep(how[layer].step(state.layers[layer], q, k, v))

    def mixing(layer: int, mix: Mix) -> Array:
        before = state.layers[layer]
        assert isinstance(before, GatedLayer)
        return keep(mix(before, None))

    def keep(made: tuple[Array, LayerState]) -> Array:
        layers.append(made[1])
        return made[0]

    at = wide_integers(state.positions)[..., None]
    rows = _run(params, config, x, at, types, Means(attending, memory_reader(how, state.memory), mixing))
    return apply_head(params, config, rows)[..., 0, :], State(tuple(layers), (at + 1)[..., 0], state.memory)
