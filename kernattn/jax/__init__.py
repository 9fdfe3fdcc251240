"""Plain `kernattn` functions take arrays of JAX as they are; here are the names of an older door to them.

Under `jit`, `grad`, `vmap` and `scan` they call compiled loops. Numbers of a map are learnt by `kernattn.with_numbers`.
"""

from typing import Any

from kernattn._runtime.extras import require as _require

_require("jax", "JAX", "kernattn.jax", extra="jax")

from kernattn import attention as _attention  # noqa: E402
from kernattn._runtime.deprecated import warn_user as _warn_user  # noqa: E402
from kernattn.features import FeatureMap as _FeatureMap  # noqa: E402
from kernattn.features import with_numbers as _with_numbers  # noqa: E402
from kernattn.jax import _edge as _edge  # noqa: E402

__all__: list[str] = []

_OLD = (
    "attend", "causal_linear_attention", "features", "key_state", "linear_attention", "linear_attention_step",
    "softmax_attention",
)  # fmt: skip


def _features(x: Any, phi: _FeatureMap, *, keys: bool, **options: Any) -> Any:
    return phi.key(x, **options) if keys else phi(x, **options)


def __getattr__(name: str) -> Any:
    if name not in _OLD:
        raise AttributeError(f"module 'kernattn.jax' has no attribute {name!r}")
    new = "phi(x), or phi.key(x)" if name == "features" else f"kernattn.{name}"
    _warn_user(f"kernattn.jax.{name} is now {new}; learn= is kernattn.with_numbers")

    def old(*args: Any, learn: Any = None, keys: bool = False, **options: Any) -> Any:
        if learn:
            args = tuple(_with_numbers(x, **learn) if isinstance(x, _FeatureMap) else x for x in args)
            if "phi" in options:
                options["phi"] = _with_numbers(options["phi"], **learn)
        if name == "features":
            return _features(*args, keys=keys, **options)
        return getattr(_attention, name)(*args, **options)

    return old


def __dir__() -> list[str]:
    return __all__
