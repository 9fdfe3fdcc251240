"""Plain parameters of estimators, which are judged before any work: fits read some of them last."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernattn._runtime.checks import boolean, one_of, positive_integer, shown
from kernattn.errors import ParameterError
from kernattn.projections import resolve
from kernattn.sklearn._inputs import check_seed

OBJECTIVES = "folds", "evidence", "gcv"


def check_parameters(estimator: Any) -> None:
    """Refuse parameters that no fit takes, whatever its rows."""
    for name, value in estimator.get_params(deep=False).items():
        if name in CHECKS:
            CHECKS[name](name, value)


def _boolean_or_none(name: str, value: Any) -> None:
    if not (value is None or isinstance(value, bool | np.bool_)):
        raise ParameterError(f"{name} must be True, False or None; got {shown(value)}")


def _integer_or_none(name: str, value: Any) -> None:
    if value is not None:
        positive_integer(name, value)


def _projection_or_none(_: str, value: Any) -> None:
    if value is not None:
        resolve(value)


def _objective(name: str, value: Any) -> None:
    one_of(name, value, OBJECTIVES)


CHECKS: dict[str, Callable[[str, Any], object]] = {
    "fit_intercept": boolean,
    "linear": _boolean_or_none,
    "max_iter": positive_integer,
    "n_components": _integer_or_none,
    "num_features": positive_integer,
    "objective": _objective,
    "projection": _projection_or_none,
    "random_state": check_seed,
    "whiten": boolean,
}
