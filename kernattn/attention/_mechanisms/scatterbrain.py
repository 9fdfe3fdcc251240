"""Attention that is exact on a pattern and by features elsewhere."""

from __future__ import annotations

from typing import Any

from kernattn._arrays.autocast import cast_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, without_flags, zero_masked
from kernattn._plans.plan import Plan
from kernattn._plans.streams import streams_of
from kernattn._runtime.checks import boolean
from kernattn._runtime.elsewhere import told_keywords
from kernattn.attention._check import check_arrays, feature_map
from kernattn.attention._mechanisms.hybrid import (
    bias_of,
    check_segments,
    op_arguments,
    run_segments,
    scale_of,
    segment_runs,
    with_scale,
)
from kernattn.attention._mechanisms.taken_off import taken_off
from kernattn.attention._softmax import plan_of
from kernattn.attention.patterns import Pattern
from kernattn.errors import ShapeError
from kernattn.features import FeatureMap


@traceable("scatterbrain_attention")
@told_keywords
@cast_once
@without_flags
def scatterbrain_attention(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    pattern: Pattern | Plan,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    segment_ids: Array | None = None,
    near_bias: float | Array | None = None,
    backend: str | None = None,
) -> Array:
    r"""Return :math:`o_i = \sum_j w_{ij} v_j / \sum_j w_{ij}`, exact on a pattern and by features elsewhere.

    :math:`w_{ij} = e^{s q_i^T k_j + b}` where the pattern lets row i see key j, else :math:`\phi(q_i)^T \phi(k_j)`:
    ScatterBrain, Chen et al. (2021), and with a window the layer of LoLCATs, Zhang et al. (2025). Time and memory are
    linear in the number of tokens.

    Where each row sees one stretch of keys and the stretches move forwards, as those of windows, blocks and documents
    do, keys are summed when they leave the stretch, or before they enter it, and nothing is ever taken off. Other
    patterns (dilated windows, BigBird, one for each head) cost several times as much: sums of features over all keys,
    less those over the pattern, are taken in float64, as the difference loses the digits by which the features' weight
    on the pattern exceeds what is left.

    Parameters
    ----------
    q, k, v : (..., n, d), (..., l, d) and (..., l, e) arrays
        Queries, keys and values, of dtype float16, bfloat16, float32 or float64. Leading axes broadcast.
    phi : FeatureMap
        A map of the softmax kernel. The scale s is its kernel's; :math:`d^{-1/2}` for a map of none.
    pattern : Pattern or Plan
        Where weights are exact: one of `kernattn.patterns`, or the plan that one makes for these lengths.
    causal : bool
        Whether a query sees only what stands at or before it, on the pattern and elsewhere. The queries are the last n
        of the l positions.
    key_mask : (..., l) bool array, optional
        True where there is a key.
    segment_ids : (..., l) integer array, optional
        Packed sequences: a run of equal ids is one segment, and segments do not see each other, neither on the pattern
        nor elsewhere. For patterns of one stretch a row about its own place; the ids must be known numbers.
    near_bias : float or (...) array, optional
        The bias b of exact scores, 0 by default: an array of leading axes of the outputs, such as one number a head,
        can be learnt. :math:`e^b` is how much an exact weight counts beside one of features.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation of exact attention and of causal sums runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A row whose normaliser is exactly 0 is 0. Signed features
        (trigonometric) can give normalisers below 0, which are left as they are; those of positive features are
        positive, to rounding.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 64, 4))
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=4, num_features=32, rng=0)
    >>> exact, near = ka.softmax_attention(q, k, v), ka.patterns.local(8)
    >>> both = ka.attention.scatterbrain_attention(q, k, v, phi, near)
    >>> apart = ka.linear_attention(q, k, v, phi), ka.softmax_attention(q, k, v, pattern=near)
    >>> [bool(np.mean((both - exact) ** 2) < np.mean((each - exact) ** 2)) for each in apart]
    [True, True]
    """
    given, runs = prepared_on(q, k, v, phi, pattern, causal, key_mask, segment_ids, near_bias)
    if given is not None:
        return run_segments(given, runs, backend)[0]
    plan, bias = plan_of(pattern, q, k, v, causal), bias_of(near_bias, q, k, v)
    k, v = zero_masked(k, key_mask), zero_masked(v, key_mask)
    phi, q, k = with_scale(phi, q, k, None)
    return taken_off(q, k, v, phi, scale_of(phi, q.shape[-1]), plan, causal, key_mask, bias, backend)


def prepared_on(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    pattern: Pattern | Plan,
    causal: bool,
    key_mask: Array | None,
    segment_ids: Array | None,
    near_bias: Any,
) -> tuple[tuple[Any, ...] | None, Any]:
    """Return the op's arguments, None for a pattern that it does not take, and the runs of segments, if any."""
    causal = boolean("causal", causal)
    check_arrays("qkv", q, k, v, phi=feature_map(phi), key_mask=key_mask, segment_ids=segment_ids)
    plan = plan_of(pattern, q, k, v, causal)
    if q.shape[-2] > k.shape[-2]:
        raise ShapeError(f"queries are the last n of the l tokens; got n = {q.shape[-2]}, l = {k.shape[-2]}")
    bias = bias_of(near_bias, q, k, v)
    runs = None
    if segment_ids is not None:
        check_segments(plan, causal)
        runs = segment_runs(segment_ids)
    if streams_of(plan, causal, False) is None:
        return None, None
    return op_arguments(q, k, v, phi, plan, plan, causal, None, key_mask, segment_ids, bias), runs
