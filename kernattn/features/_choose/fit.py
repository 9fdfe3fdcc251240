"""Maps fitted to data: what is asked for is checked, rows are shared out, and a judge compares with random maps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn._arrays.plain import on_plain
from kernattn._maps.spec import MapSpec
from kernattn._runtime.checks import boolean, one_of, positive_integer, shown
from kernattn._runtime.deprecated import warn_user
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.extras import bar
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.estimator import Request
from kernattn.features._choose.sample import KEYS, Sample, check_values
from kernattn.features._choose.spectral import candidates, objective_of
from kernattn.features._choose.targets import TARGETS, TINY, Target
from kernattn.features._data import Data, check_inputs, check_size
from kernattn.features._fitted.learn import LEARNT, STEPS, Task, learn, start_of
from kernattn.features._fitted.map import Fitted
from kernattn.features._fitted.size import sized
from kernattn.features._spectral.spectra import check_spectrum, has_normal_frequencies, spectrum
from kernattn.kernels import Kernel
from kernattn.projections import Projection, resolve

LEAST = 16  # rows
JUDGES = 4  # one row of so many is judged on
DRAWS = 4  # of every random map: the best one is what a fit has to beat
READERS = 256  # queries that judge at most


LEARNED = "learned"
"""The name by which `kernattn.random_features` fits a map. It is no row of `ESTIMATORS`: those estimate the kernel."""


class Asked(NamedTuple):
    """The arguments of `fit`, checked."""

    kernel: Any  # a Kernel of some kind
    num_features: int
    data: Data
    shared: bool  # is there one map of queries and keys?
    kind: str
    values: Float64 | None
    causal: bool
    objective: str
    rng: np.random.Generator


@told_keywords
@on_plain
def fit(
    kernel: Kernel,
    data: Array | tuple[Array, Array],
    num_features: int,
    *,
    kind: str | None = None,
    values: Array | None = None,
    causal: bool = False,
    objective: str = "attention",
    rng: RNG = None,
    progress: bool | None = False,
) -> FeatureMap:
    r"""Learn a feature map from data, and return it where it errs less than random maps on rows that it never saw.

    A quarter of the rows is kept for the judge. To the others a map is fitted by Adam (Kingma and Ba 2015), 600 steps
    on batches of at most 256 rows, mixed in pairs (Zhang et al. 2018), from the best one of the draws of all
    exponential estimators; the mean of the last steps counts. The loss is the squared error of attention's outputs over
    that of uniform attention, summed over independent values, the keys as values, and those that are given.

    With :math:`u = \Omega x + b`, a map of queries and one of keys are learnt, of `kind`

    - "hedgehog": :math:`\phi(x) = e^{u} / \sum_a e^{u_a}`, a softmax over the features (Zhang et al. 2024). All keys
      weigh alike then, which keeps the fit from leaning on a few. The fit begins at a draw, whose frequencies need not
      come in pairs of opposite signs.
    - "exponential": :math:`\phi(x) = e^{u + r}`, r the row's quadratic of the map that was drawn, whose weights
      :math:`w_i x_i^2` are learnt too.
    - "omega": the map that was drawn, with frequencies and biases that are learnt.

    Attention's outputs leave free how large the weights of a query are. An amplitude of the map makes their sums over
    the keys those of the kernel, in the median over queries, so that exact weights may stand beside them, as in
    `kernattn.attention.window_attention`.

    The judge is the error by which `kernattn.features.recommend` ranks, on the rows that were kept. The fit's rival is
    the best one of four draws of the random estimator whose draws err least on all rows. A fit that is no better is
    dropped: the rival is returned, with a warning that has both errors.

    Parameters
    ----------
    kernel : Kernel
        A kernel that attention divides by its rows' sums, as Softmax; for objective "kernel" any with a spectral
        measure.
    data : (n, d) array or pair of such
        Rows as they will come, 16 at least: a pair (queries, keys), which get a map each, or rows that stand for both
        and get one in common. As many queries as keys are taken for tokens, query i beside key i. There should be more
        rows than features; a warning says where there are not.
    num_features : int
        Number M of features.
    kind : {"hedgehog", "exponential", "omega"}, optional
        What is learnt; by default "hedgehog" for attention, and "omega" for the kernel, where random maps of all
        estimators count and "hedgehog" cannot be.
    values : (l, e) array, optional
        Attention's values, a row for each key, by which the fit is judged too.
    causal : bool
        Whether query i sees the keys up to i only; there are as many queries as keys then.
    objective : {"attention", "kernel"}
        What is learnt by: the error of attention's outputs, or that of the kernel's entries.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of rows, draws and batches. The same seed and numbers give the same map, up to rounding, whatever library
        the arrays are of.
    progress : bool or None
        Whether a bar on stderr shows the steps; None shows one on a terminal.

    Returns
    -------
    FeatureMap
        A `Fitted` map, with `error` and `random_error`, or the random one.

    Raises
    ------
    DTypeError
        If kernel is no kernel, or arrays are not floating.
    ParameterError
        If an argument is outside of what is allowed, rows hold NaN, are all the same or fewer than 16, or the kernel
        is not one of the objective's.
    ShapeError
        If data is not (n, d) or a pair of such with one d, or values have not a row for each key.

    Warns
    -----
    UserWarning
        If there are fewer rows than features, or the fit does not help.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = 1.5 * rng.standard_normal((8, 16))[rng.integers(8, size=256)] + 0.2 * rng.standard_normal((256, 16))
    >>> phi = ka.features.fit(ka.kernels.Softmax(), (x[:192], x[:192]), 32, rng=0)
    >>> phi.error < 0.5 * phi.random_error
    True
    >>> exact = ka.softmax_attention(*[x[192:]] * 3)
    >>> error = np.linalg.norm(ka.linear_attention(*[x[192:]] * 3, phi) - exact) / np.linalg.norm(exact)
    >>> bool(error < 0.1)
    True
    """
    given: Any = kernel
    check_spectrum(kernel)
    goal = one_of("objective", objective, TARGETS)
    if goal == "attention" and not given.attention_weights:
        raise ParameterError(
            f"objective 'attention' is for a kernel that attention divides by its rows' sums, as Softmax; got "
            f"{shown(kernel)}: ask for objective='kernel'"
        )
    chosen = one_of("kind", ("hedgehog" if goal == "attention" else "omega") if kind is None else kind, LEARNT)
    if goal == "kernel":
        if chosen == "hedgehog":
            raise ParameterError("kind 'hedgehog' is for objective 'attention': its features sum to 1 in every row")
        if values is not None or causal:
            raise ParameterError("values and causal are for objective 'attention'; the objective is 'kernel'")
    if chosen == "exponential" and not has_normal_frequencies(kernel):
        raise ParameterError(
            f"kind 'exponential' is for kernels of exponential features, Softmax and Gaussian; got {shown(kernel)}: "
            "ask for kind='omega'"
        )
    rows, number = check_inputs(data), positive_integer("num_features", num_features)
    v = check_values(values, rows, boolean("causal", causal))
    asked = Asked(kernel, number, rows, not isinstance(data, tuple), chosen, v, causal, goal, generator(rng))
    return pick_winner(attempt(asked, progress))


class Attempt(NamedTuple):
    """A fit, and its rival: the best random map, of which the fit knows the name and the error."""

    fitted: Fitted
    random: FeatureMap
    rows: int  # that judged

    @property
    def helps(self) -> bool:
        """Has the fit the less error on rows that it did not see?"""
        return self.fitted.error < self.fitted.random_error


def pick_winner(made: Attempt) -> FeatureMap:
    """Return the fit, or with a warning its rival."""
    if made.helps:
        return made.fitted
    kind, error, name, limit = (getattr(made.fitted, each) for each in ("kind", "error", "random", "random_error"))
    warn_user(
        f"the fit of kind {kind!r} errs by {error:.3g} on the {made.rows} rows that it did not see, and {name!r}, the "
        f"best random map, by {limit:.3g}: the random map is returned",
        UserWarning,
    )
    return made.random


def attempt(asked: Asked, progress: bool | None = False) -> Attempt:
    """Return a fit and its rival."""
    _check_rows(asked)
    seen, held = share_out(asked.data, asked.values, asked.rng)
    maps = _draws(asked, seen)
    judge, whole = _judge(asked, *held), _judge(asked, asked.data.queries, asked.data.keys, asked.values)
    name, random = _best_random(maps, whole)
    start = _start(asked, [phi for draws in maps.values() for phi in draws], _judge(asked, *seen))
    task = Task(asked.kernel, *seen, asked.objective, asked.causal, are_paired(asked.data))
    with bar("a fit", progress, total=STEPS, desc=f"fit {asked.kind}", unit="step") as shown_bar:

        def tell(step: int, loss: float) -> None:
            if shown_bar is not None:
                shown_bar.set_postfix(loss=f"{loss:.3g}", refresh=False)
                shown_bar.update()

        queries, keys = learn(task, asked.kind, start, asked.shared, asked.rng, tell)
    limit = judge.measure(random).error
    made = Fitted(asked.kernel, asked.kind, queries, None if asked.shared else keys, 0.0, name, limit**0.5)
    if asked.objective == "attention":
        q, k = asked.data.queries, asked.data.keys
        made = sized(made, q[_space_out(len(q), READERS)], k[_space_out(len(k), KEYS)])
    return Attempt(replace(made, error=judge.measure(made).error ** 0.5), random, len(held[1]))


def _check_rows(asked: Asked) -> None:
    for name, rows in zip(("queries", "keys"), asked.data[:2], strict=True):
        name = "data" if asked.shared else f"{name} of data"
        if len(rows) < LEAST:
            raise ParameterError(f"{name} must have {LEAST} rows at least, a quarter of which judges; got {len(rows)}")
        if not np.ptp(rows, axis=0).any():
            raise ParameterError(f"{name} must not be one row over and over; got {len(rows)} equal rows")
    check_size(asked.data.rows, asked.kernel.input_scale(asked.data.rows.shape[1]))
    fewest = min(len(asked.data.queries), len(asked.data.keys))
    if fewest < asked.num_features:
        warn_user(
            f"data has {fewest} rows, fewer than the {asked.num_features} features: a fit can learn them by heart",
            UserWarning,
        )


Rows = tuple[Float64, Float64, Float64 | None]


def are_paired(data: Data) -> bool:
    """Are there as many queries as keys? Each is then taken for one token."""
    return len(data.queries) == len(data.keys)


def share_out(data: Data, values: Float64 | None, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return queries, keys and values that are fitted to, and those that judge, in their order."""
    q, k, v = data.queries, data.keys, values
    keys = _cut(len(k), rng)
    queries = keys if are_paired(data) else _cut(len(q), rng)
    seen, held = ((q[a], k[b], None if v is None else v[b]) for a, b in zip(queries, keys, strict=True))
    return seen, held


def data_of(rows: Rows, shared: bool) -> Data:
    """Return rows as data: one array stands for both sides where they share a map."""
    q, k, _ = rows
    return Data(q, q, q) if shared else Data(q, k, np.concatenate([q, k]))


def _cut(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    order = rng.permutation(count)
    return np.sort(order[count // JUDGES :]), np.sort(order[: count // JUDGES])


def _judge(asked: Asked, q: Float64, k: Float64, v: Float64 | None) -> Target:
    """Return the judge on these rows, of which it takes some."""
    at = _space_out(len(k), KEYS)
    mine = at[_space_out(len(at), READERS)] if are_paired(asked.data) else _space_out(len(q), READERS)
    visible = mine[:, None] >= at if asked.causal else None
    sample = Sample(q[mine], k[at], None if v is None or not np.any(v[at]) else v[at], visible)
    return TARGETS[asked.objective](asked.kernel, sample)


def _space_out(count: int, most: int) -> np.ndarray:
    return np.linspace(0, count - 1, min(count, most)).astype(int)


def _draws(asked: Asked, seen: Rows) -> dict[str, list[FeatureMap]]:
    """Return draws of every random map that there can be, by the names of their estimators."""
    data = data_of(seen, asked.shared)
    dim, projection = data.rows.shape[1], arrangement(asked.kernel)
    request = Request(
        asked.kernel, dim, asked.num_features, "auto", projection, data, asked.rng, asked.objective
    )  # fmt: skip
    maps = candidates(request)
    return {name: [phi.redraw(asked.rng) for _ in range(DRAWS)] for name, phi in maps.items()}


def arrangement(kernel: Kernel) -> Projection:
    """Return the projection of the draws: orthogonal, or iid where a kernel's frequencies are drawn axis by axis."""
    try:
        spectrum(kernel, resolve("orthogonal"))
    except ParameterError:
        return resolve("iid")
    return resolve("orthogonal")


def _best_random(maps: dict[str, list[FeatureMap]], whole: Target) -> tuple[str, FeatureMap]:
    """Return the estimator whose draws err least, in the geometric mean, and the best one of them.

    On all rows: these maps are not fitted to any, and the few rows of a judge do not tell them apart.
    """
    errors = {name: [whole.measure(phi).error for phi in draws] for name, draws in maps.items()}
    name = min(errors, key=lambda each: float(np.mean(np.log(np.clip(errors[each], TINY, 1 / TINY)))))
    return name, maps[name][int(np.argmin(errors[name]))]


def _start(asked: Asked, maps: list[FeatureMap], trainer: Target) -> tuple[MapSpec, MapSpec]:
    """Return the specs of the draw that a fit begins with: the one that errs least, as the kind makes it."""
    starts: list[tuple[float, int, tuple[MapSpec, MapSpec]]] = []
    for phi in maps:
        specs: Any = phi.query_spec, phi.key_spec
        of_all = asked.objective == "kernel" and asked.kind == "omega"
        if all(spec is not None and (of_all or spec.per_feature) for spec in specs):
            begun = [start_of(spec, asked.kind) for spec in specs]
            whole = Fitted(asked.kernel, asked.kind, begun[0], begun[1], 0.0, "", 0.0)
            starts.append((trainer.measure(whole).error, len(starts), specs))
    return min(starts)[2]


def asked_of(request: Request) -> Asked:
    """Return a request for a map that is learnt, checked."""
    if request.data is None:
        raise ParameterError(f"data must be given for {LEARNED!r}: it is what the map is fitted to; got None")
    check_spectrum(request.kernel)
    if request.projection not in (resolve("orthogonal"), usual := arrangement(request.kernel)):
        raise ParameterError(
            f"estimator {LEARNED!r} begins at frequencies of {usual!r}: leave projection at its default; got "
            f"{request.projection!r}"
        )
    goal = objective_of(request.kernel, request.objective)
    kind = "hedgehog" if goal == "attention" else "omega"
    shared = request.data.queries is request.data.keys
    return Asked(
        request.kernel, request.num_features, request.data, shared, kind, request.values, request.causal, goal,
        request.rng,
    )  # fmt: skip
