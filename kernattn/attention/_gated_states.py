"""States of gated attention: stretches of tokens summarised apart, and merged in their order."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import device

from kernattn._arrays.autocast import without_autocast
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, namespace, without_flags
from kernattn._arrays.plain import on_plain
from kernattn._runtime.elsewhere import told_keywords
from kernattn._sums.peaked import no_item
from kernattn.attention._gated import GatedState, gated_arguments
from kernattn.errors import StateMismatchError
from kernattn.ops.gated import OP
from kernattn.ops.gated.reference import log_decays


class GatedStretch(NamedTuple):
    r"""What a stretch of tokens remembers, and what it does to a state before it: :math:`\Phi S_{before} + S`."""

    s: Array  # (..., d, e)
    through: Array  # Phi: decays (..., d, 1) or (..., 1, 1), or a matrix (..., d, d) where tokens erase

    def __getitem__(self, index: Any) -> Any:
        return no_item(self, index)


@traceable("gated_state")
@told_keywords
@on_plain
@np.errstate(over="ignore", under="ignore")
def gated_state(
    k: Array,
    v: Array,
    *,
    g: Array | None = None,
    gk: Array | None = None,
    beta: Array | None = None,
    erase: tuple[Array, Array] | None = None,
    l2_normalise: bool = False,
    key_mask: Array | None = None,
    backend: str | None = None,
) -> GatedStretch:
    r"""Return the state of a stretch of tokens that begins with nothing, and what it does to one before it.

    Stretches are summarised apart, and joined in their order by `merge_states`: :math:`S = \Phi S_{before} + S_{own}`,
    where :math:`\Phi` is the product of the decays, or, where tokens erase, that of their
    :math:`\mathrm{diag}(e^{g_t}) + b_t a_t^T`, which takes a pass of its own over the tokens.

    Parameters
    ----------
    k : (..., n, d) array
        Keys.
    v : (..., n, e) array
        Values.
    g : (..., n) or (..., 1) array, optional
        Logarithms of decays, as in `gated_linear_attention`.
    gk : (..., n, d) array, optional
        Logarithms of decays of each channel.
    beta : (..., n) or (..., 1) array, optional
        How much of what k reads is replaced by v.
    erase : pair of (..., n, d) arrays, optional
        What is read before the decay, and where it is added.
    l2_normalise : bool
        Divide keys by their norms first.
    key_mask : (..., n) bool array, optional
        True where there is a token.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    GatedStretch
        The state, and what the stretch does to one before it.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> k, v, g = np.ones((4, 1)), np.array([[8.0], [4.0], [2.0], [1.0]]), np.log(np.full(4, 0.5))
    >>> halves = [ka.attention.gated_state(k[part], v[part], g=g[part]) for part in (slice(2), slice(2, 4))]
    >>> ka.merge_states(*halves).s
    array([[4.]])
    """
    given = gated_arguments(k, k, v, g, gk, beta, erase, 1.0, l2_normalise, None, key_mask, None)
    run, values = OP.implementation(v, backend), given[2]
    _, s = run(*given)
    xp, d = namespace(s=s), k.shape[-1]
    if beta is None and erase is None:
        total = xp.sum(log_decays(xp, given[3], given[4], key_mask, xp.zeros_like(s[..., :1, :1])), axis=-2)
        return GatedStretch(s, xp.exp(total)[..., None])
    unit = xp.broadcast_to(xp.eye(d, dtype=s.dtype, device=device(s)), (*s.shape[:-2], d, d))
    nothing = xp.zeros_like(xp.broadcast_to(values[..., :1], (*values.shape[:-1], d)))
    _, matrix = run(*given[:2], nothing, *given[3:10], unit, *given[11:])
    return GatedStretch(s, matrix)


@traceable("merge_gated")
@without_autocast
@without_flags
def merge_gated(first: GatedState | GatedStretch, then: GatedStretch) -> GatedState | GatedStretch:
    """Return the state of two stretches of tokens, one after the other."""
    both = {"a": first, "b": then}
    throughs = {f"{name}.through": x.through for name, x in both.items() if isinstance(x, GatedStretch)}
    xp = namespace(**{"a.s": first.s, "b.s": then.s}, **throughs)
    if tuple(first.s.shape) != tuple(then.s.shape) or first.s.dtype != then.s.dtype:
        raise StateMismatchError(
            f"states to merge must have one shape and dtype; got s {tuple(first.s.shape)} {first.s.dtype} "
            f"and {tuple(then.s.shape)} {then.s.dtype}"
        )
    for name, stretch in both.items():
        if isinstance(stretch, GatedStretch) and not _fits(stretch):
            s, through = stretch
            raise StateMismatchError(
                f"through of {name} must be (..., d, 1), (..., 1, 1) or (..., d, d) beside s (..., d, e), and of its "
                f"dtype; got shapes {tuple(through.shape)} and {tuple(s.shape)} of {through.dtype} and {s.dtype}"
            )
    s = _pass_through(xp, then.through, first.s) + then.s
    return GatedState(s) if isinstance(first, GatedState) else GatedStretch(s, _both(xp, first.through, then.through))


def _fits(stretch: GatedStretch) -> bool:
    s, through = stretch
    if s.ndim < 2 or through.dtype != s.dtype:
        return False
    d, lead = s.shape[-2], tuple(s.shape[:-2])
    return tuple(through.shape) in {(*lead, d, 1), (*lead, 1, 1), (*lead, d, d)}


def _pass_through(xp: ModuleType, through: Array, s: Array) -> Array:
    if through.shape[-1] > 1:
        return xp.matmul(through, s)
    return xp.where(through == 0, xp.zeros_like(s), through * s)


def _both(xp: ModuleType, first: Array, then: Array) -> Array:
    """Return the transition of two stretches, one after the other."""
    if then.shape[-1] > 1 and first.shape[-1] == 1:
        return then * xp.matrix_transpose(first)
    return _pass_through(xp, then, first)
