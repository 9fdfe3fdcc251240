"""The way back through rows of exact attention whose scores leave the range of floats, one by one, in float64."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from kernattn.ops._numba.compile import compiled
from kernattn.ops._numba.memory import whole, window
from kernattn.ops.block_softmax.far_loops import far_dot, far_weights

__all__ = ["pull_far_rows"]


@compiled
def pull_far_rows(q, k, v, g, mask, scale, causal, states, reads, far, dq, dk, dv, ds, low, high):
    """Add what the far rows of states low to high tell, and are told; ds has a number for each state.

    The rest is as `pull_blocks` has it.
    """
    (_, n, dim), (_, length, e) = q.shape, v.shape
    q, k, v, g = whole(q), whole(k), whole(v), whole(g)
    seen, weights, slopes = np.empty(length, np.int64), np.empty(length), np.empty(length)
    own = np.empty(dim)
    for b in range(low, high):
        k_b, v_b = (
            window(k, states[b, 0] * length * dim, length * dim),
            window(v, states[b, 1] * length * e, length * e),
        )
        for r in range(reads.shape[1]):
            for i in range(n):
                at = reads[b, r, 1] * n + i
                if not far[at]:
                    continue
                keys, dot = 0, 0.0
                for j in range(min(length, i + length - n + 1) if causal else length):
                    if mask.size == 0 or mask[b * length + j]:
                        seen[keys] = j
                        keys += 1
                x, y = window(q, (reads[b, r, 0] * n + i) * dim, dim), window(g, at * e, e)
                _, total = far_weights(x, k_b, seen[:keys], scale, weights[:keys])
                for s in range(keys):
                    weights[s] /= total
                    slopes[s] = far_dot(y, window(v_b, seen[s] * e, e))
                    dot += weights[s] * slopes[s]
                own[:] = 0
                for s in range(keys):
                    j, slope = seen[s], weights[s] * (slopes[s] - dot)
                    values = window(dv, (b * length + j) * e, e)
                    for c in range(e):
                        values[c] += weights[s] * y[c]
                    if slope != 0:
                        key, target = window(k_b, j * dim, dim), window(dk, (b * length + j) * dim, dim)
                        ds[b] += slope * far_dot(x, key)
                        slope *= scale
                        for c in range(dim):
                            target[c] += slope * x[c]
                            own[c] += slope * key[c]
                target = window(dq, at * dim, dim)
                for c in range(dim):
                    target[c] = own[c]
