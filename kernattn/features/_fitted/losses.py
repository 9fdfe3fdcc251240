r"""What a fit makes small, and its gradient: errors of attention's outputs, or of the kernel's entries.

Both are relative, and of a batch of rows. Of attention they are the mean of :math:`|\hat O_b - O_b|^2 / |U_b - O_b|^2`
over blocks b of values: independent normal ones, the keys, and those that were given; U is uniform attention. The
gradient comes from the pullbacks of the ops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn._sums.row_scale import log_sum, row_scale
from kernattn.kernels import Kernel
from kernattn.ops import features, features_vjp
from kernattn.ops.dispatch import Op
from kernattn.ops.records import RECORDS

FAINT = 1e-280  # values below have few digits
PROBES = 32  # independent values
ROUNDING = 1e-26  # of squares of values: what outputs of uniform attention may be off by rounding
LOGS = MapSpec("exp")  # of rows that are logs of features already

Gradient = dict[str, Float64]
"""Cotangents by the name of the number: omega, offset, row_weights."""


class Batch(NamedTuple):
    """Queries (n, d), keys (l, d), and values (l, e) if there are."""

    q: Float64
    k: Float64
    v: Float64 | None


def way(op: Op, like: Array) -> Callable[..., Any]:
    """Return the fastest implementation of an op beside an array."""
    return op.implementation(like)


def attention_loss(
    kernel: Kernel, batch: Batch, specs: tuple[MapSpec, MapSpec], rng: np.random.Generator, causal: bool
) -> tuple[float, tuple[Gradient, Gradient]]:
    """Return the relative squared error of attention's outputs, and its gradient by the maps of queries and of keys."""
    exact = exact_attention(kernel, batch.q, batch.k, causal)
    values = _values(exact, batch, rng, causal)
    logs = [logs_of(x, spec) for x, spec in zip((batch.q, batch.k), specs, strict=True)]
    given: tuple[Any, ...]
    name, given = "linear_attention", (logs[1], values, LOGS, None, logs[0], LOGS)
    if causal:
        name, given = "causal", (*logs, values, LOGS, LOGS, None, None, None)
    record = RECORDS[name]
    outputs = record.forward(way, given)
    rest = outputs[0] - exact @ values
    grads = record.backward(way, False, given, record.kept_of(outputs), (2 * rest,) + (None,) * causal)
    of_inputs = record.by_input(grads)
    pulled = (
        pull_logs(x, spec, of_inputs[side].x) for x, spec, side in zip((batch.q, batch.k), specs, "qk", strict=True)
    )
    return float(np.sum(rest**2)), tuple(pulled)  # type: ignore[return-value]


def exact_attention(kernel: Kernel, q: Float64, k: Float64, causal: bool) -> Float64:
    """Return the weights (n, l) of exact attention."""
    values, log = kernel._log_scaled_matrix(q, k)
    logs = np.log(values, where=values > 0, out=np.full_like(values, -np.inf)) + 0 * log
    if causal:
        seen = np.tri(*logs.shape) > 0
        faint = np.max(values, axis=-1, where=seen, initial=0) < FAINT  # beside a later key, in whose units they are
        if faint.any():
            logs[faint] = kernel._logs(kernel._rows(q, k, cross=True))[faint]
        logs = np.where(seen, logs, -np.inf)
    weights = np.exp(logs - np.max(logs, axis=-1, keepdims=True))
    shares: Float64 = weights / np.sum(weights, axis=-1, keepdims=True)
    return shares


def _values(exact: Float64, batch: Batch, rng: np.random.Generator, causal: bool) -> Float64:
    """Return blocks of values side by side, each so large that uniform attention's squared errors sum to 1 / B.

    Where these are rounding, because all keys weigh alike, a fit learns by what errors are beside the values.
    """
    seen = np.tri(*exact.shape) if causal else np.ones_like(exact)
    off = seen / np.sum(seen, axis=-1, keepdims=True) - exact
    blocks = [rng.standard_normal((len(batch.k), PROBES)), *(x for x in (batch.k, batch.v) if x is not None)]
    blocks = [block - np.mean(block, axis=0) for block in blocks]
    sizes = [max(float(np.sum((off @ block) ** 2)), ROUNDING * float(np.sum(block**2))) for block in blocks]
    scaled = [block / (len(blocks) * size) ** 0.5 for block, size in zip(blocks, sizes, strict=True) if size > 0]
    return np.concatenate(scaled, axis=1) if scaled else np.zeros((len(batch.k), 1))  # of a single key


def logs_of(x: Float64, spec: MapSpec) -> Float64:
    """Return the logs (n, M) of an exponential map's features."""
    logs = KINDS[spec.kind].formula(np, x @ np.asarray(spec.omega).T)
    if spec.offset is not None:
        logs = logs + spec.offset
    logs = logs - log_sum(np, logs) if spec.normalised else logs + row_scale(np, x, spec)
    return np.asarray(logs)


def pull_logs(x: Float64, spec: MapSpec, g: Float64) -> Gradient:
    """Return the cotangents of an exponential map's numbers from those of `logs_of`."""
    total = np.sum(g, axis=-1, keepdims=True)
    if spec.normalised:
        g = g - np.exp(logs_of(x, spec)) * total
    pull = KINDS[spec.kind].pull
    assert pull is not None
    du = pull(np, g[:, : len(np.asarray(spec.omega))], g, g, g)
    return {"omega": du.T @ x, "offset": np.sum(g, axis=0), "row_weights": np.sum(total * x * x, axis=0)}


def kernel_loss(
    kernel: Kernel, batch: Batch, specs: tuple[MapSpec, MapSpec]
) -> tuple[float, tuple[Gradient, Gradient]]:
    r"""Return :math:`\sum \delta^2 / \sum k^2` of the kernel's entries, and its gradient.

    Rows of a kernel that attention divides by their sums count equally.
    """
    exact, log = kernel._log_scaled_matrix(batch.q, batch.k)
    sizes = np.sum(exact**2, axis=-1, keepdims=True)
    equal = kernel.attention_weights
    factor = (1 / (len(exact) * sizes)) if equal else np.exp(2 * log) / np.sum(np.exp(2 * log) * exact**2)
    fq, fk = (features.OP.implementation(x)(x, spec) for x, spec in zip((batch.q, batch.k), specs, strict=True))
    rest = fq @ fk.T * np.exp(-log) - exact
    g = 2 * factor * rest * np.exp(-log)
    pulled = []
    for x, spec, cotangent in ((batch.q, specs[0], g @ fk), (batch.k, specs[1], g.T @ fq)):
        grads = features_vjp.OP.implementation(x)(x, spec, np.ascontiguousarray(cotangent), True)
        pulled.append({name: part for name in grads._fields[1:] if (part := getattr(grads, name)) is not None})
    return float(np.sum(factor * rest**2)), (pulled[0], pulled[1])
