"""Calls out of JAX to what runs on NumPy's arrays: at once, or at run time of what is being traced."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernattn._arrays.bridge import library_of
from kernattn.errors import BackendUnavailable

try:  # buffers as they lie; not public yet
    from jax.experimental.buffer_callback import buffer_callback
except ImportError:
    buffer_callback = None


Host = Callable[..., Any]
"""A function of NumPy's arrays, of tuples of them and of None in place of what is not given; returns the like."""


def is_traced(tree: Any) -> bool:
    """Is any of the arrays in a tree a tracer?"""
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree))


def call_host(
    host: Host, results: Host, args: tuple[Any, ...], *, apart: bool = False, staged: Host | None = None
) -> Any:
    """Call `host` with arrays of equally many leading axes, tuples of them, and None; `results` tells its shapes.

    What `vmap` maps is one call with one more leading axis, or, if they are to stay `apart`, a call for each item. In
    place of a callback `staged` is traced, if there is one.
    """
    if not is_traced(args):
        return library_of(jax.tree.leaves(args)[0]).call(host, jax.tree.leaves(args)[0], args)  # type: ignore[union-attr]

    def at_run_time(*args: Any) -> Any:
        made = _called_back(host, results(*args), args) if staged is None else staged(*args)
        return _varying(made, _axes(args))

    def many(size: int, mapped: Any, *args: Any) -> tuple[Any, Any]:
        args = jax.tree.map(lambda x, has: x if has else jnp.broadcast_to(x, (size, *x.shape)), args, tuple(mapped))

        def one(args: tuple[Any, ...]) -> Any:
            return call_host(host, results, args, apart=apart, staged=staged)

        cotangents = jax.lax.map(one, args) if apart else one(args)
        return cotangents, jax.tree.map(lambda x: True, cotangents)

    run = jax.custom_batching.custom_vmap(at_run_time)
    run.def_vmap(many)
    return run(*args)


def _called_back(host: Host, results: Any, args: tuple[Any, ...]) -> Any:
    """Return the outputs of `host` at run time, as JAX traces them."""

    def on_numpy(*args: Any) -> Any:
        return host(*jax.tree.map(np.asarray, args))

    if buffer_callback is None:
        return jax.pure_callback(on_numpy, results, *args)

    def fill(context: Any, out: Any, *args: Any) -> None:
        for room, values in zip(jax.tree.leaves(out), jax.tree.leaves(on_numpy(*args)), strict=True):
            np.copyto(np.asarray(room), values, casting="no")

    return buffer_callback(fill, results)(*args)


def _axes(args: Any) -> tuple[Any, ...]:
    """Return the axes of a mesh along which any of the arrays differs, within `jax.shard_map`."""
    return tuple(sorted(set().union(*[_axes_of(x) for x in jax.tree.leaves(args)])))


def _axes_of(x: Any) -> frozenset[Any]:
    form = jax.typeof(x)
    known = getattr(form, "manual_axis_type", None)  # by older versions of JAX: vma
    return getattr(form, "vma", frozenset()) if known is None else known.varying


def _varying(tree: Any, axes: tuple[Any, ...]) -> Any:
    """Return arrays that JAX knows to differ along axes of a mesh, as all that a callback makes of such arrays does.

    What they were made of has to differ along all of these axes, too: then cotangents of what did not are summed.
    """
    if not axes:
        return tree

    def one(x: Any) -> Any:
        new = tuple(axis for axis in axes if axis not in _axes_of(x))
        if not new:
            return x
        return jax.lax.pcast(x, new, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(x, new)

    return jax.tree.map(one, tree)


def differentiable(rule: Any, *args: Any) -> Any:
    """Return the outputs of a rule; its pullback is the rule's, which has none of its own."""

    def value(*args: Any) -> Any:
        return call_host(rule.value, rule.results, args, apart=rule.apart, staged=rule.staged)

    def forward(*args: Any) -> tuple[Any, Any]:
        out, kept = _once(rule, rule.forward, rule.forms)(*args)
        return out, (args, out, kept)

    def backward(known: tuple[Any, ...], g: Any) -> Any:
        return _once(rule, rule.backward, rule.backward_forms)(*known, g)

    if not is_traced(args):
        return value(*args)
    args = _varying(args, _axes(args))
    function = jax.custom_vjp(value)
    function.defvjp(forward, backward)
    try:
        return function(*args)
    except TypeError as error:
        if "forward-mode" not in str(error):
            raise
        raise BackendUnavailable(rule.no_tangents) from None


def _once(rule: Any, host: Host, results: Host) -> Host:
    """Return a function that calls `host`, and says what has derivatives of what it makes."""
    run: Any = jax.custom_jvp(lambda *args: call_host(host, results, args, apart=rule.apart))

    def refuse(primals: Any, tangents: Any) -> Any:
        raise BackendUnavailable(rule.no_second)

    run.defjvp(refuse)
    return run  # type: ignore[no-any-return]
