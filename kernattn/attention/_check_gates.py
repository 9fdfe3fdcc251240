"""Checks of what stands beside keys: gates, their logs, and keys so long that states grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.bridge import CannotLend, library_of
from kernattn._arrays.namespaces import Array, check_floating, dtype_name, namespace, placement
from kernattn._runtime.checks import shown
from kernattn._runtime.deprecated import warn_user
from kernattn.errors import DTypeError, EmptyInputError, MixedLibraryError, ParameterError, ShapeError

MOST = 2.0  # beta k^T k, beyond which a delta rule enlarges what it should replace, as it does below 0
SLACK = 0.02  # of rounding, and of differences about 0 and 2

FEW = 32  # numbers of which Python finds the largest sooner than NumPy


def pair_of(erase: Any) -> tuple[Any, Any]:
    """Return the rows that are read before the decay and those where it is added, None where nothing is erased so."""
    if erase is None:
        return None, None
    if not isinstance(erase, tuple | list) or len(erase) != 2:
        raise ParameterError(f"erase must be a pair of arrays, what is read and where it is added; got {shown(erase)}")
    if any(x is None for x in erase):
        raise ParameterError("erase must be a pair of arrays; got None for one of them")
    return erase[0], erase[1]


def check_gates(gates: dict[str, Array | None], q: Array, columns: int) -> dict[str, tuple[int, ...]]:
    """Return the leading axes of what stands beside keys of so many channels, which must fit."""
    leads = {name: _check_gate(name, x, q, columns) for name, x in gates.items() if x is not None}
    check_logs(gates["g"], gates["gk"])
    return leads


def check_logs(g: Array | None, gk: Array | None) -> None:
    """Raise where a log of a decay is above 0; a traced one, and one on a GPU, is not looked at."""
    if (g is None or _few_at_most_0(g)) and (gk is None or _few_at_most_0(gk)):
        return
    if (why := refused_logs(g=g, gk=gk)) is not None:
        raise ParameterError(why)


def warn_of_shares(beta: Array, key_mask: Array | None, unit_keys: bool) -> None:
    """Warn where beta of a token is below 0, or above 2 beside keys that have norm 1; none is looked at in graphs."""
    if (seen := _on_host(beta)) is None:
        return
    top = MOST + SLACK if unit_keys else np.inf
    least, most = (float(f.reduce(seen, axis=None)) for f in (np.minimum, np.maximum))
    if not (least < -SLACK or most > top):
        return
    if key_mask is not None and (mask := _on_host(key_mask)) is not None:
        seen = np.where(mask, seen, np.ones_like(seen))
        least, most = (float(f.reduce(seen, axis=None)) for f in (np.minimum, np.maximum))
    if least < -SLACK or most > top:
        warn_user(
            f"beta is the share that a delta rule replaces, in [0, 2] for keys of norm 1, and is {least:.3g} to "
            f"{most:.3g} here: states grow at tokens outside; ka.gates.delta_net makes it of logits",
            UserWarning,
        )


def warn_of_growth(out: Array, k: Array, beta: Array, *others: Array | None) -> None:
    """Warn where the last outputs are not finite, no argument is NaN, and keys are so long that states grow."""
    if (last := _on_host(out)) is None or np.isfinite(last[..., -1, :]).all():
        return
    seen = [_on_host(x) for x in (k, beta, *others) if x is not None]
    if any(x is None or np.isnan(x).any() for x in seen):
        return
    keys, shares = (np.asarray(x, np.float64) for x in seen[:2])
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        most = np.max(shares * np.sum(keys**2, axis=-1))
    if most > MOST + SLACK:
        warn_user(
            f"outputs are not finite: beta is for keys of norm 1, and beta k^T k is up to {most:.3g} here, where above "
            f"{MOST:g} states grow at every token; pass l2_normalise=True, or shorter keys",
            UserWarning,
        )


def refused_logs(**given: Array | None) -> str | None:
    """Return why logs of decays are refused, by their names; None where they are not."""
    for name, logs in given.items():
        if logs is not None and (most := largest(logs)) > 0:
            hint = "; of a decay, give the logarithm" if most <= 1 else ""
            return f"{name} must be natural logarithms of decays, at most 0; got {most:g}{hint}"
    return None


def _few_at_most_0(x: Array) -> bool:
    """Whether an array of NumPy has few numbers, and none above 0."""
    if type(x) is not np.ndarray or x.size > FEW:
        return False
    for number in x.ravel().tolist():  # noqa: SIM110 (in half the time)
        if number > 0:
            return False
    return True


def largest(x: Array) -> float:
    """Return the largest number of an array but for NaN; -inf where nobody can look."""
    seen = _on_host(x)
    return -np.inf if seen is None else float(np.fmax.reduce(seen, axis=None))


def _on_host(x: Array) -> NDArray[Any] | None:
    """Return an array of the CPU as NumPy's, None for a traced one, and for one on a GPU."""
    if type(x) is np.ndarray:
        return x
    library = library_of(x)
    if library is None or library.backend != "cpu":
        return None
    try:
        return library.look(x)
    except CannotLend:
        return None


def _check_gate(name: str, x: Array, q: Array, d: int) -> tuple[int, ...]:
    """Return the leading axes of what stands beside keys, which must fit q."""
    namespace(**{name: x}, q=q)
    allowed = {dtype_name(q)} | ({"float32"} if dtype_name(q) in ("float16", "bfloat16") else set())
    if check_floating(name, x) not in allowed:
        raise DTypeError(f"{name} must have dtype {' or '.join(sorted(allowed))}; got {dtype_name(x)}")
    if placement(x) != placement(q):
        raise MixedLibraryError(f"{name} must be on the device of q, {placement(q)}; got {placement(x)}")
    if 0 in x.shape:
        raise EmptyInputError(f"{name} must not be empty; got shape {tuple(x.shape)}")
    n, axes = q.shape[-2], 1 if name in ("g", "beta") else 2
    if tuple(x.shape[-axes:]) not in (((n,), (1,)) if axes == 1 else ((n, d),)):
        wanted = f"(..., {n}) or (..., 1)" if axes == 1 else f"(..., {n}, {d})"
        hint, shape = _axes_meant(name, tuple(x.shape), tuple(q.shape)), tuple(x.shape)
        raise ShapeError(f"{name} must be {wanted}, for queries of shape {tuple(q.shape)}; got shape {shape}{hint}")
    return tuple(x.shape[: x.ndim - axes])


def _axes_meant(name: str, shape: tuple[int, ...], of_q: tuple[int, ...]) -> str:
    """Return a hint, after a semicolon, at the axes that a gate of a wrong shape may be meant to have."""
    (n, d), heads = of_q[-2:], of_q[-3:-2]
    if name == "g" and shape[-2:] == (n, d):
        return "; decays of each channel are gk"
    if name in ("g", "beta") and heads and shape == heads:
        return "; a number for each head is (heads, 1)"
    swapped = (n, *heads) if name in ("g", "beta") else (n, *heads, d)
    return "; heads come before tokens: transpose" if heads and shape[-len(swapped) :] == swapped else ""
