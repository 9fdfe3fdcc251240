"""Linear attention, one token at a time."""

from __future__ import annotations

from kernattn._arrays.bridge import autocast
from kernattn._arrays.door import crossed_at_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array
from kernattn._runtime.checks import boolean
from kernattn._sums.peaked import LinearState
from kernattn.attention._check import check_out, check_token, feature_map
from kernattn.attention._check_states import linear_state
from kernattn.attention._decayed import decayed_state, with_leads
from kernattn.attention._lowering import implementation, lowered_token, state_of, sums_of
from kernattn.attention._shapes import leading
from kernattn.features import FeatureMap
from kernattn.ops.step import OP as STEP


@traceable("linear_attention_step")
@crossed_at_once
def linear_attention_step(
    state: LinearState,
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    key_mask: Array | None = None,
    g: Array | None = None,
    gk: Array | None = None,
    backend: str | None = None,
    reuse_state: bool = False,
    out: Array | None = None,
) -> tuple[Array, LinearState]:
    r"""Take one token: :math:`S \leftarrow S + \phi(k) v^T`, :math:`z \leftarrow z + \phi(k)`.

    Its output is :math:`o = \phi(q)^T S / \phi(q)^T z`, the token included.
    Katharopoulos et al. (2020), eqs. 16 to 20: decoding in constant time and memory.

    Parameters
    ----------
    state : LinearState
        The state before the token, as `initial_state`, `key_state` or `causal_linear_attention` return it.
    q : (..., d) array
        Query of the token.
    k : (..., d) array
        Key of the token. Leading axes broadcast against those of q.
    v : (..., e) array
        Value of the token.
    phi : FeatureMap
        The map that made the state.
    key_mask : (...) bool array, optional
        True where there is a key.
    g : (...) array, optional
        Logarithm of the decay of what came before, as in `causal_linear_attention`; axes of `g` and `gk` are axes of k.
    gk : (..., M) array, optional
        Logarithms of decays of each feature.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.
    reuse_state : bool
        Allow the new state to be written into the arrays of the old one, which must not be used afterwards. By
        default the old state stays as it is.
    out : (..., e) array, optional
        A C-contiguous NumPy or CuPy array, or a tensor, of the dtype of v, apart in memory from every other argument:
        the output is written into it, and it is returned. It must be None where PyTorch records a gradient. On a GPU,
        with `reuse_state`, a map that has a spec, C-contiguous arrays, and k, v and key_mask of the leading axes of the
        state, a step allocates nothing on the device and waits for nothing once another has run on the same state: a
        CUDA graph can capture it.

    Returns
    -------
    out : (..., e) array
        Output of the token.
    state : LinearState
        The state after it.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi, x = ka.features.elu1(), np.zeros(2)
    >>> state = ka.initial_state(phi, (), value_dim=1, like=x)
    >>> for value in (0.0, 1.0, 5.0):
    ...     out, state = ka.linear_attention_step(state, x, x, np.array([value]), phi)
    >>> out
    array([2.])
    """
    reuse_state = boolean("reuse_state", reuse_state)
    q, k, v = autocast(q, k, v)
    if g is not None or gk is not None:
        k = with_leads(k, g, gk)
    check_token(linear_state(state), q, k, v, feature_map(phi), key_mask)
    given = state
    if g is not None or gk is not None:
        state = decayed_state(state, q, g, gk, key_mask)
    if out is not None:
        others = {"q": q, "k": k, "v": v, "g": g, "gk": gk, "key_mask": key_mask}
        others |= {"s": given.s, "z": given.z, "peak": given.peak}
        check_out(out, v, leading(1, q=q, k=k, v=v), others, phi)
    query, key, q_spec, k_spec = lowered_token(phi, q, k, key_mask)
    run = implementation(STEP, v, backend, query, key)
    before = sums_of(state)
    out, after = run(before, query, key, v, q_spec, k_spec, key_mask, reuse_state, out)
    return out, state if after is before else state_of(after, state.fingerprint)
