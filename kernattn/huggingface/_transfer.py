"""Transfer of models of transformers: recorded, fitted and swapped through the names under which attention is found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from kernattn._arrays.namespaces import namespace
from kernattn._runtime.checks import instance_of
from kernattn._runtime.deprecated import old_arguments
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.random import RNG
from kernattn.attention import softmax_attention
from kernattn.errors import ParameterError
from kernattn.huggingface._attention import give_back
from kernattn.huggingface._cache import find_layer
from kernattn.huggingface._call import Call, read_call
from kernattn.huggingface._masks import make_key_mask
from kernattn.torch import Swap
from kernattn.torch._names import digest_of, modules_of
from kernattn.torch._transfer import check_names, run_model
from kernattn.transfer import Heads, Transfer, load
from kernattn.transfer._rows import Recorder
from kernattn.transfer._run import run, settings_of

NAME = "kernattn_transfer"
RECORDING = "kernattn_recording"
HEADS = "kernattn_heads"  # the attribute of a layer that has its maps
NOTED = "kernattn_transfer"  # where a model's config says which maps it has
ASKED = "attn_implementation"  # by which the config of a model that is loaded asks for attention


@told_keywords
@old_arguments(seed="rng")
def transfer(
    model: nn.Module,
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
) -> Swap:
    """Put linear attention that is fitted to it in place of the softmax attention of a model of transformers.

    What `ka.transformer.transfer` does. The layers' attention is found, and replaced, through the interface by which
    ``model.set_attn_implementation`` swaps it, under the name "kernattn_transfer". The weights stay as they are,
    and can be trained on. `StateCache` serves generation.

    Parameters
    ----------
    model : torch.nn.Module
        A model of transformers whose attention `register` can swap.
    batches : iterable
        Inputs of the model: a tensor of tokens, or a mapping, as a tokenizer returns it. Padded tokens are left out.
    num_features, kind, window, shared, output_scale, sequences, length, rng, folder, progress : object
        As `ka.transformer.transfer` takes them. Groups of queries that share keys share a map.

    Returns
    -------
    Swap
        The maps, their errors, and the way back.

    Raises
    ------
    DTypeError, ShapeError, ParameterError
        If an argument does not fit, no layer of the model asks for attention by name, or for one that kernattn has not,
        sequences hold NaN or are too few, or the folder holds another transfer.

    Warns
    -----
    UserWarning
        If a fit is no better than a random map, which that head has then.

    Examples
    --------
    See the page on transfer in the guide: a fit takes seconds.
    """
    before = _implementation(model)
    asked = settings_of(num_features, kind, window, shared, output_scale, sequences, length, rng)
    names = {id(each): name for name, each in modules_of(model).items()}

    def record(recorder: Recorder) -> None:
        def attention(
            module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
        ) -> tuple[Tensor, None]:
            call = read_call(module, query, key, value, *args, **kwargs)
            mask = None if call.key_mask is None else call.key_mask.reshape(-1, call.key_mask.shape[-1])
            recorder.take(names[id(module)], call.q, call.k, call.v, mask, call.causal, call.scale)
            q, k, v = call[:3]
            return give_back(softmax_attention(q, k, v, scale=call.scale, causal=call.causal, key_mask=call.key_mask))

        _register(RECORDING, attention)
        model.set_attn_implementation(RECORDING)
        try:
            run_model(model, batches)
        finally:
            model.set_attn_implementation(before)
        if not recorder.places:
            raise ParameterError(
                f"model must have layers that ask for attention by name, and batches one batch at least; no layer of "
                f"{type(model).__name__} asked"
            )

    return _swap(model, run(record, asked, digest_of(model), folder, progress))


def load_transfer(model: nn.Module, folder: str | PathLike[str]) -> Swap:
    """Put maps that a folder holds in place of the softmax attention of a model, as `transfer` left it.

    Parameters
    ----------
    model : torch.nn.Module
        The model, with the weights that it was saved with.
    folder : str or PathLike
        What `Swap.save` wrote, or the folder of a transfer.

    Returns
    -------
    Swap
        The maps, and the way back.

    Raises
    ------
    FileFormatError, FileNotFoundError
        As `ka.transfer.load` does.
    ParameterError
        If the transfer is of another model, or the model was saved with another one.
    """
    _implementation(model)
    made = load(folder)
    noted = getattr(model.config, NOTED, None)
    if noted is not None and noted != made.fingerprint:
        raise ParameterError(
            f"folder must hold the transfer with which the model was saved, {noted}; {folder} holds {made.fingerprint}"
        )
    return _swap(model, made)


def _implementation(model: Any) -> str:
    """Return the name of a model's attention."""
    instance_of("model", model, nn.Module)
    if not hasattr(model, "set_attn_implementation"):
        raise ParameterError(f"model must be a model of transformers; got {type(model).__name__}")
    return str(model.config._attn_implementation)


def _register(name: str, attention: Callable[..., Any]) -> None:
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, make_key_mask)


def _swap(model: Any, made: Transfer) -> Swap:
    before, noted = _implementation(model), {name: getattr(model.config, name, None) for name in (NOTED, ASKED)}
    modules = modules_of(model)
    check_names(made, modules)
    own = {layer.name: getattr(modules[layer.name], HEADS, None) for layer in made.layers}
    if before == NAME and not any(own.values()):  # loaded, and without maps so far
        before = model.get_correct_attn_implementation(None)
    for layer in made.layers:
        setattr(modules[layer.name], HEADS, layer.heads)
    setattr(model.config, NOTED, made.fingerprint)
    setattr(model.config, ASKED, NAME)
    model.set_attn_implementation(NAME)

    def put_back() -> None:
        model.set_attn_implementation(before)
        for name, value in noted.items():
            _put(model.config, name, value)
        for name, heads in own.items():
            _put(modules[name], HEADS, heads)

    return Swap(made, [put_back])


def _put(of: Any, name: str, value: Any) -> None:
    if value is None:
        delattr(of, name)
    else:
        setattr(of, name, value)


def transferred_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    """Return a layer's transferred attention (batch, n, heads, e) of heads (batch, heads, n, d)."""
    heads: Heads | None = getattr(module, HEADS, None)
    if heads is None:
        raise ParameterError(
            f"{type(module).__name__} has no transferred attention: call load_transfer with the maps that were saved, "
            f"or transfer; model.set_attn_implementation('sdpa') takes its softmax"
        )
    layer = find_layer(key)
    call = read_call(module, query, key, value, *args, **kwargs)
    if layer is not None:
        if not call.causal:
            raise ParameterError("a StateCache is for causal attention; got attention of all tokens to all")
        out = layer.read(call.k.shape[-2], lambda state: _continue(state, call, heads))
    elif call.causal:
        out = _attend_last(call, heads)
    else:
        out = heads.attend(call.q, call.k, call.v, causal=False, key_mask=call.key_mask)
    return give_back(out)


def _continue(state: Any, call: Call, heads: Heads) -> tuple[Tensor, Any]:
    """Return causal attention after a state, and the state after it."""
    if state is None or call.q.shape[-2] > 1:
        return heads.prefill(*call[:3], state=state, key_mask=call.key_mask)
    return heads.step(state, *call[:3], key_mask=call.key_mask)


def _attend_last(call: Call, heads: Heads) -> Tensor:
    """Return causal attention of n queries, the last of l tokens: the keys before them are a state."""
    q, k, v, mask = call[:4]
    first = k.shape[-2] - q.shape[-2]
    if not first:
        return heads.attend(q, k, v, causal=True, key_mask=mask)
    early, late = (None, None) if mask is None else (mask[..., :first], mask[..., first:])
    before = k[..., :first, :], v[..., :first, :]
    if heads.window:
        nothing = namespace(k=k).zeros_like(before[0])
        state = heads.prefill(nothing, *before, key_mask=early)[1]
    else:
        state = heads.summarise(*before, key_mask=early)
    return heads.prefill(q, k[..., first:, :], v[..., first:, :], state=state, key_mask=late)[0]


_register(NAME, transferred_attention)  # by which models that are loaded ask for it, before their maps are there
