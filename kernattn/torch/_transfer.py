"""Softmax attention as a module, and what stands in its place after a transfer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

import torch
from torch import Tensor, nn

from kernattn._runtime.checks import boolean, instance_of, positive_number, shown
from kernattn._runtime.deprecated import old_arguments
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.random import RNG
from kernattn.attention import softmax_attention
from kernattn.errors import ParameterError
from kernattn.torch._heads import group_heads, join_heads
from kernattn.torch._names import digest_of, modules_of, owner_of
from kernattn.transfer import Heads, Transfer, load
from kernattn.transfer._heads import State
from kernattn.transfer._rows import Recorder
from kernattn.transfer._run import run, settings_of


class SoftmaxAttention(nn.Module):
    r"""Exact attention of heads, :math:`o_i = \sum_j e^{s q_i^T k_j} v_j / \sum_j e^{s q_i^T k_j}`.

    Tensors are (batch, heads, n, d), as those of `LinearAttention`. There are no projections in it. `transfer` knows a
    model's attention by this module.

    Parameters
    ----------
    causal : bool
        Whether a token sees only itself and those before it.
    scale : float, optional
        The scale s of scores, d^(-1/2) by default.

    Raises
    ------
    ParameterError
        If an argument does not fit.

    Examples
    --------
    >>> import torch
    >>> from kernattn.torch import SoftmaxAttention
    >>> x = torch.ones(1, 2, 5, 4)
    >>> SoftmaxAttention(causal=True)(x, x, x).shape
    torch.Size([1, 2, 5, 4])
    """

    def __init__(self, *, causal: bool = False, scale: float | None = None) -> None:
        super().__init__()
        self.causal = boolean("causal", causal)
        self.scale = None if scale is None else positive_number("scale", scale)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, key_mask: Tensor | None = None) -> Tensor:
        """Return the attention of whole sequences, as `LinearAttention.forward` does.

        Parameters
        ----------
        q, k, v : Tensor
            Queries, keys and values of heads.
        key_mask : (batch, l) bool Tensor, optional
            True where there is a key.

        Returns
        -------
        (batch, heads, n, e) Tensor
            Outputs.
        """
        heads = group_heads(q, k, v, key_mask)
        return join_heads(softmax_attention(*heads[:3], scale=self.scale, causal=self.causal, key_mask=heads.key_mask))

    def extra_repr(self) -> str:
        """Return the text between the brackets of the module's repr."""
        return f"causal={self.causal}, scale={self.scale}"


class HeadAttention(nn.Module):
    """Attention by a map for each head, exact within a window: what `transfer` puts in place of `SoftmaxAttention`.

    The maps stay as they are while the model is trained on. They are no part of its state_dict, which holds a number
    that belongs to them: one of other maps is refused.

    Parameters
    ----------
    heads : Heads
        The maps, the window, biases and factors.
    causal : bool
        Whether a token sees only itself and those before it.

    Raises
    ------
    DTypeError, ParameterError
        If an argument does not fit.

    Examples
    --------
    >>> import kernattn as ka
    >>> import torch
    >>> from kernattn.torch import HeadAttention
    >>> phi = ka.random_features(ka.kernels.Softmax(), 4, 16, rng=0)
    >>> attention = HeadAttention(ka.transfer.Heads(phi, window=2), causal=True)
    >>> x = torch.ones(1, 2, 5, 4)
    >>> attention(x, x, x).shape
    torch.Size([1, 2, 5, 4])
    """

    def __init__(self, heads: Heads, *, causal: bool = False) -> None:
        super().__init__()
        instance_of("heads", heads, Heads)
        if heads.window and not boolean("causal", causal):
            raise ParameterError(f"a window is for causal attention; got causal=False and window={heads.window}")
        self.heads, self.causal = heads, boolean("causal", causal)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, key_mask: Tensor | None = None) -> Tensor:
        """Return the attention of whole sequences, as `LinearAttention.forward` does.

        Parameters
        ----------
        q, k, v : Tensor
            Queries, keys and values of heads.
        key_mask : (batch, l) bool Tensor, optional
            True where there is a key.

        Returns
        -------
        (batch, heads, n, e) Tensor
            Outputs.
        """
        q, k, v, mask = group_heads(q, k, v, key_mask)
        return join_heads(self.heads.attend(q, k, v, causal=self.causal, key_mask=mask))

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, state: State | None = None, *, key_mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """Return the causal attention of further tokens, and the state after them, as `LinearAttention.decode` does.

        Parameters
        ----------
        q, k, v : Tensor
            Queries, keys and values of the tokens.
        state : LinearState or WindowState, optional
            The state before them; None at the beginning.
        key_mask : (batch, n) bool Tensor, optional
            True where there is a key.

        Returns
        -------
        out : (batch, heads, n, e) Tensor
            Outputs of the tokens.
        state : LinearState or WindowState
            The state after them.
        """
        if not self.causal:
            raise ParameterError("decode is for causal attention; got a module with causal=False")
        q, k, v, mask = group_heads(q, k, v, key_mask)
        if state is None or q.shape[-2] > 1:
            out, state = self.heads.prefill(q, k, v, state=state, key_mask=mask)
        else:
            out, state = self.heads.step(state, q, k, v, key_mask=mask)
        return join_heads(out), state

    def get_extra_state(self) -> Tensor:
        """Return the number of the maps, ()."""
        return torch.tensor(self.heads.fingerprint)

    def set_extra_state(self, state: Tensor) -> None:
        """Raise unless a saved module had these maps."""
        if not isinstance(state, Tensor) or state.numel() != 1 or int(state) != self.heads.fingerprint:
            raise ParameterError(
                f"_extra_state must be {self.heads.fingerprint}, the number of this module's maps; got "
                f"{shown(state)}: load_transfer the folder of the model that was saved"
            )

    def extra_repr(self) -> str:
        """Return the text between the brackets of the module's repr."""
        return f"{self.heads!r}, causal={self.causal}"


class Swap:
    """What a transfer put into a model, until `undo` is called or its `with` statement ends.

    Attributes
    ----------
    transfer : Transfer
        The maps and their errors; ``print`` shows these.
    """

    def __init__(self, transfer: Transfer, put_back: list[Callable[[], object]]) -> None:
        self.transfer, self._put_back = transfer, put_back

    def undo(self) -> None:
        """Put softmax attention back; weights that were trained since stay as they are."""
        while self._put_back:
            self._put_back.pop()()

    def save(self, folder: str | PathLike[str]) -> None:
        """Write the maps to a folder, as `Transfer.save` does.

        Parameters
        ----------
        folder : str or PathLike
            The folder.
        """
        self.transfer.save(folder)

    def __enter__(self) -> Swap:
        return self

    def __exit__(self, *_: object) -> None:
        self.undo()

    def __str__(self) -> str:
        return str(self.transfer)

    def __repr__(self) -> str:
        return f"Swap({self.transfer!r})"


Swap.__module__ = "kernattn.torch"  # one class for the pages of this room and of huggingface's


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
    """Put linear attention that is fitted to it in place of the softmax attention of a trained model.

    What `ka.transformer.transfer` does, for a module of PyTorch whose attention is `SoftmaxAttention`: each of these
    becomes a `HeadAttention`. The weights stay as they are, and can be trained on.

    Parameters
    ----------
    model : torch.nn.Module
        The model, which is changed in place.
    batches : iterable
        Inputs of the model: a tensor, a tuple of positional arguments or a mapping of named ones.
    num_features, kind, window, shared, output_scale, sequences, length, rng, folder, progress : object
        As `ka.transformer.transfer` takes them.

    Returns
    -------
    Swap
        The maps, their errors, and the way back.

    Raises
    ------
    DTypeError, ShapeError, ParameterError
        If an argument does not fit, the model has no `SoftmaxAttention`, sequences hold NaN or are too few, or the
        folder holds another transfer.

    Warns
    -----
    UserWarning
        If a fit is no better than a random map, which that head has then.

    Examples
    --------
    See the page on transfer in the guide: a fit takes seconds.
    """
    places = _places(model)
    asked = settings_of(num_features, kind, window, shared, output_scale, sequences, length, rng)

    def record(recorder: Recorder) -> None:
        def note(name: str, module: SoftmaxAttention, args: Any, kwargs: Any) -> None:
            q, k, v, mask = _order_arguments(*args, **kwargs)
            heads = group_heads(q, k, v, mask)
            scale = q.shape[-1] ** -0.5 if module.scale is None else module.scale
            recorder.take(name, *heads[:3], mask, module.causal, scale)

        hooks = [
            module.register_forward_pre_hook(lambda m, a, kw, name=name: note(name, m, a, kw), with_kwargs=True)
            for name, module in places.items()
        ]
        try:
            run_model(model, batches)
        finally:
            for hook in hooks:
                hook.remove()

    return _swap(model, places, run(record, asked, digest_of(model), folder, progress))


def load_transfer(model: nn.Module, folder: str | PathLike[str]) -> Swap:
    """Put maps that a folder holds in place of the softmax attention of a model, as `transfer` left it.

    Parameters
    ----------
    model : torch.nn.Module
        The model, whose attention is `SoftmaxAttention`; it is changed in place. Load the state_dict of the model that
        was saved after this.
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
        If the transfer is of another model.
    """
    return _swap(model, _places(model), load(folder))


def _order_arguments(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None = None) -> tuple[Any, ...]:
    return q, k, v, key_mask


def _places(model: Any) -> dict[str, SoftmaxAttention]:
    instance_of("model", model, nn.Module)
    places = {name: each for name, each in modules_of(model).items() if isinstance(each, SoftmaxAttention)}
    if not places or "" in places:
        raise ParameterError(
            f"model must hold modules SoftmaxAttention, by which a transfer knows its attention; got "
            f"{type(model).__name__}" + " itself one" * bool(places)
        )
    return places


def _swap(model: nn.Module, places: dict[str, SoftmaxAttention], made: Transfer) -> Swap:
    check_names(made, places)
    put_back: list[Callable[[], object]] = []
    for layer in made.layers:
        own = places[layer.name]
        new = HeadAttention(layer.heads, causal=own.causal).train(own.training)
        everywhere = list(model.named_modules(remove_duplicate=False))  # layers may share one module
        for owner, child in [owner_of(model, name) for name, each in everywhere if each is own]:
            held = getattr(owner, child)
            setattr(owner, child, new)
            put_back.append(lambda owner=owner, child=child, held=held: setattr(owner, child, held))  # type: ignore[misc]
    return Swap(made, put_back)


def check_names(made: Transfer, names: Iterable[str]) -> None:
    """Raise unless a model has all layers of a transfer."""
    missing = {layer.name for layer in made.layers} - set(names)
    if missing:
        raise ParameterError(f"the transfer must be of this model, which has no attention {', '.join(sorted(missing))}")


def run_model(model: nn.Module, batches: Iterable[Any]) -> None:
    """Run a model over batches as in evaluation, and leave its modules in the modes in which they were."""
    if isinstance(batches, Tensor | Mapping | str):
        raise ParameterError(f"batches must be an iterable of batches, such as a list of one; got {shown(batches)}")
    with _evaluation(model), torch.no_grad():
        for batch in batches:
            if isinstance(batch, Mapping):
                model(**batch)
            elif isinstance(batch, tuple | list):
                model(*batch)
            elif isinstance(batch, Tensor):
                model(batch)
            else:
                raise ParameterError(f"a batch must be a tensor, a tuple or a mapping of them; got {shown(batch)}")


@contextmanager
def _evaluation(model: nn.Module) -> Any:
    modes = {each: each.training for each in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for each, training in modes.items():
            each.training = training
