"""Sizes and choices of a transformer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from kernattn._runtime.checks import (
    boolean,
    instance_of,
    one_of,
    positive_integer,
    positive_number,
    shown,
    whole_number,
)
from kernattn._runtime.elsewhere import ToldKeywords
from kernattn.errors import ParameterError
from kernattn.transformer._experts import Experts
from kernattn.transformer._members import Gated

ACTIVATIONS = "relu", "gelu", "gelu_tanh", "swiglu"
NORMS = "layer", "rms"
POSITIONS = "learnt", "sinusoidal", "axial", "rotary"
HEADS = "tokens", "tied", "classes"


@final
@dataclass(frozen=True, kw_only=True)
class Config(ToldKeywords):
    r"""A transformer of L layers, :math:`T_l(x) = f_l(A_l(x) + x)`, with A attention and f the feed-forward part.

    Vaswani et al. (2017); Katharopoulos et al. (2020), eq. 1. Attention itself is no part of it: `forward` takes any.

    Parameters
    ----------
    dim : int
        Width of the rows between layers.
    layers : int
        Number of layers.
    heads : int
        Heads of attention.
    vocab : int, optional
        Number of tokens, where inputs are integers (..., n).
    inputs : int, optional
        Columns of the inputs, where they are vectors (..., n, inputs). One of the two is given.
    length : int, optional
        The most positions, for learnt ones.
    grid : tuple of int, optional
        Rows and columns (or more axes), for axial positions: the embedding of a token is the sum of those of its axes.
    kv_heads : int, optional
        Heads of keys and values, a divisor of `heads`, of which each serves a group of queries.
    head_dim : int, optional
        Width of a head; dim / heads by default.
    hidden : int, optional
        Width of the feed-forward part; 4 dim by default, 0 for layers without one.
    activation : {"relu", "gelu", "gelu_tanh", "swiglu"}
        Of the feed-forward part; "gelu_tanh" is the approximation by a hyperbolic tangent that GPT-2 has.
    norm : {"layer", "rms"}
        LayerNorm (Ba et al. 2016) or RMSNorm (Zhang and Sennrich 2019).
    norm_first : bool
        Whether a part normalises its input, and the last layer is normalised too; or else the sum after it.
    eps : float
        Added to the variance in norms.
    positions : {"learnt", "sinusoidal", "axial", "rotary"} or None
        How a token tells where it stands; "rotary" turns halves of queries and keys (Su et al. 2021).
    theta : float
        Base of the periods of sinusoidal and rotary positions.
    rotary_dim : int, optional
        How many numbers of a head rotary positions turn, the first ones; all by default.
    bias : bool
        Whether linear maps and LayerNorm have a bias.
    causal : bool
        Whether a token sees only itself and those before it.
    cross : bool
        Whether layers also attend to a memory, as those of a decoder do.
    output : {"tokens", "tied", "classes"} or None
        Logits of each token by a matrix of their own; by the embedding; logits of `classes` for the mean row; or rows.
    classes : int, optional
        Number of classes.
    types : int
        Number of types of tokens, of which each has an embedding; 0 for none.
    embedding_norm : bool
        Whether embeddings are normalised.
    head_norm : bool
        Whether queries and keys of attention are normalised, head by head, before positions turn them.
    head_gate : bool
        Whether what heads attend to is multiplied by the sigmoid of a linear map of their row.
    gated : Gated, tuple of Gated and None, or None
        Layers of gated linear attention in place of attention: all layers, or those where the tuple has no None.
    experts : Experts, tuple of Experts and None, or None
        Layers whose feed-forward part is one of experts, likewise.

    Raises
    ------
    ParameterError
        If a size or a choice is not one of those allowed, or two do not go together.

    Examples
    --------
    >>> from kernattn.transformer import Config
    >>> Config(dim=32, layers=2, heads=4, vocab=256, length=784).head_width
    8
    """

    dim: int
    layers: int
    heads: int
    vocab: int | None = None
    inputs: int | None = None
    length: int | None = None
    grid: tuple[int, ...] | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    hidden: int | None = None
    activation: str = "gelu"
    norm: str = "layer"
    norm_first: bool = True
    eps: float = 1e-5
    positions: str | None = "learnt"
    theta: float = 10000.0
    bias: bool = True
    causal: bool = True
    cross: bool = False
    output: str | None = "tokens"
    classes: int | None = None
    types: int = 0
    embedding_norm: bool = False
    rotary_dim: int | None = None
    head_norm: bool = False
    head_gate: bool = False
    gated: Gated | tuple[Gated | None, ...] | None = None
    experts: Experts | tuple[Experts | None, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("dim", "layers", "heads"):
            positive_integer(name, getattr(self, name))
        for name in ("vocab", "inputs", "length", "kv_heads", "head_dim", "classes", "rotary_dim"):
            if getattr(self, name) is not None:
                positive_integer(name, getattr(self, name))
        if self.hidden is not None:
            whole_number("hidden", self.hidden)
        one_of("activation", self.activation, ACTIVATIONS)
        one_of("norm", self.norm, NORMS)
        for name, allowed in (("positions", POSITIONS), ("output", HEADS)):
            if getattr(self, name) is not None:
                one_of(name, getattr(self, name), allowed)
        for name in ("norm_first", "bias", "causal", "cross", "embedding_norm", "head_norm", "head_gate"):
            boolean(name, getattr(self, name))
        positive_number("eps", self.eps)
        positive_number("theta", self.theta)
        whole_number("types", self.types)
        grid: Any = self.grid
        if grid is not None:
            if not isinstance(grid, tuple) or not grid:
                raise ParameterError(f"grid must be a tuple of the sizes of its axes; got {shown(grid)}")
            for size in grid:
                positive_integer("a size of grid", size)
        for name, kind in (("gated", Gated), ("experts", Experts)):
            given: Any = getattr(self, name)
            for each in given if isinstance(given, tuple) else (given,):
                if each is not None:
                    instance_of(name, each, kind)
            if isinstance(given, tuple) and len(given) != self.layers:
                raise ParameterError(f"{name} must be one for all layers or one for each of {self.layers}; got {given}")
        self._check_pairs()

    def _check_pairs(self) -> None:
        _check((self.vocab is None) != (self.inputs is None), "vocab or inputs must be given, and not both", self)
        _check(self.head_dim is not None or self.dim % self.heads == 0, "heads must divide dim", self)
        _check(self.heads % self.key_heads == 0, "kv_heads must divide heads", self)
        _check(
            (self.positions == "learnt") == (self.length is not None),
            "length must be given for learnt positions, and for no others",
            self,
        )
        _check(
            (self.positions == "axial") == (self.grid is not None),
            "grid must be given for axial positions, and for no others",
            self,
        )
        _check(
            self.positions == "rotary" or self.rotary_dim is None,
            "rotary_dim must be given for rotary positions, and for no others",
            self,
        )
        _check(
            self.positions != "rotary" or (self.turned % 2 == 0 and self.turned <= self.head_width),
            "rotary positions need an even head_dim, or an even rotary_dim of at most head_dim",
            self,
        )
        _check(self.gated is None or self.causal, "layers of gated linear attention are causal", self)
        _check(
            (self.output == "classes") == (self.classes is not None),
            "classes must be given for the output 'classes', and for no other",
            self,
        )
        _check(self.output not in ("tokens", "tied") or self.vocab is not None, "logits of tokens need vocab", self)

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.dim // self.heads if self.head_dim is None else self.head_dim

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def turned(self) -> int:
        """How many numbers of a head rotary positions turn."""
        return self.head_width if self.rotary_dim is None else self.rotary_dim

    def mixer(self, layer: int) -> Gated | None:
        """Return the gated linear attention of a layer, None where it attends."""
        return self.gated[layer] if isinstance(self.gated, tuple) else self.gated

    def experts_of(self, layer: int) -> Experts | None:
        """Return the experts of a layer, None where it has one feed-forward part, or none."""
        return self.experts[layer] if isinstance(self.experts, tuple) else self.experts

    @property
    def hidden_width(self) -> int:
        """Width of the feed-forward part."""
        return 4 * self.dim if self.hidden is None else self.hidden


def _check(fits: bool, message: str, config: Config) -> None:
    if not fits:
        raise ParameterError(f"{message}; got {config!r}")
