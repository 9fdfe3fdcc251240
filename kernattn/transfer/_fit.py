"""The attention of a layer, fitted to recorded sequences, and its error on sequences that the fit did not see."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernattn._arrays.namespaces import Float64, without_flags
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn.attention import softmax_attention
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, Fitted, fit, random_features
from kernattn.features._fitted.losses import ROUNDING
from kernattn.features._fitted.size import lacking
from kernattn.kernels import Softmax
from kernattn.transfer._heads import Heads
from kernattn.transfer._result import Layer
from kernattn.transfer._rows import Place
from kernattn.transfer._rows import Sequence as Rows

FITTED_TO = 512  # rows of a head at most
JUDGES = 4  # one sequence of so many is judged on
BIASES = np.linspace(-8.0, 8.0, 9)  # of exact scores: tried first, then between the neighbours of the best
RIDGE = 1e-3  # of a query's factor, on columns of size 1


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is asked for; a folder holds it, and goes on with no other."""

    num_features: int
    kind: str
    window: int
    shared: bool
    output_scale: bool
    sequences: int
    length: int
    rng: int | None  # None for a number of nobody's choice


@without_flags
def fit_layer(
    name: str, index: int, rows: Sequence[Rows], place: Place, asked: Settings, tell: Callable[[], object]
) -> Layer:
    """Return the fitted attention of a layer; `tell` is called after each map."""
    assert asked.rng is not None
    rng = np.random.default_rng([asked.rng, 2, index])
    if asked.window and not place.causal:
        raise ParameterError(f"a window is for causal attention; {name} attends to all tokens: give window=0")
    if len(rows) < 2:
        raise ParameterError(f"batches must hold 2 sequences at least, one of which judges; {name} saw {len(rows)}")
    order = rng.permutation(len(rows))
    held, seen = ([rows[i] for i in part] for part in np.split(order, [max(1, len(rows) // JUDGES)]))
    kernel, count = Softmax(scale=place.scale), len(rows[0].k)
    groups = [list(range(count))] if asked.shared else [[head] for head in range(count)]
    maps, random = [], []
    for group in groups:
        q, k, v = _pool(seen, group, rng)
        maps.append(_map(kernel, q, k, v, asked, rng))
        random.append(random_features(kernel, q.shape[1], asked.num_features, "positive", rng=rng))
        tell()
    heads = Heads(tuple(maps), asked.window)
    biases = tuple(_bias(heads, head, seen, place) for head in range(count)) if asked.window else ()
    heads = replace(heads, near_bias=biases)
    if asked.output_scale:
        heads = replace(heads, scale=tuple(_factor(heads, head, seen, place) for head in range(count)))
    plain = Heads(tuple(random))
    errors, others = ([_error(each, head, held, place) for head in range(count)] for each in (heads, plain))
    return Layer(name, heads, tuple(errors), tuple(others), len(seen), len(held))


def _pool(seen: Sequence[Rows], heads: list[int], rng: np.random.Generator) -> tuple[Float64, Float64, Float64]:
    """Return queries, keys and values of some heads, of all sequences, no more than a fit takes."""
    q = np.concatenate([x.q[h].reshape(-1, x.q.shape[-1]) for x in seen for h in heads]).astype(np.float64)
    k, v = (np.concatenate([getattr(x, n)[h] for x in seen for h in heads]).astype(np.float64) for n in "kv")
    keys = np.sort(rng.permutation(len(k))[:FITTED_TO])
    queries = keys if len(q) == len(k) else np.sort(rng.permutation(len(q))[:FITTED_TO])
    return q[queries], k[keys], v[keys]


def _map(kernel: Softmax, q: Float64, k: Float64, v: Float64, asked: Settings, rng: np.random.Generator) -> FeatureMap:
    """Return the map of a head: the fit, or a random map where that errs less, or where there is nothing to learn."""
    if not (np.ptp(q, axis=0).any() and np.ptp(k, axis=0).any() and v.any()):
        return random_features(kernel, q.shape[1], asked.num_features, "positive", rng=rng)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(random map is returned|can learn them by heart)")
        phi = fit(kernel, (q, k), asked.num_features, kind=asked.kind, values=v, rng=rng)
    return calibrate(phi, q, k) if asked.window and isinstance(phi, Fitted) else phi


def calibrate(phi: Fitted, q: Float64, k: Float64) -> Fitted:
    r"""Return a fitted map whose weights have the kernel's size, for use beside exact weights.

    A fit by attention's outputs leaves a factor of each query free. Its logarithm,
    :math:`\log \sum_j e^{s q^T k_j} - \log \sum_j \phi(q)^T \phi(k_j)`, is regressed on the query's entries and their
    squares, and becomes a part of the query's features.
    """
    base = _single(phi.query_spec)
    apart = replace(phi, queries=base, keys=_pair_frequencies(phi.key_spec))
    wanted = lacking(apart, q, k)
    columns = np.concatenate([q, q * q], axis=1)
    centre, size = columns.mean(axis=0), columns.std(axis=0) + 1e-30
    z, mean = (columns - centre) / size, wanted.mean()
    solved = np.linalg.solve(z.T @ z + RIDGE * len(z) * np.eye(z.shape[1]), z.T @ (wanted - mean)) / size
    linear, squares = np.split(solved, 2)
    weights = squares if base.row_weights is None else base.row_weights + squares
    offset = np.asarray(base.offset) + (mean - centre @ solved)
    queries = replace(base, omega=np.asarray(base.omega) + linear, offset=offset, row_weights=weights)
    return replace(apart, queries=queries)


def _pair_frequencies(spec: MapSpec) -> MapSpec:
    """Return an exponential spec of as many frequencies as features."""
    if KINDS[spec.kind].parts == 1:
        return spec
    omega = np.asarray(spec.omega)
    return replace(spec, kind="exp", omega=np.concatenate([omega, -omega]))


def _single(spec: MapSpec) -> MapSpec:
    """Return an exponential spec of as many frequencies as features, not normalised."""
    return replace(_pair_frequencies(spec), normalised=False)


def _of_head(heads: Heads, head: int) -> Heads:
    """Return the attention of one head of keys."""
    at = {name: x[head : head + 1] if len(x := getattr(heads, name)) > 1 else x for name in ("near_bias", "scale")}
    maps = heads.maps[head] if len(heads.maps) > 1 else heads.maps[0]
    return Heads(maps, heads.window, **at)  # type: ignore[arg-type]


def _outputs(heads: Heads, rows: Rows, head: int, place: Place) -> Float64:
    q, k, v = (x.astype(np.float64) for x in (rows.q[head], rows.k[head][None], rows.v[head][None]))
    out: Float64 = heads.attend(q, k, v, causal=place.causal)
    return out


def _exact(rows: Rows, head: int, place: Place, uniform: bool = False) -> Float64:
    q, k, v = (x.astype(np.float64) for x in (rows.q[head], rows.k[head][None], rows.v[head][None]))
    out: Float64 = softmax_attention(0 * q if uniform else q, k, v, scale=place.scale, causal=place.causal)
    return out


def _error(heads: Heads, head: int, rows: Sequence[Rows], place: Place) -> float:
    """Return the root of the mean squared error of outputs over that of uniform attention, or over its rounding."""
    one, off, most, size = _of_head(heads, head), 0.0, 0.0, 0.0
    for each in rows:
        exact = _exact(each, head, place)
        size += float(np.sum(exact**2))
        off += float(np.sum((_outputs(one, each, head, place) - exact) ** 2))
        most += float(np.sum((_exact(each, head, place, uniform=True) - exact) ** 2))
    return float(np.sqrt(off / max(most, ROUNDING * size, 1e-300)))


def _bias(heads: Heads, head: int, seen: Sequence[Rows], place: Place) -> float:
    """Return the bias of exact scores whose outputs err least on some sequences of the fit."""
    one, some = _of_head(heads, head), list(seen)[:JUDGES]

    def error(bias: float) -> float:
        return _error(replace(one, near_bias=(float(bias),)), 0, [_only(each, head) for each in some], place)

    errors = [error(bias) for bias in BIASES]
    best = int(np.argmin(errors))
    low, high = BIASES[max(best - 1, 0)], BIASES[min(best + 1, len(BIASES) - 1)]
    tried = {error(bias): float(bias) for bias in np.linspace(low, high, 9)}
    return tried[min(tried)]


def _only(rows: Rows, head: int) -> Rows:
    return Rows(*(x[head : head + 1] for x in rows))


def _factor(heads: Heads, head: int, seen: Sequence[Rows], place: Place) -> float:
    """Return the factor of outputs by which they are nearest to exact ones, in least squares."""
    one, over, under = _of_head(heads, head), 0.0, 0.0
    for each in seen:
        out = _outputs(one, each, head, place)
        over, under = over + float(np.sum(out * _exact(each, head, place))), under + float(np.sum(out**2))
    return over / under if under else 1.0
