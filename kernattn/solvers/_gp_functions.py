r"""The evidence and the predictions of a Gaussian process as functions of all that they are made of.

With :math:`A = G + \lambda` and :math:`w = A^{-1} B`, the log evidence has
:math:`dG = -(A^{-1} + w w^T / \sigma^2) / 2` and :math:`dB = w / \sigma^2`; G and B are sums over rows, whose features
have :math:`d\phi_i = 2\, dG\, \phi_i + dB\, y_i`. What a prediction adds is in `_gp_pullbacks`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import is_array_api_obj as is_array

from kernattn._arrays.graphs import traceable
from kernattn._arrays.hosted import Hosted, Pull, call_hosted, give_outputs
from kernattn._arrays.namespaces import Array, Float64, constant, namespace, to_numpy64, widest, without_flags
from kernattn._arrays.shapes import strips
from kernattn._arrays.trees import add, leaves, map_leaves
from kernattn._gradients.computed import pull_of
from kernattn._gradients.recorded import like
from kernattn._runtime.checks import as_numbers, instance_of, shown
from kernattn.errors import ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.features._lengthscales import lengthscales_of, with_lengthscales
from kernattn.solvers._beside import pull_own
from kernattn.solvers._check import check_beside, check_map_takes
from kernattn.solvers._gp import GaussianProcess, gp
from kernattn.solvers._gp_evidence import evidence
from kernattn.solvers._gp_pullbacks import lacking_of, of_mean, of_variance
from kernattn.solvers._spectrum import BLOCK
from kernattn.solvers._sums import moments


class Prediction(NamedTuple):
    """The posterior of the function at new rows, (..., n) or (..., n, c)."""

    mean: Array
    variance: Array


class LogEvidenceGradients(NamedTuple):
    """Of `log_evidence`; that of the lengthscale is that of the map's kernel where none was given."""

    x: Array
    y: Array
    noise: Array
    amplitude: Array
    lengthscale: Any


class PredictGradients(NamedTuple):
    """Of `predict`; that of the lengthscale is that of the map's kernel where none was given."""

    x: Array
    y: Array
    new: Array
    noise: Array
    amplitude: Array
    lengthscale: Any


@traceable("log_evidence")
def log_evidence(
    x: Array,
    y: Array,
    phi: FeatureMap,
    *,
    noise: float | Array,
    amplitude: float | Array,
    lengthscale: Any = None,
) -> Array:
    r"""Return :math:`\log N(y; 0, a^2 \Phi \Phi^T + \sigma^2 I)` as a function of all that it is made of.

    It is the `log_evidence` of `gp`, and has derivatives: by the rows, the targets, both scales and the lengthscales,
    in `kernattn.vjp`, in PyTorch and in JAX. Frequencies of random features, landmarks of a Nystrom map and the box of
    a Hilbert basis are held. Numbers are taken in float64 on the host; first derivatives cost O(n M (d + M)).

    Parameters
    ----------
    x : (n, d) array
        Rows.
    y : (n,) or (n, c) array
        Targets; c are c processes.
    phi : FeatureMap
        A map that `kernattn.vjp` takes: random features, a Nystrom map, a Hilbert basis, their sums and products.
    noise, amplitude : float, () or (c,) array
        Standard deviations of the noise and of the function, as in `gp`.
    lengthscale : () or (d,) array, or tuple, optional
        In place of the kernel's: a number or one for each axis, as the kernel has. Of a sum or a product, of maps or of
        kernels, a tuple of those of its members, None of one that stays.

    Returns
    -------
    () or (c,) array
        The log evidence, in float64; in JAX without x64 in float32.

    Raises
    ------
    ParameterError
        If a number is out of range, or a lengthscale is given where the map has none.
    ShapeError, DTypeError, EmptyInputError, MixedLibraryError
        If arrays do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.linspace(-2, 2, 50)[:, None]
    >>> phi = ka.features.nystrom(x, ka.kernels.Gaussian(0.5), 20, rng=0)
    >>> value, pullback = ka.vjp(ka.solvers.log_evidence, x, np.sin(x[:, 0]), phi, noise=0.1, amplitude=1.0)
    >>> bool(pullback(np.ones_like(value)).lengthscale > 0)
    True
    """
    asked = _make_request(_evidence, phi, x, y, noise, amplitude, lengthscale)
    return call_hosted(asked, *asked.given)[0]


@traceable("predict")
def predict(
    x: Array,
    y: Array,
    new: Array,
    phi: FeatureMap,
    *,
    noise: float | Array,
    amplitude: float | Array,
    lengthscale: Any = None,
) -> Prediction:
    r"""Return the posterior's mean and variance at new rows as functions of all that they are made of.

    They are the `mean` and the `variance` of `gp`, and have derivatives by the rows, old and new, the targets, both
    scales and the lengthscales, as `log_evidence` has; errors are those of that function.

    Parameters
    ----------
    x, y : (n, d), (n,) or (n, c) array
        Rows and targets.
    new : (..., k, d) array
        New rows.
    phi, noise, amplitude, lengthscale : object
        As `log_evidence` takes them.

    Returns
    -------
    Prediction
        The mean and the variance, each (..., k) or (..., k, c), in the dtype of x.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.linspace(-2, 2, 50)[:, None]
    >>> phi = ka.features.nystrom(x, ka.kernels.Gaussian(0.5), 20, rng=0)
    >>> found = ka.solvers.predict(x, np.sin(x[:, 0]), np.array([[0.5]]), phi, noise=0.1, amplitude=1.0)
    >>> bool(abs(found.mean[0] - np.sin(0.5)) < 0.1)
    True
    """
    asked = _make_request(_prediction, phi, x, y, noise, amplitude, lengthscale, new=new)
    return Prediction(*call_hosted(asked, *asked.given))


def _vjp_of_evidence(x: Array, y: Array, phi: FeatureMap, **given: Any) -> tuple[Array, Callable[[Any], Any]]:
    asked = _make_request(_evidence, phi, x, y, **given)
    (value,), pulled = asked.compute()
    return value, lambda g: LogEvidenceGradients(**pulled((like("the cotangent", g, value),)))


def _vjp_of_prediction(
    x: Array, y: Array, new: Array, phi: FeatureMap, **given: Any
) -> tuple[Prediction, Callable[[Any], Any]]:
    asked = _make_request(_prediction, phi, x, y, new=new, **given)
    outputs, pulled = asked.compute()

    def pullback(g: Any) -> PredictGradients:
        if not isinstance(g, tuple) or len(g) != 2:
            raise ParameterError(f"the cotangent must be a pair, of mean and variance, or None; got {shown(g)}")
        names = "the cotangent of the mean", "the cotangent of the variance"
        return PredictGradients(**pulled(tuple(map(like, names, g, outputs))))

    return Prediction(*outputs), pullback


log_evidence._vjp = _vjp_of_evidence  # type: ignore[attr-defined]
predict._vjp = _vjp_of_prediction  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class Asked(Hosted):
    """An answer as a function of arrays, by name, and of lengthscales: None of those that stay."""

    function: Callable[..., tuple[tuple[Float64, ...], Callable[[tuple[Float64, ...]], dict[str, Any]]]]
    phi: FeatureMap
    arrays: dict[str, Array]
    lengthscale: Any
    wide: bool

    @property
    def given(self) -> list[Array]:
        """The arrays that are differentiated."""
        return [*self.arrays.values(), *(leaf for leaf in leaves(self.lengthscale) if leaf is not None)]

    def shapes(self, *arrays: Array) -> tuple[tuple[int, ...], ...]:
        named = dict(zip(self.arrays, arrays, strict=False))
        shape = tuple(named["y"].shape[1:])
        if "new" in named:
            shape = (*named["new"].shape[:-1], *shape)
        return (shape,) if self.wide else (shape, shape)

    @without_flags
    def forward(self, *arrays: Float64) -> tuple[tuple[Float64, ...], Pull]:
        rest = iter(arrays[len(self.arrays) :])
        lengthscale = map_leaves(lambda _: next(rest), self.lengthscale)
        named = dict(zip(self.arrays, arrays, strict=False))
        outputs, pulled = self.function(with_lengthscales(self.phi, lengthscale), **named)

        @without_flags
        def pull(g: tuple[Float64, ...]) -> tuple[Float64, ...]:
            cotangents = pulled(g)
            pairs = zip(leaves(cotangents["lengthscale"]), leaves(self.lengthscale), strict=True)
            return (*(cotangents[name] for name in self.arrays), *(dx for dx, leaf in pairs if leaf is not None))

        return outputs, pull

    @without_flags
    def compute(self) -> tuple[tuple[Array, ...], Callable[[tuple[Array, ...]], dict[str, Any]]]:
        """Return the outputs, and what makes cotangents of all that there is, by name."""
        named = {name: to_numpy64(array) for name, array in self.arrays.items()}
        outputs, pulled = self.function(with_lengthscales(self.phi, map_leaves(to_numpy64, self.lengthscale)), **named)

        @without_flags
        def all_of(g: tuple[Array, ...]) -> dict[str, Any]:
            cotangents = pulled(tuple(map(to_numpy64, g)))
            named = {name: _like(cotangents[name], array) for name, array in self.arrays.items()}
            return named | {
                "lengthscale": map_leaves(lambda each: _like(each, self.arrays["x"]), cotangents["lengthscale"])
            }

        return give_outputs(self, outputs, self.arrays["x"]), all_of


def _like(values: Float64, array: Array) -> Array:
    with np.errstate(over="ignore"):
        return constant(namespace(array=array), np.asarray(values), array.dtype, array)


def _beside(name: str, number: Any, x: Array) -> Array:
    """Return a parameter as an array beside x: what is one stays."""
    given = is_array(number) and not isinstance(number, np.generic)
    if given and not isinstance(number, np.ndarray):
        return number
    xp, numbers = namespace(x=x), as_numbers(name, number)
    return number if given else constant(xp, numbers, widest(xp, x), x)


def _make_request(
    function: Callable[..., Any],
    phi: FeatureMap,
    x: Array,
    y: Array,
    noise: Any,
    amplitude: Any,
    lengthscale: Any,
    **new: Array,
) -> Asked:
    """Return the request, of arguments whose shapes and libraries fit; a prediction has rows `new`."""
    instance_of("phi", phi, FeatureMap)
    check_map_takes(phi, x)
    if x.ndim != 2:
        raise ShapeError(f"x must be (n, d); got shape {tuple(x.shape)}")
    arrays = {"x": x, "y": y}
    for name, rows in new.items():
        check_map_takes(phi, rows, name)
        arrays[name] = rows
    check_beside("y", y, x.shape[0], True)
    c = 1 if y.ndim == 1 else y.shape[1]
    for name, scale in (("noise", noise), ("amplitude", amplitude)):
        arrays[name] = scale = _beside(name, scale, x)
        if tuple(scale.shape) not in ((), (c,)):
            raise ShapeError(f"{name} must be one number or one for each of {c} targets; got shape {scale.shape}")
    lengthscale = _match_form(lengthscale, lengthscales_of(phi), "lengthscale", x)
    namespace(**arrays, **{f"lengthscale {i}": leaf for i, leaf in enumerate(leaves(lengthscale)) if leaf is not None})
    return Asked(function, phi, arrays, lengthscale, not new)


def _match_form(given: Any, form: Any, name: str, x: Array) -> Any:
    """Return lengthscales of the form that a map has, each an array beside x."""
    if given is None:
        return map_leaves(lambda leaf: None, form) if isinstance(form, tuple) else None
    if form is None:
        raise ParameterError(f"{name} must be None for a map without one; got {shown(given)}")
    if isinstance(form, tuple):
        if not isinstance(given, tuple) or len(given) != len(form):
            raise ParameterError(
                f"{name} must be a tuple of those of {len(form)} members, None of one that stays; got {shown(given)}"
            )
        return tuple(
            _match_form(one, of, f"{name}[{i}]", x) for i, (one, of) in enumerate(zip(given, form, strict=True))
        )
    leaf = _beside(name, given, x)
    if tuple(leaf.shape) != form.shape:
        raise ShapeError(
            f"{name} must have shape {form.shape}, as that of the kernel; got {tuple(leaf.shape)}: a map of "
            "ka.kernels.Gaussian(numpy.ones(d)) has one for each axis"
        )
    return leaf


def _process(phi: FeatureMap, x: Float64, y: Float64, noise: Float64, amplitude: Float64) -> GaussianProcess:
    return gp(moments(x, phi, y=y), noise=noise, amplitude=amplitude)


def _evidence(phi: FeatureMap, x: Float64, y: Float64, noise: Float64, amplitude: Float64) -> Any:
    sums = moments(x, phi, y=y)
    found = evidence(sums, noise, amplitude)

    def pull_back(cotangents: tuple[Float64, ...]) -> dict[str, Any]:
        g = np.reshape(cotangents[0], (-1,))
        of_weights = found.weights * (g / found.noise**2)
        gram = found.sum_inverses(g) + of_weights @ found.weights.T
        slopes = found.slopes()
        grads = _of_rows(phi, x, y.reshape(len(x), -1), -gram / 2, of_weights)
        grads["y"] = (grads["y"] - y.reshape(len(x), -1) * (g / found.noise**2)).reshape(y.shape)
        grads["noise"] = _of_scale(g * slopes.log_noise / found.noise, noise)
        grads["amplitude"] = _of_scale(g * slopes.log_amplitude / found.amplitude, amplitude)
        return grads

    return (found.values.reshape(y.shape[1:]),), pull_back


def _prediction(phi: FeatureMap, x: Float64, y: Float64, new: Float64, noise: Float64, amplitude: Float64) -> Any:
    process = _process(phi, x, y, noise, amplitude)

    def pull_back(cotangents: tuple[Float64, ...]) -> dict[str, Any]:
        of_means, of_variances = (g.reshape(-1, len(process.noise)) for g in cotangents)
        rows = new.reshape(-1, new.shape[-1])
        features, pull = features_and_pull(phi, rows)
        mean = of_mean(process, features, of_means)
        variance = of_variance(process, features, of_variances, lacking_of(process, rows, features))
        grads = _of_rows(phi, x, y.reshape(len(x), -1), mean.gram + variance.gram, mean.cross)
        of_new, lengthscales = pull(mean.features + variance.features)
        kernel = process._kernel_beside()
        grads["new"] = (of_new if kernel is None else of_new + pull_own(kernel, rows, variance.own)).reshape(new.shape)
        grads["lengthscale"] = add(grads["lengthscale"], lengthscales)
        grads["y"] = grads["y"].reshape(y.shape)
        grads["noise"] = _of_scale(mean.noise + variance.noise, noise)
        grads["amplitude"] = _of_scale(mean.amplitude + variance.amplitude, amplitude)
        return grads

    return (np.asarray(process.mean(new)), np.asarray(process.variance(new))), pull_back


def _of_scale(each: Float64, scale: Float64) -> Float64:
    """Return the cotangent of a scale from those of each target."""
    return each if np.ndim(scale) else np.asarray(np.sum(each))


def _of_rows(phi: FeatureMap, x: Float64, y: Float64, gram: Float64, cross: Float64) -> dict[str, Any]:
    """Return cotangents of rows, targets (n, c) and lengthscales from those of G and B."""
    of_x, of_y, lengthscales = [], [], []
    for here in strips(len(x), BLOCK // len(gram)):
        features, pull = features_and_pull(phi, x[here])
        dx, numbers = pull(2 * features @ gram + y[here] @ cross.T)
        of_x.append(dx)
        of_y.append(features @ cross)
        lengthscales.append(numbers)
    total = lengthscales[0]
    for more in lengthscales[1:]:
        total = add(total, more)
    return {"x": np.concatenate(of_x), "y": np.concatenate(of_y), "lengthscale": total}


def features_and_pull(phi: FeatureMap, x: Float64) -> tuple[Float64, Any]:
    """Return features of rows, and what takes their cotangents to those of the rows and of lengthscales."""
    out, pull = pull_of(phi, x)
    return (phi(x) if out is None else out), pull
