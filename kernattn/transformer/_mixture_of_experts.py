"""Feed-forward parts of experts, of which each token takes a few."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, indices, namespace, to_numpy64
from kernattn.transformer._experts import Experts
from kernattn.transformer._halves import multiply
from kernattn.transformer._parts import Params, linear, sigmoid, silu


def mixture_of_experts(params: Params, experts: Experts, name: str, x: Array) -> Array:
    """Return the rows (..., n, dim) of the experts that rows choose, weighed, and of the shared one."""
    xp, dim = namespace(x=x), x.shape[-1]
    rows = xp.reshape(x, (-1, dim))
    logits = linear(params, f"{name}.router", rows)
    logits = xp.astype(logits, accumulation_dtype(xp, x), copy=False)
    p = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    p = p / xp.sum(p, axis=-1, keepdims=True)
    chosen = np.argsort(-to_numpy64(p), axis=-1, kind="stable")[:, : experts.num_chosen]
    p = xp.take_along_axis(p, indices(xp, chosen, x), axis=-1)
    if experts.normalise:
        p = p / xp.sum(p, axis=-1, keepdims=True)

    pairs = chosen.reshape(-1)  # of rows and experts: those of an expert are computed together, then put back
    order = np.argsort(pairs, kind="stable")
    ends = np.searchsorted(pairs[order], np.arange(experts.num_experts + 1))
    parts = []
    for expert, (begin, end) in enumerate(pairwise(ends)):
        if begin < end:
            own = xp.take(rows, indices(xp, order[begin:end] // experts.num_chosen, x), axis=0)
            weights = (params[f"{name}.experts.{part}"][expert, :, :] for part in ("gate", "up", "down"))
            parts.append(_swiglu(own, *weights))
    out = xp.take(xp.concat(parts, axis=0), indices(xp, np.argsort(order), x), axis=0)
    out = xp.reshape(out, (len(chosen), experts.num_chosen, dim)) * xp.astype(p, x.dtype, copy=False)[..., None]
    out = xp.sum(out, axis=-2)
    if experts.shared:
        weights = (params[f"{name}.shared.{part}.weight"] for part in ("gate", "up", "down"))
        out = out + sigmoid(linear(params, f"{name}.shared", rows)) * _swiglu(rows, *weights)
    return xp.reshape(out, x.shape)


def _swiglu(x: Array, gate: Array, up: Array, down: Array) -> Array:
    return multiply(silu(multiply(x, gate)) * multiply(x, up), down)
