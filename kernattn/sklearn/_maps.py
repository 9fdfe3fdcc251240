"""Feature maps from the plain parameters of estimators, and what transformers and classifiers do with them."""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from kernattn._arrays.csr import ROOM, is_sparse
from kernattn._arrays.namespaces import Array, to_numpy64
from kernattn._runtime.checks import one_of, positive_integer, shown
from kernattn._runtime.deprecated import warn_user
from kernattn._runtime.elsewhere import ToldKeywords, hint_at
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import ESTIMATORS, LANDMARKS, FeatureMap, estimators, nystrom, random_features
from kernattn.kernels import (
    KERNELS,
    AdditiveChi2,
    Kernel,
    Stationary,
    Tanimoto,
)
from kernattn.sklearn._candidates import usual_of, usual_projection
from kernattn.sklearn._inputs import check_rows, is_named, pick_labels, seed_of
from kernattn.sklearn._kernel_parameters import MARK, change, nested_parameters

SAMPLE = 2048  # rows that estimators shaped by data look at
ROUNDING = 0.2  # radians


def make_kernel(kernel: Any, lengthscale: Any, x: Array) -> Kernel:
    """Return the kernel of a name, or a kernel as it is given, with this lengthscale in place of 1."""
    return start_kernel(kernel, lengthscale, x, None, ("scale",))[0]


def start_kernel(
    kernel: Any, lengthscale: Any, x: Array, weights: Array | None, choices: tuple[str, ...]
) -> tuple[Kernel, str | None]:
    """Return a kernel, and by which of the choices rows found its lengthscale; a search goes on from the usual one."""
    named: object = kernel
    if isinstance(named, str):
        made = KERNELS[one_of("kernel", named, KERNELS)]()
    elif isinstance(named, Kernel):
        made = named
    else:
        raise DTypeError(
            f"kernel must be one of {', '.join(KERNELS)}, or a kernel of ka.kernels, such as ka.kernels.Gaussian(2.0); "
            f"got {shown(named)}{_other(named)}"
        )
    if not isinstance(made, Stationary):
        if lengthscale is not None:
            own = ", ".join(name for name in nested_parameters("kernel", named) if name.endswith("lengthscale"))
            hint = own and f": search {own}"
            raise ParameterError(f"lengthscale must be None for {shown(made)}; got {shown(lengthscale)}{hint}")
        return made, None
    if lengthscale is None:
        if not isinstance(named, str):
            return made, None
        lengthscale = "tune" if "tune" in choices else "scale"
    if made.lengthscale != 1.0:
        raise ParameterError(
            f"lengthscale must be None beside {shown(made)}, which has its own; got {shown(lengthscale)}: give one of "
            "the two"
        )
    if not isinstance(lengthscale, str):
        return replace(made, lengthscale=lengthscale), None  # type: ignore[type-var]
    if lengthscale not in choices:
        names = ", ".join(map(repr, choices))
        raise ParameterError(
            f"lengthscale must be a positive number, a vector of them, {names} or None; got {shown(lengthscale)}"
        )
    return replace(made, lengthscale=usual_of(x, weights)), lengthscale  # type: ignore[type-var]


def _other(kernel: object) -> str:
    """Return a hint for a kernel that is none of ours."""
    if isinstance(kernel, type) and issubclass(kernel, Kernel):
        return f": {kernel.__name__}() is one"
    if callable(kernel):
        return ": ka.kernels.from_function makes one; NystromFeatures takes its matrix too, as kernel='precomputed'"
    return ""


def nystrom_map(kernel: Kernel | Literal["precomputed"], estimator: Any, method: str, x: Array) -> FeatureMap:
    """Return the Nystrom map of landmarks among the rows, of as many as there are at most."""
    number = min(positive_integer("num_features", estimator.num_features), x.shape[0])
    return nystrom(x, kernel, number, method=method, rng=seed_of(estimator.random_state))


def check_name(kernel: Kernel, name: Any) -> None:
    """Refuse a name of no map that the kernel has, or of one that has no features of rows alone."""
    if is_named(name, "auto", *LANDMARKS):
        return
    known = (*(each for each in estimators(kernel) if ESTIMATORS[each].shared), *LANDMARKS)
    if not is_named(name, *known):
        hint = hint_at("estimator", name, known)
        raise ParameterError(
            f"estimator must be 'auto' or one of {', '.join(known)} for {shown(kernel)}; got {shown(name)}{hint}"
        )


def draw_map(estimator: Any, x: Array, kernel: Kernel, name: Any) -> FeatureMap:
    """Return the map of a kernel by a name, with the parameters of an estimator, drawn for rows x."""
    check_name(kernel, name)
    if is_named(name, *LANDMARKS):
        return nystrom_map(kernel, estimator, name, x)
    projection = usual_projection(kernel) if estimator.projection is None else estimator.projection
    number, dim = positive_integer("num_features", estimator.num_features), x.shape[1]
    if isinstance(kernel, AdditiveChi2):  # takes odd multiples of the dimension
        number = max(1, (number // dim - 1) | 1) * dim
    phi = random_features(
        kernel,
        dim,
        number,
        name,
        projection,
        data=None if name == "auto" and not isinstance(kernel, Tanimoto) else sample_of(x),
        rng=seed_of(estimator.random_state),
    )
    if isinstance(kernel, Stationary):
        _warn_of_far_columns(kernel, x)
    return phi


def _warn_of_far_columns(kernel: Stationary, x: Array) -> None:
    """Warn where products of rows and frequencies round by as much as radians, of which features are cosines."""
    reach = np.max(np.abs(to_numpy64(sample_of(x))), axis=0) / np.asarray(kernel.lengthscale)
    far = np.flatnonzero(reach * np.finfo(np.float64).eps > ROUNDING)
    if len(far):
        where = f"columns {', '.join(map(str, far[:5]))} of X are {np.max(reach):.2g} lengthscales from 0"
        warn_user(f"{where}: random features of all columns are lost to rounding; take their means off", UserWarning)


def _check_seen(before: Any, after: Any) -> None:
    """Raise where a kernel has another lengthscale than before, which an estimator with one does not look at."""
    if getattr(before, "lengthscale", None) != getattr(after, "lengthscale", None):
        raise ParameterError(
            "kernel__lengthscale has no effect beside lengthscale: set lengthscale=None, or search lengthscale itself"
        )


def sample_of(x: Array) -> Array:
    """Return rows, evenly spaced, that estimators shaped by data look at: of sparse ones a dense block at most."""
    if not is_sparse(x):
        return x[:: -(-x.shape[0] // SAMPLE), :]
    return x[:: -(-x.shape[0] // max(1, min(SAMPLE, ROOM // x.shape[1])))].toarray()


class MapEstimator(ToldKeywords, BaseEstimator):
    """An estimator on the features of a map.

    Subclasses say their parameters as fields of a dataclass, which writes the explicit constructor that scikit-learn
    reads; ``eq=False, repr=False`` keep scikit-learn's own methods.
    """

    feature_map_: FeatureMap

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name; deep ones are those of the kernel, kernel__lengthscale and others, beside it."""
        params: dict[str, Any] = super().get_params(deep=False)
        return params | nested_parameters("kernel", params["kernel"]) if deep and "kernel" in params else params

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name. Those of the kernel, such as kernel__lengthscale, take another kernel's place."""
        of_kernel = {name: params.pop(name) for name in list(params) if name.startswith(f"kernel{MARK}")}
        if of_kernel:
            before = params.get("kernel", getattr(self, "kernel", None))
            params["kernel"] = change("kernel", before, of_kernel)
            if params.get("lengthscale", getattr(self, "lengthscale", None)) is not None:
                _check_seen(before, params["kernel"])
        super().set_params(**params)
        return self

    @property
    def _takes_sparse(self) -> bool:
        """Whether the map takes sparse rows, in CSR format."""
        return True

    def _check_new(self, x: Any) -> Array:
        """Check rows that are given to a fitted estimator."""
        check_is_fitted(self)
        return check_rows(self, x, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._takes_sparse
        return tags


@dataclass(eq=False, repr=False)
class RandomMapEstimator(MapEstimator):
    """An estimator that has the parameters of `draw_map`."""

    kernel: Any = "gaussian"
    _: KW_ONLY
    lengthscale: Any = None
    num_features: int = 256
    estimator: Any = "auto"
    projection: Any = None
    random_state: Any = None

    _in_parts = False  # whether later rows may come, of which no landmark can be

    @property
    def _takes_sparse(self) -> bool:
        return not is_named(self.estimator, "kmeans") and getattr(self, "metric", None) is None


class Classifier(ClassifierMixin, MapEstimator, ABC):
    """A classifier by scores."""

    classes_: Any

    @abstractmethod
    def _scores(self, x: Array) -> Array:
        """Return scores (n,) of the second of two classes, or (n, K) of all."""

    def decision_function(self, X: Any) -> Any:
        """Return the scores of rows X (n, d): (n, K), or of two classes (n,), positive for the second."""
        return self._scores(self._check_new(X))

    def predict(self, X: Any) -> Any:
        """Return the labels (n,) of the largest scores of rows X (n, d)."""
        scores = self.decision_function(X)  # checks first that there are classes
        return pick_labels(self.classes_, scores)


class MapTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MapEstimator, ABC):
    """An estimator that turns rows into coordinates: float32 of float32, else float64."""

    @abstractmethod
    def _coordinates(self, x: Array) -> Array:
        """Return the coordinates (n, number) of rows that are checked."""

    def transform(self, X: Any) -> Any:
        """Return features of rows X (n, d), or their coordinates along components: float32 of float32, else float64."""
        return self._coordinates(self._check_new(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
