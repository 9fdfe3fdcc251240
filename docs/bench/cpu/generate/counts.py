r"""Products of generating a sequence, counted: flops of a mean step of one sequence, a multiply-add as two.

D is the width, d that of a head, n the number of steps, L the layers; matrices have 12 D^2 numbers a layer. Embeddings,
norms, nonlinearities and logits are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """So many steps of a transformer of so many layers; D is heads times d."""

    steps: int
    layers: int
    heads: int = 8
    d: int = 32

    @property
    def dim(self) -> int:
        """Width of the rows between layers."""
        return self.heads * self.d


def linear(s: Setting) -> float:
    """L (24 D^2 + 4 D d): S gets a product of d^2 for each head, and is read by another; m is d, as of elu + 1."""
    return s.layers * (24.0 * s.dim**2 + 4.0 * s.dim * s.d)


def whole(s: Setting, masked: bool = False) -> float:
    """n L (24 D^2 + 2 n D): all tokens at every step; 4 n D where masked scores are computed, too."""
    return s.steps * s.layers * (24.0 * s.dim**2 + (4.0 if masked else 2.0) * s.steps * s.dim)


def prefixes(s: Setting) -> float:
    """The mean over t of (L - 1) (24 D^2 t + 2 D t^2) + 4 D^2 t + 20 D^2 + 4 D t.

    All tokens so far, masked scores left out; in the last layer keys and values of all of them, the rest of the last.
    """
    t, square = s.steps / 2, s.steps**2 / 3
    below = 24.0 * s.dim**2 * t + 2.0 * s.dim * square
    return (s.layers - 1) * below + 4.0 * s.dim**2 * t + 20.0 * s.dim**2 + 4.0 * s.dim * t


def cached(s: Setting) -> float:
    """L (24 D^2 + 4 D n / 2): the token against all keys so far, n / 2 in the mean."""
    return s.layers * (24.0 * s.dim**2 + 2.0 * s.dim * s.steps)
