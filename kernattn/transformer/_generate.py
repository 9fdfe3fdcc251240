"""Sequences drawn token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, indices, namespace, to_numpy64
from kernattn._runtime.checks import finite_number, instance_of, positive_integer, shown, whole_number
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.extras import bar
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError, ShapeError
from kernattn.transfer import Transfer
from kernattn.transformer._attention import Kind, Memory
from kernattn.transformer._config import Config
from kernattn.transformer._decoder import Decoder, why_not_compiled
from kernattn.transformer._model import State, prefill, step
from kernattn.transformer._parts import Params
from kernattn.transformer._positions import limit


@told_keywords
def generate(
    params: Params,
    config: Config,
    prompt: Array,
    steps: int,
    *,
    attention: Kind | Transfer | Sequence[Kind] = None,
    lengths: Array | None = None,
    memory: Memory | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: int | None = None,
    rng: RNG = None,
    progress: bool | None = False,
) -> NDArray[np.int64]:
    r"""Draw tokens one by one, :math:`x_{t+1} \sim \mathrm{softmax}(\mathrm{logits}_t / T)`, after prompts.

    With attention by a feature map a token costs the same however many stand before it, and memory does not grow
    (Katharopoulos et al. 2020, section 3.4). The draws of one sequence do not depend on the others beside it.

    Parameters
    ----------
    params : dict of arrays
        The parameters.
    config : Config
        Sizes and choices; causal, with logits of tokens.
    prompt : (..., n) integer array
        Tokens to begin with, one at least.
    steps : int
        How many tokens to draw.
    attention : None, Pattern, FeatureMap or Heads, a list of them, or a Transfer
        As in `prefill`.
    lengths : (...) integer array, optional
        Tokens of each prompt, at the beginning of its row, where they are of unequal length.
    memory : Memory, optional
        As in `prefill`.
    temperature : float
        T, 0 or more; with 0 the most likely token is taken.
    top_k : int, optional
        Draw among the k most likely tokens.
    top_p : float, optional
        Draw among the fewest tokens that have this probability together (Holtzman et al. 2020), in (0, 1].
    stop : int, optional
        A token after which a sequence holds nothing but it; where all do, no more are drawn.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the draws.
    progress : bool or None
        Show the number of tokens on stderr; None shows it on a terminal only.

    Returns
    -------
    (..., steps) numpy.ndarray
        The tokens that were drawn, without the prompts.

    Raises
    ------
    DTypeError, ShapeError, ParameterError, StateMismatchError, MixedLibraryError
        Before any work, if an argument does not fit, or prompts and steps are more than the positions of the config.
    ParameterError
        If the largest logit of a token is infinite or NaN.
    MissingExtra
        If progress is asked for and tqdm is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> from kernattn.transformer import Config, generate, initial_params
    >>> config = Config(dim=8, layers=2, heads=2, vocab=5, length=16)
    >>> params, phi = initial_params(config, rng=0), ka.features.elu1()
    >>> generate(params, config, np.array([[0], [3]]), 7, attention=phi, rng=0).shape
    (2, 7)
    """
    instance_of("config", config, Config)
    _check(config, prompt, positive_integer("steps", steps), temperature, top_k, top_p, stop)
    source = generator(rng)
    out, state = prefill(params, config, prompt, attention=attention, lengths=lengths, memory=memory)
    logits = to_numpy64(out)
    last = np.full(logits.shape[:-2], logits.shape[-2]) if lengths is None else to_numpy64(lengths).astype(np.int64)
    logits = np.take_along_axis(logits, last[..., None, None] - 1, axis=-2)[..., 0, :]
    uniform = source.random((*logits.shape[:-1], steps))
    drawn = np.full(uniform.shape, -1 if stop is None else stop, dtype=np.int64)
    ended = np.zeros(logits.shape[:-1], bool)
    advance = _make_step(params, config, state, prompt, attention)
    with bar("generate", progress, unit="token", total=steps) as shown_tokens:
        for t in range(steps):
            token = _draw_tokens(logits, uniform[..., t], temperature, top_k, top_p)
            drawn[..., t] = np.where(ended, drawn[..., t], token)
            ended |= drawn[..., t] == (stop if stop is not None else -1)
            if shown_tokens is not None:
                shown_tokens.update()
            if ended.all() or t + 1 == steps:
                break
            logits = to_numpy64(advance(drawn[..., t]))
    return drawn


def _make_step(
    params: Params, config: Config, state: State, prompt: Array, attention: Kind | Transfer | Sequence[Kind]
) -> Callable[[NDArray[np.int64]], Array]:
    """Return the function from a token of each sequence to its logits, of a `Decoder` where one can take the steps."""
    if why_not_compiled(params, config, attention) is None:
        decoder = Decoder(params, config, attention=attention)
        decoder.begin(state)
        return decoder.step
    xp = namespace(prompt=prompt)

    def advance(tokens: NDArray[np.int64]) -> Array:
        nonlocal state
        out, state = step(params, config, state, indices(xp, tokens, prompt), attention=attention)
        return out

    return advance


def _check(
    config: Config, prompt: Any, steps: int, temperature: float, top_k: int | None, top_p: float | None, stop: Any
) -> None:
    if config.vocab is None or config.output not in ("tokens", "tied"):
        raise ParameterError(f"generate is for a config of tokens in and out; got {config!r}")
    if finite_number("temperature", temperature) < 0:
        raise ParameterError(f"temperature must be 0 or more; got {shown(temperature)}")
    if top_k is not None and positive_integer("top_k", top_k) > config.vocab:
        raise ParameterError(f"top_k must be {config.vocab} at most, the number of tokens; got {top_k}")
    if top_p is not None and not 0 < finite_number("top_p", top_p) <= 1:
        raise ParameterError(f"top_p must lie in (0, 1]; got {shown(top_p)}")
    if stop is not None and whole_number("stop", stop) >= config.vocab:
        raise ParameterError(f"stop must be a token from 0 to {config.vocab - 1}; got {stop}")
    namespace(prompt=prompt)
    if prompt.ndim < 1:
        raise ShapeError(f"prompt must be (..., n); got shape {tuple(prompt.shape)}")
    most = limit(config)
    if most is not None and prompt.shape[-1] + steps - 1 > most:
        raise ParameterError(
            f"prompts of {prompt.shape[-1]} tokens and {steps} steps are more than the {most} positions of the config"
        )


def _draw_tokens(
    logits: Float64, uniform: Float64, temperature: float, top_k: int | None, top_p: float | None
) -> NDArray[np.int64]:
    """Draw tokens (...) from logits (..., vocab), each by its own uniform number."""
    top = np.max(logits, axis=-1, keepdims=True)
    if not np.all(np.isfinite(top)):
        raise ParameterError(f"params must give logits of which one is the largest; got {top[~np.isfinite(top)][0]}")
    if temperature == 0:
        most_likely: NDArray[np.int64] = np.argmax(logits, axis=-1)
        return most_likely
    order = np.argsort(-logits, axis=-1, kind="stable")
    with np.errstate(
        over="ignore"
    ):  # what a small temperature puts infinitely far below the most likely is never drawn
        weights = np.exp((np.take_along_axis(logits, order, axis=-1) - top) / temperature)
    if top_k is not None:
        weights[..., top_k:] = 0
    if top_p is not None:
        before = np.cumsum(weights, axis=-1) - weights
        weights = np.where(before < top_p * np.sum(weights, axis=-1, keepdims=True), weights, 0)
    reached = np.cumsum(weights, axis=-1)
    place = np.sum(reached <= uniform[..., None] * reached[..., -1:], axis=-1)
    place = np.minimum(place, np.sum(weights > 0, axis=-1) - 1)
    tokens: NDArray[np.int64] = np.take_along_axis(order, place[..., None], axis=-1)[..., 0]
    return tokens
