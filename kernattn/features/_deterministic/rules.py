"""Quadrature rules for normal numbers."""

from itertools import product
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64

NODES = 2**18  # the most that are made
ROUNDING = 1e-13  # of the largest weight: what is left of weights that cancel


class Rule(NamedTuple):
    """A rule for N(0, I): f(nodes) @ weights is near E f, for any function f of (N, d) nodes."""

    nodes: Float64  # (N, d), with each its opposite
    weights: Float64  # (N,)


def _tensor_rule(level: int, d: int) -> Rule:
    """Return all tuples of `level` Gauss-Hermite nodes: exact for polynomials of degree 2 level - 1 in each axis."""
    x, w = _gauss_hermite(level)
    digits = np.arange(level**d)[:, None] // level ** np.arange(d)[::-1] % level  # of numbers with base L
    return Rule(x[digits], np.prod(w[digits], axis=-1))


def _smolyak_rule(level: int, d: int) -> Rule:
    """Return Smolyak's sums of products of differences of rules: exact to the degree 2 level - 1 in total.

    Of the rules of 1, 3, 5, ... nodes, which share 0, the j-th costs 2j - 1 levels more than none: as many as the
    degrees that it adds.
    """
    rules = [Rule(*_gauss_hermite(2 * j + 1)) for j in range(level // 2 + 1)]
    steps = {0: rules[0]}  # by cost
    for j in range(1, len(rules)):
        nodes = np.concatenate([rules[j].nodes, rules[j - 1].nodes])
        steps[2 * j - 1] = Rule(nodes, np.concatenate([rules[j].weights, -rules[j - 1].weights]))
    parts = {0: Rule(np.zeros((1, 0)), np.ones(1))}  # by what they cost so far
    for _ in range(d):
        grown: dict[int, list[Rule]] = {}
        for (spent, part), (cost, step) in product(parts.items(), steps.items()):
            if spent + cost < level:
                old, new = np.repeat(part.nodes, len(step.nodes), axis=0), np.tile(step.nodes, len(part.nodes))
                weights = np.outer(part.weights, step.weights).ravel()
                grown.setdefault(spent + cost, []).append(Rule(np.column_stack([old, new]), weights))
        parts = {spent: _merge(pieces) for spent, pieces in grown.items()}
    return _merge(list(parts.values()))


def _tensor_size(level: int, d: int) -> int:
    """Return the number of nodes of the tensor rule, or one beyond `NODES`."""
    return int(level ** min(d, NODES.bit_length()))


def _smolyak_size(level: int, d: int) -> int:
    """Return a bound of the number of nodes of Smolyak's rule, cancelled ones counted, or one beyond `NODES`."""
    counts = [1, *[0] * (level - 1)]  # of nodes, by cost
    for _ in range(d if level > 1 else 0):
        if sum(counts) > NODES:
            break
        counts = [
            counts[k] + sum(2 * j * counts[k - 2 * j + 1] for j in range(1, (k + 1) // 2 + 1)) for k in range(level)
        ]
    return sum(counts)


def _gauss_hermite(n: int) -> tuple[Float64, Float64]:
    x, w = np.polynomial.hermite_e.hermegauss(n)
    return x, w / np.sum(w)


def _merge(pieces: list[Rule]) -> Rule:
    """Return the sum of rules, a node that occurs more than once with the sum of its weights."""
    rows = np.concatenate([piece.nodes for piece in pieces])
    nodes, index = np.unique(rows, axis=0, return_inverse=True)
    weights = np.bincount(index.ravel(), np.concatenate([piece.weights for piece in pieces]))
    kept = np.abs(weights) > ROUNDING * np.max(np.abs(weights))
    return Rule(nodes[kept], weights[kept])


def fold_opposites(rule: Rule) -> tuple[Float64, Float64]:
    """Return one of each two opposite nodes, with the weights of both; 0 comes first."""
    nodes, weights = rule
    first = nodes[np.arange(len(nodes)), np.argmax(nodes != 0, axis=-1)]  # entry that is not 0
    kept = np.flatnonzero(first >= 0)
    kept = kept[np.argsort(first[kept] > 0, kind="stable")]
    return nodes[kept], np.where(first[kept] > 0, 2.0, 1.0) * weights[kept]


BY_NAME = {"smolyak": (_smolyak_rule, _smolyak_size), "tensor": (_tensor_rule, _tensor_size)}
