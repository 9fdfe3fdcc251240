"""Members of gated linear attention as layers: what each paper's layer has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

from kernattn._runtime.checks import boolean, one_of, positive_integer, shown, whole_number
from kernattn._runtime.elsewhere import ToldKeywords
from kernattn.errors import ParameterError


class Member(NamedTuple):
    """What sets a member's layer apart."""

    decay: str | None = None  # "constant", or computed for each "head" or each "channel"
    rate: bool = False  # is the log -e^A softplus(x), not log sigmoid(x) / 16?
    erases: bool = False  # is it a delta rule, whose keys have norm 1?
    state_space: bool = False  # are values times the step log(1 + e^x), scores as they are, and D v added?
    gate: str | None = "silu"  # of the output
    low_rank_gate: bool = False
    gate_first: bool = False  # or else the norm
    conv: int = 0  # tokens that the short convolution spans


MEMBERS = {
    "retention": Member("constant"),
    "gla": Member("channel"),
    "mamba2": Member("head", rate=True, state_space=True, gate_first=True, conv=4),
    "delta": Member(erases=True, gate=None, conv=4),
    "gated_delta": Member("head", rate=True, erases=True, conv=4),
    "kda": Member("channel", rate=True, erases=True, gate="sigmoid", low_rank_gate=True, conv=4),
}


@final
@dataclass(frozen=True, kw_only=True)
class Gated(ToldKeywords):
    r"""A layer of gated linear attention in place of attention, :math:`S_t^T q_t` of `gated_linear_attention`.

    Queries, keys and values are linear in the rows. In members with a convolution they pass a depthwise causal one and
    SiLU. Each head's output is divided by its root mean square and multiplied by a gate of the row, but DeltaNet has no
    gate. Mamba-2 adds :math:`D x`, and its gate comes before the norm, which is one for all heads that share a key.

    Parameters
    ----------
    member : {"retention", "gla", "mamba2", "delta", "gated_delta", "kda"}
        Whose layer it is: RetNet's (Sun et al. 2023; a root mean square in place of its GroupNorm, and no rotation);
        GLA's (Yang et al. 2024); Mamba-2's (Dao and Gu 2024); DeltaNet's (Yang et al. 2024); the gated delta rule's
        (Yang, Kautz and Hatamizadeh 2024), as Qwen3-Next has it; or Kimi Delta Attention (Kimi 2025).
    heads : int
        Heads of values.
    key_dim : int
        Width of a head of queries and keys: the size of the state of Mamba-2.
    value_dim : int
        Width of a head of values.
    key_heads : int, optional
        Heads of queries and keys, a divisor of `heads`, of which each serves a group of values: the groups of Mamba-2.
    conv : int, optional
        Tokens that the convolution spans, 0 for none; 4 in the members that have one by default.
    conv_bias : bool
        Whether the convolution has a bias.

    Raises
    ------
    ParameterError
        If a size or a choice is not one of those allowed.

    Examples
    --------
    >>> from kernattn.transformer import Config, Gated
    >>> layer = Gated(member="gated_delta", heads=4, key_dim=8, value_dim=8, key_heads=2)
    >>> config = Config(dim=16, layers=2, heads=2, vocab=5, positions="rotary", gated=(layer, None))
    >>> config.mixer(1) is None  # attention
    True
    """

    member: str
    heads: int
    key_dim: int
    value_dim: int
    key_heads: int | None = None
    conv: int | None = None
    conv_bias: bool = False

    def __post_init__(self) -> None:
        one_of("member", self.member, MEMBERS)
        for name in ("heads", "key_dim", "value_dim"):
            positive_integer(name, getattr(self, name))
        if self.key_heads is not None and self.heads % positive_integer("key_heads", self.key_heads):
            raise ParameterError(f"key_heads must divide heads = {self.heads}; got {self.key_heads}")
        if self.conv is not None:
            whole_number("conv", self.conv)
        if boolean("conv_bias", self.conv_bias) and not self.span:
            raise ParameterError(f"conv_bias is for a layer with a convolution; got {shown(self)}")

    @property
    def kind(self) -> Member:
        """What sets the member apart."""
        return MEMBERS[self.member]

    @property
    def span(self) -> int:
        """Tokens that the convolution spans, 0 for none."""
        return self.kind.conv if self.conv is None else self.conv

    @property
    def groups(self) -> int:
        """Heads of queries and keys."""
        return self.heads if self.key_heads is None else self.key_heads

    @property
    def keys(self) -> int:
        """Columns of queries, and of keys."""
        return self.groups * self.key_dim

    @property
    def values(self) -> int:
        """Columns of values."""
        return self.heads * self.value_dim

    @property
    def channels(self) -> int:
        """Columns of queries, keys and values."""
        return 2 * self.keys + self.values

    @property
    def decays(self) -> int:
        """Columns of decays, 0 where none is computed."""
        return {"head": self.heads, "channel": self.keys}.get(self.kind.decay or "", 0)

    @property
    def decay_rank(self) -> int:
        """Rank of the matrix that decays of channels come from, 0 for a full one: 16 in GLA, that of a head in KDA."""
        return 0 if self.kind.decay != "channel" else self.value_dim if self.kind.rate else 16

    @property
    def gate_rank(self) -> int:
        """Rank of the matrix that the gate of the output comes from, 0 for a full one."""
        return self.value_dim if self.kind.low_rank_gate else 0
