"""The exact side of a study: softmax attention on given tokens, and what is the same for every estimator."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy import lazy
from kernattn.kernels import Softmax
from kernattn.metrics import attention_kl, attention_mse
from kernattn.studies._seeds import stream
from kernattn.studies._tokens import Tokens

PAIRS = 32768  # kernel entries that a cell keeps of every redraw
ROUNDING = 1e-13  # relative error that sums of this size may leave


def without_rounding(squares: ArrayLike, values: Float64) -> Float64:
    """Return squared errors, 0 where they are nothing but the rounding of sums of such values."""
    return np.asarray(np.where(np.sqrt(squares) <= ROUNDING * np.max(np.abs(values)), 0.0, squares))


@dataclass(frozen=True, eq=False)
class Problem:
    """Exact kernel, attention weights and outputs of some tokens, and the entries on which kernels are judged."""

    tokens: Tokens
    seed: int
    kernel: Softmax = field(default_factory=Softmax)

    @lazy
    def logits(self) -> Float64:
        """x'.y' of all pairs, (n, l)."""
        c = self.kernel.input_scale(self.tokens.q.shape[1])
        return np.asarray((self.tokens.q * c) @ (self.tokens.k * c).T)

    @lazy
    def weights(self) -> Float64:
        """Rows of exact attention weights, (n, l)."""
        weights = np.exp(self.logits - self.logits.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    @lazy
    def exact(self) -> Float64:
        """Exact attention outputs, (n, e)."""
        return np.asarray(self.weights @ self.tokens.v)

    @lazy
    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the kernel entries that are looked at: all, or as many as PAIRS drawn at random."""
        n, length = self.logits.shape
        size = n * length
        if size <= PAIRS:
            flat = np.arange(size)
        else:
            rng = np.random.default_rng(stream(self.seed, f"pairs/{self.tokens.name}"))
            flat = np.sort(rng.choice(size, size=PAIRS, replace=False))
        return flat // length, flat % length

    @lazy
    def entries(self) -> Float64:
        """The kernel at these pairs, (P,); infinite where exp leaves float64."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.logits[self.pairs]))

    @lazy
    def square_sums(self) -> Float64:
        """v^2 = |x' + y'|^2 at these pairs, (P,): e^{v^2} / m is about the relative variance of positive features."""
        rows, columns = self.pairs
        c = self.kernel.input_scale(self.tokens.q.shape[1])
        q, k = self.tokens.q * c, self.tokens.k * c
        squares = np.sum(q**2, axis=1)[rows] + np.sum(k**2, axis=1)[columns]
        return np.asarray(np.maximum(squares + 2 * self.logits[self.pairs], 0.0))

    @lazy
    def facts(self) -> dict[str, float | int]:
        """What a record says about its tokens, and the errors of uniform attention, out_i = mean of the values.

        Any constant kernel gives uniform attention. The error of the kernel is that of the best constant, its bias that
        of 1, which is the kernel of logits 0. Errors of the size of rounding are 0: where all keys are alike, uniform
        attention is exact.
        """
        (n, dim), (length, value_dim) = self.tokens.q.shape, self.tokens.v.shape
        p, entries, v2 = self.weights, self.entries, self.square_sums
        entropy = -np.sum(p * np.log(np.where(p > 0, p, 1.0)), axis=1)
        uniform = self.tokens.v.mean(axis=0)
        return {
            "queries": n,
            "keys": length,
            "dim": dim,
            "value_dim": value_dim,
            "pairs": len(entries),
            "v2_median": float(np.median(v2)),
            "v2_max": float(v2.max()),
            "effective_keys": float(np.exp(entropy).mean()),
            "uniform_attention_mse": float(without_rounding(attention_mse(uniform, self.exact), self.tokens.v)),
            "uniform_row_kl": float(attention_kl(np.full_like(p, 1 / length), p).mean()),
            "uniform_kernel_relative_mse": float(without_rounding(np.var(entries), entries) / np.mean(entries**2)),
            "uniform_bias": float(1 / entries.mean() - 1),
        }
