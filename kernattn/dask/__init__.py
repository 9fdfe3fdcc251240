r"""Features, moments and attention of Dask arrays: sums over chunks, :math:`S = \sum_c S_c`, in a fixed order.

Arguments and chunks that do not fit raise at once: DTypeError, ShapeError, EmptyInputError, ParameterError, or
StateMismatchError of a state. Computing raises StateMismatchError where a worker draws another map from a recipe, and
ParameterError where rows of `moments` hold NaN or infinity, with a note that says in which chunk.
"""

from kernattn._runtime.extras import require as _require

_require("dask.array", "Dask", "kernattn.dask", extra="dask")

from kernattn.dask._attention import causal_linear_attention, linear_attention  # noqa: E402
from kernattn.dask._features import features  # noqa: E402
from kernattn.dask._gated import gated_linear_attention  # noqa: E402
from kernattn.dask._moments import moments  # noqa: E402
from kernattn.dask._recipe import Recipe  # noqa: E402

__all__ = ["Recipe", "causal_linear_attention", "features", "gated_linear_attention", "linear_attention", "moments"]


def __dir__() -> list[str]:
    return __all__
