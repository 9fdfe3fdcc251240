"""What attention and its gradients cannot avoid, d = e."""

from __future__ import annotations

import numpy as np

from bench.sizes import Sizes
from kernattn._arrays.namespaces import Array
from kernattn.attention import LinearState
from kernattn.bench import Work


def linear(o: Sizes, features: int, project: bool, inside: bool) -> Work:
    """Return the work of maps and sums, or of queries with keys where that is less.

    Causal, of sums, and inside the chunks of our loop of the products that are not masked. Queries of the first chunk
    read no sums; those of the last one are returned.
    """
    from kernattn.ops.causal.cpu import CHUNK

    sums, pairs = 4.0 * features * o.dim, 2.0 * o.n * (features + o.dim)
    if inside:
        seen, later = _chunks(o.n, CHUNK)
        flops = sums * (1 + later) / 2 + 2.0 * seen * (features + o.dim)
    else:
        flops = min(sums, pairs)
    flops += 4.0 * features * o.dim if project else 0.0
    return _work(o, 4, 1, o.tokens * flops, o.tokens * 2.0 * features)


def linear_backward(o: Sizes, features: int, project: bool, inside: bool, learn: bool = False) -> Work:
    """Return the work of a pullback that was left no features.

    Causal, it forms them in either direction: forwards to sum keys, and to read the sums for queries; backwards to sum
    queries, and to read the sums for keys and for values. Where all queries see all keys, it forms them once. A chunk
    at which a direction begins reads no sums, and that at which it ends adds to none.
    """
    from kernattn.ops.key_state_vjp.walks import chunk_of

    directions = 2 if inside else 1
    sums, pairs = (10.0 if inside else 8.0) * features * o.dim, o.n * (6.0 * features + 4.0 * o.dim)
    if inside:
        seen, later = _chunks(o.n, chunk_of(False, learn))
        flops = sums * later + 6.0 * seen * (features + o.dim)
    else:
        flops = min(sums, pairs)
    flops += (4.0 * directions + 4.0) * features * o.dim if project else 0.0
    flops += 4.0 * features * o.dim if learn else 0.0
    return _work(o, 8, 3, o.tokens * flops, o.tokens * 2.0 * directions * features)


def step(state: LinearState, frequencies: Array | None = None, in_place: bool = False) -> Work:
    """Return the work of a token of every head: its maps, and a state that is read, added to, read of and written."""
    numbers, features = float(state.s.size + state.z.size), 2.0 * state.z.size  # of a query and a key
    dim, entries = (0, 0) if frequencies is None else (frequencies.shape[-1], frequencies.size)
    written, read = (float(state.s.itemsize) * count for count in (numbers, numbers + entries))
    return Work(written + read, 4.0 * numbers + 2.0 * features * dim, features, written=written, in_place=in_place)


def softmax(o: Sizes, causal: bool) -> Work:
    """Return the work of exact attention: two products, and a function of each score."""
    pairs = _pairs(o, causal)
    return _work(o, 4, 1, 4.0 * pairs * o.dim, pairs)


def softmax_backward(o: Sizes, causal: bool) -> Work:
    """Return the work of its pullback, which was left no scores: five products."""
    pairs = _pairs(o, causal)
    return _work(o, 8, 3, 10.0 * pairs * o.dim, pairs)


def both(first: Work, second: Work) -> Work:
    """Return the work of one after the other."""
    return Work(
        first.bytes + second.bytes,
        first.flops + second.flops,
        first.functions + second.functions,
        first.written + second.written,
    )


def _chunks(n: int, chunk: int) -> tuple[float, float]:
    """Return how many keys of its own chunk a query sees, on average, and the fraction of tokens after the first."""
    chunks, rest = divmod(n, chunk)
    seen = (chunks * chunk * (chunk + 1) + rest * (rest + 1)) / 2
    return seen / n, max(0, n - chunk) / n


def _pairs(o: Sizes, causal: bool) -> float:
    return o.heads * o.n * (o.n + 1) / 2 if causal else o.heads * o.n * float(o.n)


def _work(o: Sizes, arrays: int, written: int, flops: float, functions: float) -> Work:
    """Return work on arrays of all tokens, of which some are written."""
    size = float(o.tokens * o.dim * np.dtype(o.dtype).itemsize)
    return Work(arrays * size, flops, functions, written=written * size)
