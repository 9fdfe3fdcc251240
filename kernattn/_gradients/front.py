"""The front of the pullbacks: which functions there are, and how they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from kernattn._arrays.plain import on_plain
from kernattn._gradients.maps import MapGradients, check_differentiable, current_numbers
from kernattn._gradients.rules import RULES, Rule, of_features
from kernattn._runtime.checks import one_of, shown
from kernattn._runtime.deprecated import warn_user
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, with_numbers
from kernattn.features._learnt import what_it_lacks


@on_plain
def vjp(
    function: Callable[..., Any], *args: Any, learn: tuple[str, ...] | None = None, **kwargs: Any
) -> tuple[Any, Callable[[Any], Any]]:
    r"""Return y = f(x) and its pullback :math:`g \mapsto g^T \partial f / \partial x`, which takes a cotangent of y.

    Gradients of attention in plain arrays, without a framework. What is kept for the pullback is the inputs, the output
    and each row's normaliser :math:`Z_i`; with it, :math:`\hat g_i = [g_i, -g_i^T o_i]` and
    :math:`\hat v_j = [v_j, 1]`, the logarithms of features have the cotangents
    :math:`\phi_a(q_i) Z_i^{-1} \hat g_i^T \sum_j \phi_a(k_j) \hat v_j` and
    :math:`\phi_a(k_j) \hat v_j^T \sum_i \phi_a(q_i) Z_i^{-1} \hat g_i`, sums that are linear attention themselves.

    Parameters
    ----------
    function : callable
        `linear_attention`, `causal_linear_attention`, `linear_attention_step`, `key_state`, `attend`,
        `gated_linear_attention`, `softmax_attention`, `attention.softmax_with_lse`, `attention.window_attention`,
        `attention.scatterbrain_attention`, or a feature map (also its `query` and `key`). Maps in attention must have a
        spec. Of `solvers`, `log_evidence`, `predict`, functions that `GaussianProcess.draw` drew, and the `mean` and
        the `variance` of a `GaussianProcess`.
    *args : object
        What the function takes. Of a map that `with_numbers` made, the numbers that were given have cotangents.
    learn : tuple of str, optional
        Deprecated: use `with_numbers`.
    **kwargs : object
        What the function takes by name. `backend` chooses for the pullback, too.

    Returns
    -------
    out : object
        What the function returns.
    pullback : callable
        It takes a cotangent like `out`, None in place of an array or a state that has none, and returns a named tuple
        with the cotangent of each argument by its name. That of `phi` holds those of its given numbers, summed over
        all rows, in float64 for float64 inputs, else float32. States have cotangents of s and z in the units of their
        peak, which is held: it changes nothing that is read from a state.

    Raises
    ------
    ParameterError
        If the function is none of these, the map has no spec, or not the numbers to be learnt.
    ShapeError, DTypeError, MixedLibraryError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit; by the pullback, if a cotangent does not.

    Notes
    -----
    A row whose normaliser is exactly 0, one whose cotangent is 0, and a masked key have no gradient and give none,
    whatever stands there. relu counts as flat at 0.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.zeros((1, 2)), np.ones((4, 2)), np.arange(4.0)[:, None]
    >>> out, pullback = ka.vjp(ka.linear_attention, q, k, v, ka.features.elu1())
    >>> pullback(np.ones_like(out)).v.T
    array([[0.25, 0.25, 0.25, 0.25]])
    """
    rule, called = _rule(function)
    try:
        bound = _signature(called).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{getattr(called, '__qualname__', repr(called))}() {error}") from None
    bound.apply_defaults()
    if learn is not None:
        function = _learning(learn, function, bound.arguments)
        rule, _ = _rule(function)
    out, pullback = rule(**bound.arguments)
    return out, on_plain(pullback)


def _signature(called: Callable[..., Any]) -> inspect.Signature:
    """Return how a function is called, read once where it is one of the table."""
    return _read_once(called) if inspect.isfunction(called) else inspect.signature(called)


_read_once = cache(inspect.signature)


def _learning(learn: Any, function: Any, arguments: dict[str, Any]) -> Any:
    """Return the function, and put into its arguments, the map with the numbers of these names given to it."""
    warn_user("vjp(learn=) is now kernattn.with_numbers(phi, ...) in place of phi")
    if isinstance(learn, str) or not isinstance(learn, tuple | list):
        raise ParameterError(f"learn must be a tuple of names; got {shown(learn)}")
    names = tuple(one_of("learn", name, MapGradients._fields) for name in learn)
    bound = getattr(function, "__self__", function)
    phi = bound if isinstance(bound, FeatureMap) else arguments.get("phi")
    if not names:
        return function
    if not isinstance(phi, FeatureMap):
        raise ParameterError(f"learn must be () for exact attention, which has no map; got {shown(learn)}")
    check_differentiable(phi)
    for name in names:
        if why := what_it_lacks(phi, name):
            raise ParameterError(f"learn={name!r} needs {why}; got {shown(phi)}")
    like = next(x for x in arguments.values() if hasattr(x, "dtype") or (isinstance(x, tuple) and x))
    given = with_numbers(phi, **current_numbers(phi, names, like[0] if isinstance(like, tuple) else like))
    if isinstance(bound, FeatureMap):
        return given.key if function == phi.key else given
    arguments["phi"] = given
    return function


def _rule(function: Any) -> tuple[Rule, Callable[..., Any]]:
    """Return the rule of a function, and what says how it is called."""
    if isinstance(function, FeatureMap):
        function = function.query
    if hasattr(function, "_vjp"):  # what stands above this room and brings its own, as solvers do
        return function._vjp, function
    phi = getattr(function, "__self__", None)
    if phi is not None and hasattr(phi, "_vjp_of") and (rule := phi._vjp_of(function.__name__)) is not None:
        return rule, function
    if isinstance(phi, FeatureMap) and function in (phi.query, phi.key):
        return of_features(phi, function == phi.key), function
    try:
        return RULES[function], function
    except (KeyError, TypeError):
        names = ", ".join(known.__name__ for known in RULES)
        raise ParameterError(f"function must be one of {names}, or a feature map; got {shown(function)}") from None
