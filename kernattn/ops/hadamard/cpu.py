"""Chains of Hadamard transforms by Numba: 16 rows at a time, so that sums and differences are of whole vectors."""

from __future__ import annotations

from math import prod

import numpy as np

from kernattn._array import Array, Host
from kernattn._parallel import share
from kernattn.ops._numba.chains import write_chains
from kernattn.ops._numba.layout import (
    FLOPS_PER_SECOND,
    NO_MASK,
    SECONDS_PER_FEATURE,
    accumulation,
    as_given,
    flat,
    plan_with,
)
from kernattn.ops._numba.products import vector_length
from kernattn.ops.spec import MapSpec

__all__ = ["hadamard"]


def hadamard(x: Array, diagonals: Host, norms: Host, spec: MapSpec | None) -> Array:
    """Return the features, (..., n, M), in the dtype of x."""
    dtype = accumulation(x)
    *lead, dim = x.shape
    _, chains, p = diagonals.shape
    frequencies, n = len(norms), prod(lead)
    plan = as_given(dtype, frequencies) if spec is None else plan_with(spec, np.zeros((0, dim)), frequencies, dtype)
    out = np.empty((*lead, plan.features), dtype)
    rows, weights = flat(x, dtype), flat(diagonals, dtype)
    lengths = flat(norms * float(p) ** (-chains / 2), dtype)

    def groups(low: int, high: int) -> None:
        write_chains(
            plan.kind, weights, chains, p, lengths, plan.weights, plan.offset, plan.amplitude, dim, frequencies,
            plan.features, rows, n, out.reshape(-1), NO_MASK, low, high,
        )  # fmt: skip

    flops = 2.0 * len(diagonals) * chains * p * p.bit_length()
    seconds = n * (flops / FLOPS_PER_SECOND + plan.features * SECONDS_PER_FEATURE) * dtype.itemsize / 4
    share(groups, -(-n // vector_length(dtype)), seconds)
    return out.astype(x.dtype, copy=False)
