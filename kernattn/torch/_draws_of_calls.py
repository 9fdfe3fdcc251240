"""Draws that calls had, for those calls that a backward pass computes again."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor

from kernattn.errors import ParameterError

CALLS = 256  # whose draws are kept
ALIKE = 16  # of them at most that began at one state of PyTorch's generator, as after a seed


class _Draw(NamedTuple):
    """The numbers of a draw that a call had, and a number that tells its queries from others."""

    omega: Tensor
    offset: Tensor | None
    digest: Tensor


class DrawsOfCalls:
    """The draws of the last calls, under numbers that a call finds again when it is computed again."""

    def __init__(self) -> None:
        self._kept: dict[int, deque[_Draw]] = {}

    def keep(self, call: int, q: Tensor, omega: Tensor, offset: Tensor | None) -> None:
        """Keep the numbers of the draw of a call with queries q."""
        self._kept.setdefault(call, deque(maxlen=ALIKE)).append(_Draw(omega, offset, q.detach().sum()))
        if len(self._kept) > CALLS:
            del self._kept[next(iter(self._kept))]

    def find(self, call: int | None, q: Tensor, omega: Tensor) -> tuple[Tensor, Tensor | None] | None:
        """Return the numbers that a call had; None where all calls had those of today, whose omega is given."""
        if all(each.omega is omega for alike in self._kept.values() for each in alike):
            return None
        draws = [] if call is None else list(self._kept.get(call, ()))
        if any(each.omega is not draws[0].omega for each in draws):
            digest = q.detach().sum()
            draws = [each for each in draws if torch.equal(each.digest, digest)]
        if not draws or any(each.omega is not draws[0].omega for each in draws):
            raise ParameterError(
                "a call that is computed again must have the draw that it had, and which it was is not known after a "
                "redraw: checkpoint with preserve_rng_state=True, or redraw between steps"
            )
        return draws[0].omega, draws[0].offset
