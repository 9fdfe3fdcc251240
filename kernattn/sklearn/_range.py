"""The range of the targets that were fitted, beyond which a line would go on without end."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from kernattn._arrays.namespaces import Array, Float64, constant, namespace, to_numpy64
from kernattn._runtime.checks import finite_number, shown
from kernattn._runtime.deprecated import warn_user
from kernattn.errors import ParameterError
from kernattn.sklearn._inputs import array_beside
from kernattn.sklearn._maps import MapEstimator

MARGIN = 1.0  # widths of the range
SHARE = 0.01  # of the rows: that many wild ones are no surprise
ROUNDING = 1e3  # units in the last place


class BoundedRegressor(RegressorMixin, MapEstimator):
    """A regressor whose predictions stay near the range of the targets that were fitted."""

    margin: float | None
    solution_: Any
    target_range_: Array

    def predict(self, X: Any) -> Any:
        """Return predictions (n,) or (n, c) of rows X (n, d), within `margin` of the targets' range.

        A warning says where more than one row in a hundred is held there, as of a trend that goes on.
        """
        x = self._check_new(X)
        return hold_and_tell(self.solution_.predict(x), self.target_range_, self.margin)


def check_margin(margin: Any) -> None:
    """Refuse a margin that is no number of widths, 0 or more, nor None."""
    if margin is not None and finite_number("margin", margin) < 0:
        raise ParameterError(f"margin must be None, or 0 or more widths of the targets' range; got {shown(margin)}")


def widen_range(before: Array | None, x: Array, y: Float64) -> Array:
    """Return the least and the largest of targets (n,) or (n, c), and of those before, as an array of the kind of x."""
    found = np.stack([y.min(axis=0), y.max(axis=0)])
    if before is not None:
        known = to_numpy64(before)
        found = np.stack([np.minimum(known[0], found[0]), np.maximum(known[1], found[1])])
    return array_beside(x, found)


def hold(predictions: Array, target_range: Array, margin: float | None) -> Array:
    """Return predictions within a range, so many of its widths wider on either side."""
    if margin is None:
        return predictions
    low, high = _ends(predictions, target_range, margin)
    xp = namespace(predictions=predictions)
    held: Array = xp.minimum(xp.maximum(predictions, low), high)
    return held


def hold_and_tell(predictions: Array, target_range: Array, margin: float | None) -> Array:
    """Return predictions as `hold` does, and warn where more are held than those of a few wild rows.

    Those beyond an end by rounding, as of targets that are all alike, are not counted.
    """
    if margin is None:
        return predictions
    xp, (low, high) = namespace(predictions=predictions), _ends(predictions, target_range, margin)
    rounding = ROUNDING * xp.finfo(predictions.dtype).eps
    with np.errstate(over="ignore", invalid="ignore"):  # beyond its dtype, both are infinite
        outside = (low - predictions > rounding * xp.abs(low)) | (predictions - high > rounding * xp.abs(high))
    rows = xp.any(outside, axis=1) if outside.ndim == 2 else outside
    count, number = int(xp.sum(xp.astype(rows, xp.int32))), predictions.shape[0]
    if count > SHARE * number:
        warn_user(
            f"{count} of {number} rows are far from those of the fit: their predictions are beyond its targets by more "
            f"than margin={margin:g} widths of the targets' range, and are held there. set_params(margin=None) holds "
            "none, without another fit, as a trend may need",
            UserWarning,
        )
    return hold(predictions, target_range, margin)


def _ends(predictions: Array, target_range: Array, margin: float) -> tuple[Array, Array]:
    """Return the least and the largest that a prediction may be, of each target."""
    xp, targets = namespace(predictions=predictions), to_numpy64(target_range)
    with np.errstate(over="ignore"):  # beyond its dtype, infinity holds nothing back
        beyond = margin * (targets[1] / 2 - targets[0] / 2) * 2  # half a width is a float, and 0 of one value
        ends = np.asarray(targets[0] - beyond), np.asarray(targets[1] + beyond)
        low, high = (constant(xp, end, predictions.dtype, predictions) for end in ends)
    return low, high
