"""From softmax attention to maps that are fitted to it, of a transformer on plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from os import PathLike
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, to_numpy64
from kernattn._runtime.checks import instance_of
from kernattn._runtime.deprecated import old_arguments
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.random import RNG
from kernattn.attention import softmax_attention
from kernattn.errors import ParameterError
from kernattn.transfer import Transfer
from kernattn.transfer._rows import Recorder
from kernattn.transfer._run import run, settings_of
from kernattn.transformer._attention import layer_name
from kernattn.transformer._config import Config
from kernattn.transformer._model import forward
from kernattn.transformer._params import check_params
from kernattn.transformer._parts import Params


@told_keywords
@old_arguments(seed="rng")
def transfer(
    params: Params,
    config: Config,
    batches: Iterable[Any],
    num_features: int = 64,
    *,
    kind: str = "hedgehog",
    window: int = 0,
    shared: bool = False,
    output_scale: bool = False,
    sequences: int = 16,
    length: int = 256,
    rng: RNG = None,
    folder: str | PathLike[str] | None = None,
    progress: bool | None = False,
) -> Transfer:
    r"""Fit linear attention to the softmax attention of a trained model, layer by layer, head by head.

    Zhang et al. (2024, 2025), Hedgehog and LoLCATs. The model runs over the batches with its softmax attention. Of
    every layer queries, keys and values of some sequences are kept, and to three quarters of them `features.fit` fits a
    map for each head of keys. The others judge: a layer's error is that of its outputs, over that of attending to all
    keys alike. The parameters stay as they are.

    Parameters
    ----------
    params : dict of arrays
        Parameters of a model that was trained with softmax attention.
    config : Config
        Its sizes and choices; without cross attention.
    batches : iterable of arrays, or of pairs
        Inputs as `forward` takes them, or pairs of those and a key_mask, as many as the model is to be seen with. They
        are read once.
    num_features : int
        Number of features of a head.
    kind : {"hedgehog", "exponential"}
        What is learnt, as `features.fit` has it. With a window "exponential" is often the better one.
    window : int
        How many tokens, a query's own among them, keep exact weights; for a causal model. Each head has a bias of
        exact scores then, chosen on the sequences of the fit.
    shared : bool
        Whether the heads of a layer have one map in common.
    output_scale : bool
        Whether outputs of a head are multiplied by the factor that suits them best, in least squares.
    sequences, length : int
        How many sequences are kept, at random of all that come, and how many of their first tokens. They bound the
        memory: 4 sequences length (h_q d + h (d + e)) bytes a layer.
    rng : int, SeedSequence, Generator or None
        Of everything that is random. A run that goes on must have the same one; None is that of the folder then.
    folder : str or PathLike, optional
        Where layers are written as they are fitted. A call with the same arguments goes on where another was stopped,
        and `transfer.load` reads what is complete.
    progress : bool or None
        Whether a bar on stderr shows the maps; None shows one on a terminal.

    Returns
    -------
    Transfer
        Attention of all layers, for ``attention=`` of `forward`, `prefill`, `step` and `generate`, and its errors.

    Raises
    ------
    DTypeError, ShapeError, ParameterError, MixedLibraryError
        If an argument does not fit, sequences hold NaN or are too few, or the folder holds another transfer.

    Warns
    -----
    UserWarning
        If a fit is no better than a random map, which that head has then.

    Examples
    --------
    See the page on transfer in the guide: a fit takes seconds.
    """
    instance_of("config", config, Config)
    check_params(params, config)
    if config.cross:
        raise ParameterError("transfer is for a config without cross attention; got cross=True")
    if all(config.mixer(layer) is not None for layer in range(config.layers)):
        raise ParameterError("transfer is for layers of attention; all layers of this config are gated")
    asked = settings_of(num_features, kind, window, shared, output_scale, sequences, length, rng)

    def record(recorder: Recorder) -> None:
        for batch in batches:
            x, mask = batch if isinstance(batch, tuple) else (batch, None)
            how = [_recording(recorder, layer, mask) for layer in range(config.layers)]
            forward(params, config, x, attention=how, key_mask=mask)

    return run(record, asked, _digest(params), folder, progress)


def _recording(recorder: Recorder, layer: int, mask: Any) -> Callable[..., Array]:
    """Return softmax attention that hands its rows to a recorder."""

    def attend(q: Array, k: Array, v: Array, *, causal: bool, key_mask: Array | None) -> Array:
        recorder.take(layer_name(layer), q, k, v, mask, causal, q.shape[-1] ** -0.5)
        return softmax_attention(q, k, v, causal=causal, key_mask=key_mask)

    return attend


def _digest(params: Params) -> str:
    """Return a number that tells parameters apart."""
    digest = blake2b(digest_size=16)
    for name in sorted(params):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(to_numpy64(params[name])).tobytes())
    return digest.hexdigest()
