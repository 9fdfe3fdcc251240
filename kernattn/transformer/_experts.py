"""Sizes of feed-forward parts of experts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from kernattn._runtime.checks import boolean, positive_integer, whole_number
from kernattn.errors import ParameterError


@final
@dataclass(frozen=True, kw_only=True)
class Experts:
    r"""A feed-forward part of experts, :math:`\sum_{i \in \mathrm{top}} p_i f_i(x) + \sigma(w^T x) f_{shared}(x)`.

    p is the softmax of a linear map of the row, and top its largest entries (Shazeer et al. 2017). Each expert is a
    "swiglu" without biases.

    Parameters
    ----------
    num_experts : int
        How many there are.
    num_chosen : int
        How many each token takes.
    hidden : int
        Width of an expert.
    shared : int
        Width of an expert that every token takes, times a sigmoid of the row; 0 for none.
    normalise : bool
        Whether the p of those that are chosen are divided by their sum.

    Raises
    ------
    ParameterError
        If a size or a choice is not one of those allowed.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.transformer import Config, Experts, forward, initial_params
    >>> experts = Experts(num_experts=4, num_chosen=2, hidden=6)
    >>> config = Config(dim=8, layers=2, heads=2, vocab=5, positions=None, experts=(None, experts))
    >>> forward(initial_params(config, rng=0), config, np.array([[0, 3, 1]])).shape
    (1, 3, 5)
    """

    num_experts: int
    num_chosen: int
    hidden: int
    shared: int = 0
    normalise: bool = True

    def __post_init__(self) -> None:
        for name in ("num_experts", "num_chosen", "hidden"):
            positive_integer(name, getattr(self, name))
        if self.num_chosen > self.num_experts:
            raise ParameterError(f"num_chosen must be {self.num_experts} at most; got {self.num_chosen}")
        whole_number("shared", self.shared)
        boolean("normalise", self.normalise)
