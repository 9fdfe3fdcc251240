r"""The laws of the frequencies' norms, and the moments that follow from them.

For directions uniform on the sphere, every isotropic random feature has its mean and variance from one function of the
norm's law: with rho^2 the sum of `rows` independent squared norms, E[exp(tilt rho^2) 0F1(; d/2; t2 rho^2 / 4)].
Cosines give t2 = -|x - y|^2, exponentials t2 = |x + y|^2; two rows that are orthogonal act as one of norm rho.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._array import Host
from kernattn.projections.hypergeometric import hyp0f1, hyp1f1, log_hyp0f1, log_hyp1f1

__all__ = ["NORM_LAWS", "Chi", "NormLaw", "SqrtD"]


class NormLaw(ABC):
    """A law of the norms of frequencies whose directions are uniform."""

    @abstractmethod
    def sample(self, m: int, d: int, generator: np.random.Generator) -> Host:
        """Return m independent norms, (m,)."""

    @abstractmethod
    def moment(self, d: int, t2: Host, *, tilt: float = 0.0, rows: int = 1) -> Host:
        """Return E[exp(tilt rho^2) 0F1(; d/2; t2 rho^2 / 4)] for t2 of either sign."""

    @abstractmethod
    def log_moment(self, d: int, t2: Host, *, tilt: float = 0.0, rows: int = 1) -> Host:
        """Return the logarithm of `moment` for t2 >= 0, which overflows nowhere."""


@final
@dataclass(frozen=True)
class Chi(NormLaw):
    r"""Norms of standard normal rows: :math:`r^2 \sim \chi^2_d`.

    The moment is :math:`(1 - 2 tilt)^{-rows\,d/2}\, {}_1F_1(rows\,d/2; d/2; t^2 / (2 (1 - 2 tilt)))`, for a tilt below
    one half.
    """

    def sample(self, m: int, d: int, generator: np.random.Generator) -> Host:
        """Return m independent norms, (m,)."""
        return np.sqrt(generator.chisquare(d, m))

    def moment(self, d: int, t2: Host, *, tilt: float = 0.0, rows: int = 1) -> Host:
        """Return E[exp(tilt rho^2) 0F1(; d/2; t2 rho^2 / 4)] for t2 of either sign."""
        x = np.asarray(t2) / (2 * (1 - 2 * tilt))
        series: Host = np.exp(x) if rows == 1 else hyp1f1(rows * d / 2, d / 2, x)
        return series * float((1 - 2 * tilt) ** (-rows * d / 2))

    def log_moment(self, d: int, t2: Host, *, tilt: float = 0.0, rows: int = 1) -> Host:
        """Return the logarithm of `moment` for t2 >= 0, which overflows nowhere."""
        x = np.asarray(t2) / (2 * (1 - 2 * tilt))
        log_series: Host = x if rows == 1 else log_hyp1f1(rows * d / 2, d / 2, x)
        return log_series - rows * d / 2 * float(np.log1p(-2 * tilt))


@final
@dataclass(frozen=True)
class SqrtD(NormLaw):
    r"""Every norm is :math:`\sqrt d`: the regularised kernels, :math:`e^{tilt\,rows\,d}\,{}_0F_1(; d/2; rows\,d\,t^2/4)`."""

    def sample(self, m: int, d: int, generator: np.random.Generator) -> Host:
        """Return m norms, (m,)."""
        return np.full(m, np.sqrt(d))

    def moment(self, d: int, t2: Host, *, tilt: float = 0.0, rows: int = 1) -> Host:
        """Return E[exp(tilt rho^2) 0F1(; d/2; t2 rho^2 / 4)] for t2 of either sign."""
        return hyp0f1(d / 2, rows * d * np.asarray(t2) / 4) * float(np.exp(tilt * rows * d))

    def log_moment(self, d: int, t2: Host, *, tilt: float = 0.0, rows: int = 1) -> Host:
        """Return the logarithm of `moment` for t2 >= 0, which overflows nowhere."""
        return log_hyp0f1(d / 2, rows * d * np.asarray(t2) / 4) + tilt * rows * d


NORM_LAWS: dict[str, NormLaw] = {"chi": Chi(), "sqrt_d": SqrtD()}
