"""Parameters of an estimator's kernel by scikit-learn's names, such as kernel__lengthscale.

Kernels are frozen values: a kernel with another parameter is another kernel, and no copy of an estimator sees it.
"""

from dataclasses import fields, replace
from typing import Any

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.kernels import Kernel, Product, Sum

MARK = "__"  # between the name of a parameter and that of a parameter of its own


def nested_parameters(name: str, value: Any) -> dict[str, Any]:
    """Return the parameters of a kernel and of the kernels that it is made of, after its name; none of other values."""
    parameters: dict[str, Any] = {}
    for own, each in _parameters(value).items():
        parameters[f"{name}{MARK}{own}"] = each
        parameters |= nested_parameters(f"{name}{MARK}{own}", each)
    return parameters


def change(name: str, value: Any, given: dict[str, Any]) -> Any:
    """Return a kernel with other parameters, given after its name; those of its members after their own names."""
    known = _parameters(value)
    direct: dict[str, Any] = {}
    deeper: dict[str, dict[str, Any]] = {}
    for path, each in given.items():
        own, _, rest = path.removeprefix(f"{name}{MARK}").partition(MARK)
        if own not in known:
            raise ParameterError(_unknown(name, value, path))
        if rest:
            deeper.setdefault(own, {})[path] = each
        else:
            direct[own] = each
    for own, more in deeper.items():
        direct[own] = change(f"{name}{MARK}{own}", direct.get(own, known[own]), more)
    if isinstance(value, Sum | Product):
        return replace(value, kernels=tuple((known | direct).values()))
    return replace(value, **direct)


def _parameters(value: Any) -> dict[str, Any]:
    """Return the parameters of a kernel by name: k1, k2, ... are the members of a sum or a product."""
    if isinstance(value, Sum | Product):
        return {f"k{i}": kernel for i, kernel in enumerate(value.kernels, 1)}
    return {field.name: getattr(value, field.name) for field in fields(value)} if isinstance(value, Kernel) else {}  # type: ignore[arg-type]


def _unknown(name: str, value: Any, path: str) -> str:
    if isinstance(value, str):
        return (
            f"{path} needs a kernel with parameters, such as kernel=ka.kernels.Gaussian(); {name} is a name, "
            f"{value!r}: search lengthscale= beside it"
        )
    own = ", ".join(f"{name}{MARK}{each}" for each in _parameters(value)) or "none"
    return f"parameters of {name}={shown(value)} are {own}; got {path}"
