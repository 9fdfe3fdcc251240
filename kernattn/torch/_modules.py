"""Linear attention as modules of PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from kernattn._maps.chains import Chains
from kernattn._runtime.checks import boolean, instance_of, positive_integer, shown, whole_number
from kernattn._runtime.elsewhere import ToldKeywords
from kernattn.attention import LinearState, causal_linear_attention, linear_attention, linear_attention_step
from kernattn.errors import DTypeError, ParameterError, StateMismatchError
from kernattn.features import FeatureMap, elu1, random_features, with_numbers
from kernattn.kernels import Kernel
from kernattn.ops.dispatch import check_backend
from kernattn.torch._draws_of_calls import DrawsOfCalls
from kernattn.torch._heads import group_heads, join_heads
from kernattn.torch._outside import outside_graphs

MADE_WITH = "_kernattn_omega"  # of a state: the frequencies, which may be learnt on after it
UNTRACED = "a redraw_interval counts calls, in no graph: use None there, and redraw() between steps"


class LinearAttention(ToldKeywords, nn.Module):
    r"""Linear attention of heads, :math:`o_i = \phi(q_i)^T \sum_j \phi(k_j) v_j^T \,/\, \phi(q_i)^T \sum_j \phi(k_j)`.

    Katharopoulos et al. (2020), eq. 5. Tensors are (batch, heads, n, d), as those of PyTorch's
    `scaled_dot_product_attention`; k and v may have fewer heads than q, of which each then serves a group of queries.
    There are no projections in it, and nothing to be learnt.

    Parameters
    ----------
    phi : FeatureMap, optional
        The feature map, elu(x) + 1 by default.
    causal : bool
        Whether a token sees only itself and those before it.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs, as in :func:`kernattn.linear_attention`. Graphs that are exported of "reference" hold
        array operations and numbers alone: other processes run them without kernattn.

    Raises
    ------
    DTypeError, ParameterError
        If an argument does not fit.

    Examples
    --------
    >>> import torch
    >>> from kernattn.torch import LinearAttention
    >>> attention = LinearAttention(causal=True)
    >>> x = torch.ones(1, 2, 5, 4)
    >>> attention(x, x, x).shape
    torch.Size([1, 2, 5, 4])
    >>> out, state = attention.decode(x[:, :, :4], x[:, :, :4], x[:, :, :4])
    >>> out, state = attention.decode(x[:, :, 4:], x[:, :, 4:], x[:, :, 4:], state)
    >>> out.shape
    torch.Size([1, 2, 1, 4])
    """

    def __init__(self, phi: FeatureMap | None = None, *, causal: bool = False, backend: str | None = None) -> None:
        super().__init__()
        check_backend(backend)
        self.backend = backend
        if phi is None:
            phi = elu1()
        instance_of("phi", phi, FeatureMap, "such as kernattn.features.elu1()")
        self._phi, self.causal = _ready(phi), boolean("causal", causal)

    @property
    def phi(self) -> FeatureMap:
        """The feature map, as it is now."""
        return self._phi

    @property
    def _any_draw(self) -> FeatureMap:
        """The map of calls without a state, which need not say whose draw it is."""
        return self._phi

    def forward(self, q: Tensor, k: Tensor, v: Tensor, *, key_mask: Tensor | None = None) -> Tensor:
        """Return the attention of whole sequences.

        Parameters
        ----------
        q : (batch, heads, n, d) Tensor
            Queries.
        k : (batch, heads, l, d) Tensor
            Keys, or (batch, kv_heads, l, d) where groups of queries share them.
        v : (batch, heads, l, e) Tensor
            Values, of as many heads as keys.
        key_mask : (batch, l) bool Tensor, optional
            True where there is a key.

        Returns
        -------
        (batch, heads, n, e) Tensor
            Outputs; a row that sees no key is 0.
        """
        return self._attend(self._any_draw, q, k, v, key_mask)

    def _attend(self, phi: FeatureMap, q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Tensor:
        heads = group_heads(q, k, v, key_mask)
        if self.causal:
            out, _ = causal_linear_attention(*heads[:3], phi, key_mask=heads.key_mask, backend=self.backend)
        else:
            out = linear_attention(*heads[:3], phi, key_mask=heads.key_mask, backend=self.backend)
        return join_heads(out)

    def decode(
        self, q: Tensor, k: Tensor, v: Tensor, state: LinearState | None = None, *, key_mask: Tensor | None = None
    ) -> tuple[Tensor, LinearState]:
        """Return the causal attention of further tokens, one or many, and the state after them.

        Parameters
        ----------
        q, k, v : Tensor
            Queries, keys and values of the tokens, as in `forward`.
        state : LinearState, optional
            The state before them, as this method returns it; None at the beginning.
        key_mask : (batch, n) bool Tensor, optional
            True where there is a key.

        Returns
        -------
        out : (batch, heads, n, e) Tensor
            Outputs of the tokens.
        state : LinearState
            The state after them.
        """
        if not self.causal:
            raise ParameterError("decode is for causal attention; got a module with causal=False")
        self._check_numbers(state)
        out, state = self._decode(q, k, v, state, key_mask)
        self._note_numbers(state)
        return out, state

    def _check_numbers(self, state: LinearState | None) -> None:
        """Raise where a state was made with other numbers of what is learnt."""

    def _note_numbers(self, state: LinearState) -> None:
        """Take down the numbers with which a state was made."""

    def _decode(
        self, q: Tensor, k: Tensor, v: Tensor, state: LinearState | None, key_mask: Tensor | None
    ) -> tuple[Tensor, LinearState]:
        q, k, v, mask = group_heads(q, k, v, key_mask)
        if state is None or q.shape[-2] > 1:
            out, state = causal_linear_attention(q, k, v, self.phi, state=state, key_mask=mask, backend=self.backend)
            return join_heads(out), state
        row = None if mask is None else mask[..., 0]
        q, k, v = (x[..., 0, :] for x in (q, k, v))
        out, state = linear_attention_step(state, q, k, v, self.phi, key_mask=row, backend=self.backend)
        return join_heads(out[..., None, :]), state

    def extra_repr(self) -> str:
        """Return the text between the brackets of the module's repr."""
        return f"{self._phi!r}, causal={self.causal}"


class FavorAttention(LinearAttention):
    r"""Attention by random features of a kernel, :math:`\phi(x)^T \phi(y) \approx k(x, y)`: FAVOR+ for the softmax one.

    Choromanski et al. (2021). The frequencies `omega`, with the kernel's input scale folded in, are a part of the
    module's state: a loaded module gives what the saved one gave, and draws what that would have drawn. They move with
    the module, and are rounded where it is.

    Parameters
    ----------
    kernel : Kernel
        The kernel to estimate; ``ka.kernels.Softmax()`` for the attention of transformers.
    dim : int
        Dimension d of queries and keys.
    num_features : int
        The number of features.
    estimator : str
        Which features, as :func:`kernattn.random_features` names them, of those whose frequencies are a matrix.
    projection : str
        How frequencies are arranged, as in :func:`kernattn.random_features`.
    causal : bool
        Whether a token sees only itself and those before it.
    learnable : bool
        Whether `omega` is a parameter, which begins as a draw. It is a buffer else.
    redraw_interval : int, optional
        Redraw before every so many-th call in training. None redraws where `redraw` is called, and nowhere else.
    seed : int
        Seed of all draws.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs, as in :class:`LinearAttention`.
    device : torch.device, str or int, optional
        Where `omega` is; PyTorch's default device otherwise.
    dtype : torch.dtype, optional
        The dtype of `omega`; PyTorch's default dtype otherwise.

    Raises
    ------
    DTypeError, ParameterError
        If an argument does not fit, or frequencies that are learnt were to be redrawn every so often.

    Notes
    -----
    Calls are counted outside of graphs, so ``torch.compile(fullgraph=True)`` refuses a `redraw_interval`: call `redraw`
    between steps. A call that a backward pass computes again, as checkpointing and `reversible` do, is not counted, and
    has the draw that it had. It is one of the last 256, known by a number that each call takes from PyTorch's
    generator, which checkpointing puts back: ``preserve_rng_state=False`` is refused where there were redraws. Calls
    that begin at one seed are told apart by their queries.
    `reversible` refuses a redraw between a call and its backward pass. Without an interval, a redraw by hand is not
    noticed.

    Examples
    --------
    >>> import kernattn as ka
    >>> import torch
    >>> from kernattn.torch import FavorAttention
    >>> attention = FavorAttention(ka.kernels.Softmax(), dim=4, num_features=16, causal=True)
    >>> x = torch.ones(1, 2, 5, 4)
    >>> attention(x, x, x).shape
    torch.Size([1, 2, 5, 4])
    >>> list(attention.state_dict())
    ['omega', '_extra_state']
    """

    def __init__(
        self,
        kernel: Kernel,
        dim: int,
        num_features: int,
        *,
        estimator: str = "auto",
        projection: str = "orthogonal",
        causal: bool = False,
        learnable: bool = False,
        redraw_interval: int | None = None,
        seed: int = 0,
        backend: str | None = None,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if dtype is not None and (not isinstance(dtype, torch.dtype) or not dtype.is_floating_point):
            raise DTypeError(f"dtype must be a floating dtype of PyTorch, or None; got {shown(dtype)}")
        design = random_features(kernel, dim, num_features, estimator, projection, rng=0)
        spec = design.spec
        if spec is None or spec.omega is None or isinstance(spec.omega, Chains):
            raise ParameterError(f"the map must have frequencies that are a matrix; got {shown(design)}")
        learnable = boolean("learnable", learnable)
        if redraw_interval is not None:
            redraw_interval = positive_integer("redraw_interval", redraw_interval)
            if learnable:
                raise ParameterError(f"redraw_interval must be None for learnable features; got {redraw_interval}")
        super().__init__(design, causal=causal, backend=backend)
        self.redraw_interval, self._design = redraw_interval, self._phi
        self._seed, self._draws, self._calls = whole_number("seed", seed), 0, 0
        self._of_calls = DrawsOfCalls()
        self._copied: tuple[nn.Parameter, int, Tensor] | None = None
        omega, offset = (
            None if x is None else torch.zeros(x.shape, device=device, dtype=dtype) for x in (spec.omega, spec.offset)
        )
        self.omega = nn.Parameter(omega) if learnable else nn.Buffer(omega)
        self.offset = None if offset is None else nn.Buffer(offset)
        self._draw()

    @property
    def phi(self) -> FeatureMap:
        """The feature map, whose frequencies are the module's tensors."""
        return with_numbers(self._phi, omega=self.omega, offset=self.offset)

    @property
    def _any_draw(self) -> FeatureMap:
        return with_numbers(self._design, omega=self.omega, offset=self.offset)  # one graph serves all draws

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
            Outputs; a row that sees no key is 0.
        """
        phi = self._any_draw
        if self.training and self.redraw_interval is not None:
            phi = self._count_call(self.redraw_interval, q)
        return self._attend(phi, q, k, v, key_mask)

    def _check_numbers(self, state: LinearState | None) -> None:
        made = getattr(getattr(state, "s", None), MADE_WITH, None)
        if made is None or torch.compiler.is_compiling():
            return
        assert state is not None
        now = self._numbers()
        if now is None or made is now or state.fingerprint != self._phi.fingerprint:
            return
        if not torch.equal(made.to(now), now):
            raise StateMismatchError(
                "omega has been learnt on, or loaded, since the state was made: begin again from the first token"
            )

    def _note_numbers(self, state: LinearState) -> None:
        if not torch.compiler.is_compiling() and (now := self._numbers()) is not None:
            setattr(state.s, MADE_WITH, now)

    def _numbers(self) -> Tensor | None:
        """Return a copy of what is learnt, the same one until that changes; None where nothing is."""
        omega = self.omega
        if not isinstance(omega, nn.Parameter):
            return None
        if self._copied is None or self._copied[0] is not omega or self._copied[1] != omega._version:
            self._copied = omega, omega._version, omega.detach().clone()
        return self._copied[2]

    def redraw(self) -> None:
        """Give the module fresh features, which follow from the seed and from how many draws there were."""
        self._draws, self._calls = self._draws + 1, 0
        self._draw()

    def reset_parameters(self) -> None:
        """Draw the features anew, those that the seed and the number of redraws give, as after `to_empty`."""
        self._draw()

    def get_extra_state(self) -> Tensor:
        """Return the seed, how many redraws there were, and how many calls since, (3,)."""
        return torch.tensor([self._seed, self._draws, self._calls])

    def set_extra_state(self, state: Tensor) -> None:
        """Go on from the draws of another module."""
        held = isinstance(state, Tensor) and state.shape == (3,) and state.dtype == torch.int64
        if not held or bool((state < 0).any()):
            raise ParameterError(
                "_extra_state must hold a seed, redraws and calls, a (3,) int64 tensor of numbers from 0 on; "
                f"got {shown(state)}"
            )
        self._seed, self._draws, self._calls = state.tolist()
        self._phi = self._redrawn()

    @outside_graphs(UNTRACED)
    def _count_call(self, interval: int, q: Tensor) -> FeatureMap:
        """Return the map of a call, redrawn where that is due; of one that is computed again, the map that it had."""
        transformed = torch._C._functorch.get_interpreter_stack()  # where random numbers are no plain ones
        call = None if transformed else int(torch.randint(2**62, (), device="cpu"))
        if torch._C._current_graph_task_id() != -1:  # within a backward pass: a call of before is computed again
            drawn = self._of_calls.find(call, q, self.omega)
            return self._any_draw if drawn is None else with_numbers(self._design, omega=drawn[0], offset=drawn[1])
        if self._calls >= interval:
            self.redraw()
        self._calls += 1
        if call is not None:
            self._of_calls.keep(call, q, self.omega, self.offset)
        return self._any_draw

    def _draw(self) -> None:
        """Put the draw that is due in place of the module's numbers; graphs of before keep theirs."""
        self._phi = self._redrawn()
        for name in ("omega", "offset"):
            tensor = getattr(self, name)
            if tensor is None:
                continue
            with torch.inference_mode(False):  # what is drawn there is for training as well
                fresh = torch.tensor(getattr(self._phi.spec, name), dtype=tensor.dtype, device=tensor.device)
            if isinstance(tensor, nn.Parameter):
                with torch.no_grad():
                    tensor.copy_(fresh)
            else:
                setattr(self, name, fresh)

    def _redrawn(self) -> FeatureMap:
        return _ready(self._phi.redraw(np.random.default_rng([self._seed, self._draws])))


def _ready(phi: FeatureMap) -> FeatureMap:
    """Return a map after it has computed what it says of itself, which no graph can trace."""
    for name in ("fingerprint", "query_spec", "key_spec"):
        getattr(phi, name)
    return phi
