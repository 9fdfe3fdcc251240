"""What a call on a GPU cannot avoid, counted by plain functions: bytes in and out of memory, flops of products."""

from __future__ import annotations

from bench.sizes import Sizes
from kernattn.bench import Work

MOST_SETS = 64  # of inputs that a pass cycles through


def causal_work(sizes: Sizes, features: int, project: bool) -> Work:
    """Count causal linear attention: every token enters S and z once and reads them once, whatever the chunks.

    With `project`, queries and keys are multiplied with the frequencies first.
    """
    per_token = 4.0 * features * (sizes.dim + 1) + (4.0 * sizes.dim * features if project else 0.0)
    frequencies = features * sizes.dim * sizes.state_itemsize if project else 0
    return Work(4.0 * sizes.tokens * sizes.dim * sizes.itemsize + frequencies, sizes.tokens * per_token)


def features_work(rows: int, dim: int, features: int, itemsize: int) -> Work:
    """Count phi(x) of a projection."""
    return Work((rows * (dim + features) + dim * features) * float(itemsize), 2.0 * rows * dim * features)


def hadamard_work(rows: int, dim: int, features: int, itemsize: int) -> Work:
    """Count features under chains of transforms, which multiply nothing that a tensor core could."""
    return Work(rows * (dim + features) * float(itemsize), 0.0)


def step_work(sizes: Sizes, features: int, peaks: int) -> Work:
    """Count one token of every sequence: S, z and the peaks read and written, a row of q, k, v and the output."""
    state = sizes.sequences * (features * (sizes.dim + 1) + peaks) * sizes.state_itemsize
    rows = 4 * sizes.sequences * sizes.dim * sizes.itemsize
    return Work(2.0 * state + rows, 4.0 * sizes.sequences * features * (sizes.dim + 1))


def gated_work(sizes: Sizes, channels: bool) -> Work:
    """Count the gated delta rule: a token reads a state, renews it, and reads it again; gates are float32."""
    logs = sizes.dim if channels else 1
    size = 4.0 * sizes.dim * sizes.itemsize + 4.0 * (logs + 1)
    return Work(sizes.tokens * size, sizes.tokens * 6.0 * sizes.dim**2)


def attention_work(sizes: Sizes, causal: bool) -> Work:
    """Count exact attention: two products for every pair of a query and a key that it sees."""
    pairs = sizes.sequences * (sizes.n * (sizes.n + 1) / 2 if causal else float(sizes.n) ** 2)
    return Work(4.0 * sizes.tokens * sizes.dim * sizes.itemsize, 4.0 * pairs * sizes.dim)


def gemm_work(n: int, itemsize: int) -> Work:
    """Count a product of two n x n matrices."""
    return Work(3.0 * n * n * itemsize, 2.0 * float(n) ** 3)


def sets_to_pass_the_cache(bytes_of_a_call: float, cache: int) -> int:
    """Return how many sets of inputs a pass cycles through, so that none is still in a cache of that size."""
    return min(MOST_SETS, max(2, int(-(-3 * cache // max(1, int(bytes_of_a_call))))))
