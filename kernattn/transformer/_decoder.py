"""Steps by one compiled loop, on weights that were put in the order of their use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, check_floating
from kernattn._runtime.checks import instance_of
from kernattn.attention import LinearState, WindowState
from kernattn.attention._mechanisms.hybrid import scale_of
from kernattn.attention._state_batches import places_of
from kernattn.errors import ParameterError, ShapeError, StateMismatchError
from kernattn.ops.dispatch import missing
from kernattn.transfer import Heads, Transfer
from kernattn.transformer._attention import ByHeads, Exact, Kind, Linear, resolve_attention
from kernattn.transformer._checks import check_indices, check_positions, check_remembered, check_steps
from kernattn.transformer._config import Config
from kernattn.transformer._decoder_states import layer_state, ring_of, taken_over
from kernattn.transformer._ends import embed
from kernattn.transformer._experts import Experts
from kernattn.transformer._gated import GatedLayer
from kernattn.transformer._halves import has_16_bits
from kernattn.transformer._members import Gated
from kernattn.transformer._model import State, prefill
from kernattn.transformer._order import weights_in_order
from kernattn.transformer._params import check_params
from kernattn.transformer._parts import Params
from kernattn.transformer._positions import limit, rotations

NOTHING = np.zeros(0, np.float32)


def why_not_compiled(params: Params, config: Config, attention: Kind | Transfer | Sequence[Kind]) -> str | None:
    """Return why the loop cannot take the steps of this model, or None where it can."""
    if (reason := missing("cpu")) is not None:
        return reason
    if any(type(value) is not np.ndarray or value.dtype == np.float64 for value in params.values()):
        return "its parameters are not arrays of NumPy in float32, bfloat16 or float16"
    if config.cross:
        return "it has cross attention"
    for layer, how in enumerate(resolve_attention(attention, config.layers)):
        if config.mixer(layer) is not None:
            continue
        if isinstance(how, Exact):
            if how.pattern is not None:
                return "it attends over a pattern"
        elif not isinstance(how, Linear | ByHeads):
            return "it attends by a function"
        else:
            for phi in (how.phi,) if isinstance(how, Linear) else how.heads.maps:
                if phi.query_spec is None or phi.key_spec is None:
                    return f"features of {phi!r} are not computed in loops"
    return None


class Decoder:
    r"""A causal transformer token by token, :math:`x_{t+1} \sim f(x_t, S, z)`, all layers in one compiled call.

    What `step` computes (Katharopoulos et al. 2020, section 3.4), from weights that are copied once, in the order of
    their use: a step of one sequence takes little longer than reading them does. Those of 16 bits stay so, and are
    widened in registers: outputs have the bits of float32 weights of the same values. It keeps its state in place. With
    feature maps, windows beside them and gated linear attention memory does not grow; exact attention keeps keys and
    values. A sequence has the same bits whatever other sequences stand beside it. `generate` decodes by it where it
    can.

    If you change the arrays of `params` later, make a new Decoder: prompts and embeddings are still read from them.

    Parameters
    ----------
    params : dict of arrays
        The parameters: NumPy; float32, or with matrices in bfloat16 or float16, as `cast_params` makes them.
    config : Config
        Sizes and choices; causal, without cross attention.
    attention : None, FeatureMap or Heads, a list of them, or a Transfer
        As in `prefill`; maps are those that have specs.

    Raises
    ------
    DTypeError, ShapeError
        If the parameters do not fit the config.
    ParameterError
        If the loop cannot take the steps of this model; the message says why. `step` takes them.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> from kernattn.transformer import Config, Decoder, initial_params
    >>> config = Config(dim=8, layers=2, heads=2, vocab=5, length=16)
    >>> decoder = Decoder(initial_params(config, rng=0), config, attention=ka.features.elu1())
    >>> decoder.prefill(np.array([[0, 3, 1]])).shape
    (1, 3, 5)
    >>> decoder.step(np.array([4])).shape
    (1, 5)
    """

    def __init__(self, params: Params, config: Config, *, attention: Kind | Transfer | Sequence[Kind] = None) -> None:
        instance_of("config", config, Config)
        beside = check_params(params, config)
        self._how = resolve_attention(attention, config.layers)
        check_steps(config, self._how)
        if (reason := why_not_compiled(params, config, attention)) is not None:
            raise ParameterError(f"a Decoder cannot take the steps of this model: {reason}; step can")
        from kernattn.ops._decode.stack import Stack

        self._params, self._config = dict(params), config
        self._attention: Any = attention
        gated = [config.mixer(layer) for layer in range(config.layers)]
        specs: list[Any] = [
            _maps_of(how, config) if m is None else None for how, m in zip(self._how, gated, strict=True)
        ]
        mixers = [None if m is None else _mixer_of(m) for m in gated]
        experts = [None if each is None else _experts_of(each) for each in map(config.experts_of, range(config.layers))]
        pairs = partial(weights_in_order, params, config)
        self._stack = Stack(_sizes(config), config.eps, pairs, specs, mixers, experts, _kind(beside))
        self._lead: tuple[int, ...] | None = None

    def __repr__(self) -> str:
        return f"Decoder({self._stack.count} weights, {self._config!r})"

    @property
    def nbytes(self) -> int:
        """Bytes of what is remembered of tokens."""
        return 0 if self._lead is None else self._memories.flat.nbytes

    @property
    def positions(self) -> NDArray[np.int64]:
        """Where the next token of each sequence stands: how many it has taken, as integers of the batch's shape."""
        if self._lead is None:
            raise ParameterError("a prompt must come before positions: call prefill or begin")
        return self._positions.reshape(self._lead).copy()

    def prefill(self, x: Array, *, lengths: Array | None = None, types: Array | None = None) -> Array:
        """Take whole prompts in place of what was taken before, and return the outputs of all their tokens.

        Parameters
        ----------
        x : (..., n) integer array, or (..., n, inputs) array
            Tokens, or vectors.
        lengths : (...) integer array, optional
            Tokens of each prompt, at the beginning of its row, where they are of unequal length.
        types : (..., n) integer array, optional
            As in `forward`.

        Returns
        -------
        (..., n, vocab) or (..., n, dim) numpy.ndarray
            The outputs, as the function `prefill` returns them.
        """
        out, state = prefill(self._params, self._config, x, attention=self._attention, lengths=lengths, types=types)
        self.begin(state)
        return out

    def begin(self, state: State) -> None:
        """Go on from a state that `prefill` or `step` returned, which is copied.

        Parameters
        ----------
        state : State
            The state, of this model.

        Raises
        ------
        DTypeError, StateMismatchError
            If it is none, or of another model or draw.
        """
        instance_of("state", state, State)
        lead = check_positions(state.positions)
        kept, lengths = self._check(state, lead)
        positions = np.array(state.positions, np.int64).reshape(-1)
        memories = self._stack.memories(len(positions), int(lengths.max()))
        self._lead, self._positions, self._lengths, self._memories = lead, positions, lengths, memories
        self._write(np.arange(len(positions)), kept, lengths)

    def put(self, index: Any, state: State) -> None:
        """Let other sequences take the places of some, and the others go on: who ends makes room for who comes.

        Parameters
        ----------
        index : int, slice, or sequence or array of int or bool
            Which sequences of the batch, each once, as `kernattn.put_states` takes them.
        state : State
            What `prefill` or `step` returned for so many sequences, which is copied; for an int, for one without a
            batch's axis.

        Raises
        ------
        DTypeError, StateMismatchError, ParameterError
            Before any work, if there is no batch, or an argument does not fit.
        """
        instance_of("state", state, State)
        places, one = places_of(index, *self._batch())
        lead, given_lead = () if one else (len(places),), check_positions(state.positions)
        if given_lead != lead or len(set(places.tolist())) < len(places):
            raise StateMismatchError(
                f"state must have the leading axes {lead} of index, which names each sequence once; got {given_lead}"
            )
        kept, lengths = self._check(state, lead)
        if not len(places):
            return
        self._memories = self._memories.with_room(int(lengths.max()))
        self._positions, self._lengths = self._positions.copy(), self._lengths.copy()
        self._positions[places], self._lengths[places] = np.reshape(state.positions, -1), lengths
        self._write(places, kept, lengths)

    def take(self, index: Any) -> State:
        """Return the states of some sequences, to keep, to save or to `put` into another row or another Decoder.

        Parameters
        ----------
        index : int, slice, or sequence or array of int or bool
            Which sequences of the batch, as `kernattn.take_states` takes them. An int takes the batch's axis away.

        Returns
        -------
        State
            Copies, as `prefill` and `step` return them; the batch stays as it is.

        Raises
        ------
        ParameterError
            If there is no batch, or it does not have those asked for.

        Examples
        --------
        >>> import numpy as np
        >>> import kernattn as ka
        >>> from kernattn.transformer import Config, Decoder, initial_params
        >>> config = Config(dim=8, layers=2, heads=2, vocab=5, length=16)
        >>> decoder = Decoder(initial_params(config, rng=0), config, attention=ka.features.elu1())
        >>> _ = decoder.prefill(np.array([[0, 3, 1], [2, 2, 4]]))
        >>> paused = decoder.take(1)
        >>> decoder.put(0, paused)
        >>> out = decoder.step(np.array([4, 4]))
        >>> bool((out[0] == out[1]).all())
        True
        """
        places, one = places_of(index, *self._batch())
        lead = () if one else (len(places),)
        lengths = self._lengths[places]
        layers = (
            layer_state(self._config, how, self._memories, layer, places, lengths, lead)
            for layer, how in enumerate(self._how)
        )
        return State(tuple(layers), self._positions[places].reshape(lead), None)

    def _batch(self) -> tuple[int]:
        """Return how many sequences the batch has, or raise where there is none."""
        if self._lead is None or len(self._lead) != 1:
            given = "none" if self._lead is None else f"leading axes {self._lead}"
            raise ParameterError(f"a batch of sequences must be decoded, by prefill or begin; got {given}")
        return self._lead

    def _check(self, state: State, lead: tuple[int, ...]) -> tuple[list[Any], NDArray[np.int64]]:
        """Return what layers take over, and how many tokens exact attention keeps; without it positions, of rings."""
        check_remembered("state", self._config, self._how, state.layers, lead)
        count = prod(lead)
        kept = [
            taken_over(self._config, how, layer, each, lead, count)
            for layer, (how, each) in enumerate(zip(self._how, state.layers, strict=True))
        ]
        exact = [each for each in kept if not isinstance(each, LinearState | WindowState | GatedLayer)]
        lengths = (exact[0][2] if exact else np.asarray(state.positions).reshape(-1)).astype(np.int64)
        if not all(np.array_equal(each[2], lengths) for each in exact):
            raise StateMismatchError("layers of exact attention must have seen equally many tokens")
        return kept, lengths

    def _write(self, rows: NDArray[np.int64], kept: list[Any], lengths: NDArray[np.int64]) -> None:
        """Write what layers take over into the memory of some sequences."""
        for layer, each in enumerate(kept):
            if isinstance(each, LinearState):
                self._memories.keep(layer, rows, each.s, each.z, each.peak)
            elif isinstance(each, WindowState):
                self._memories.keep(layer, rows, each.s, each.z, each.peak, *ring_of(each, lengths))
            elif isinstance(each, GatedLayer):
                self._memories.keep(layer, rows, each.s, () if each.window is None else each.window)
            else:
                self._memories.keep_tokens(layer, rows, *each[:2])
        self._furthest, self._longest = int(self._positions.max()), int(self._lengths.max())

    def step(self, x: Array, *, types: Array | None = None) -> NDArray[np.float32]:
        """Take one token of every sequence, and return its output.

        Parameters
        ----------
        x : (...) integer array, or (..., inputs) array
            The tokens, or vectors.
        types : (...) integer array, optional
            Their types.

        Returns
        -------
        (..., vocab) or (..., dim) numpy.ndarray
            The outputs.

        Raises
        ------
        DTypeError, ShapeError, ParameterError
            Before any work, if an argument does not fit, or no prompt was taken.
        """
        c = self._config
        if self._lead is None:
            raise ParameterError("a prompt must come before steps: call prefill or begin")
        x = np.asarray(x)
        wanted = self._lead if c.vocab is not None else (*self._lead, c.inputs)
        if x.shape != wanted:
            raise ShapeError(f"x must be {wanted}; got {x.shape}")
        if c.vocab is not None:
            check_indices("x", x, c.vocab)
        else:
            check_floating("x", x)
        most = limit(c)
        if most is not None and self._furthest >= most:
            ended = np.flatnonzero(self._positions >= most).tolist()
            raise ParameterError(
                f"the token must stand before position {most}, the most that the config has; sequences {ended} of the "
                "batch have no room: put others in their place"
            )
        count = len(self._positions)
        at = self._positions[:, None]
        given = x.reshape(count, 1) if c.vocab is not None else x.reshape(count, 1, -1).astype(np.float32)
        if types is not None and np.shape(types) != self._lead:
            raise ShapeError(f"types must be {self._lead}; got {np.shape(types)}")
        rows = embed(self._params, c, given, at, None if types is None else np.asarray(types).reshape(count, 1))
        by = rotations(c, at, rows)
        turned = NOTHING if by is None else np.concatenate([by.cos, by.sin], axis=-1)
        self._memories = self._memories.with_room(self._longest)
        out = self._stack.step(self._memories, self._lengths, turned, rows)
        self._positions = self._positions + 1
        self._lengths = self._lengths + 1
        self._furthest += 1
        self._longest += 1
        return out.reshape(*self._lead, -1)


def _maps_of(how: Any, config: Config) -> Any:
    """Return the maps of queries and of keys that a `Stack` takes; None of exact attention."""
    if isinstance(how, Exact):
        return None
    if isinstance(how, Linear):
        specs: Any = how.phi.query_spec, how.phi.key_spec
        if all(spec.direct for spec in specs):
            return specs
    from kernattn.ops._decode.packing import HeadMaps

    heads = Heads((how.phi,)) if isinstance(how, Linear) else how.heads
    count, d = heads.count or 1, config.head_width

    def of_each(given: Sequence[Any], otherwise: Any = None) -> tuple[Any, ...]:
        given = tuple(given) or (otherwise,)
        return given * (count // len(given))

    maps = of_each(heads.maps)
    scores = tuple(scale_of(phi, d) if heads.window else 0.0 for phi in maps)
    pairs = tuple((phi.query_spec, phi.key_spec) for phi in maps)
    return HeadMaps(pairs, heads.window, scores, of_each(heads.near_bias, 0.0), of_each(heads.scale, 1.0))


def _sizes(config: Config) -> dict[str, Any]:
    """Return the sizes and choices that a `Stack` takes."""
    c = config
    return {
        "layers": c.layers, "dim": c.dim, "heads": c.heads, "key_heads": c.key_heads, "head_width": c.head_width,
        "hidden": c.hidden_width, "activation": c.activation, "centred": c.norm == "layer", "norm_first": c.norm_first,
        "columns": c.dim if c.output is None else c.vocab, "projected": c.output is not None, "turned": c.turned,
        "head_norm": c.head_norm, "head_gate": c.head_gate,
    }  # fmt: skip


def _kind(beside: Array) -> int:
    """Return the kind of 16-bit weights, as the loop knows it; 0 for float32."""
    from kernattn.ops._numba.tiles.layout import kind_of

    return kind_of(beside) if has_16_bits(beside) else 0


def _mixer_of(m: Gated) -> Any:
    """Return the sizes and choices of a gated layer as the loop takes them."""
    from kernattn.ops._decode.gated_loops import DECAYS, GATES, Mixer

    kind = m.kind
    return Mixer(
        m.heads, m.groups, m.key_dim, m.value_dim, m.span, DECAYS.index(kind.decay), m.decay_rank,
        GATES.index(kind.gate), m.gate_rank, kind.gate_first, kind.erases, kind.state_space,
        m.channels + (m.heads if kind.erases else 0) + (m.decay_rank or m.decays),
        0 if kind.gate is None else m.gate_rank or m.values,
    )  # fmt: skip


def _experts_of(each: Experts) -> Any:
    """Return the sizes and choices of experts as the loop takes them."""
    from kernattn.ops._decode.experts_loops import Experts as Row

    return Row(each.num_experts, each.num_chosen, each.hidden, each.shared, each.normalise)
