r"""Cotangents of decayed means, which are gated attention of features in units and its quotient.

Units are held: no output depends on them. With :math:`\hat v = [v, 1]`, the op's outputs :math:`[s, z]` have the
cotangents :math:`[g, -g^T o] / z`; its pullback gives those of the features in units, which are the maps' times factors
of at most 1, and of the logs between units, which are those of g and gk.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, namespace, unmasked
from kernattn._gradients.maps import learns
from kernattn._gradients.recorded import like, like_state, of_map, pair, recorded
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent, sum_onto
from kernattn._sums.peaked import LinearState
from kernattn.attention._decayed import Decayed, as_gated, ended_state, means_of, to_units
from kernattn.attention._linear import check_causal
from kernattn.features import FeatureMap
from kernattn.ops.features_vjp.reference import pull_back


@np.errstate(over="ignore")
def decayed(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    state: LinearState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    g: Array | None,
    gk: Array | None,
    backend: str | None,
) -> tuple[tuple[Array, LinearState], Callable[[Any], dict[str, Any]]]:
    """Return what causal attention with decays returns, and what makes cotangents of its arguments, by name."""
    check_causal(q, k, v, phi, None, key_mask, segment_ids)
    means = as_gated(q, k, v, phi, g, gk, state, key_mask, segment_ids)
    (read, after), pulled = recorded("gated", means.given, backend)
    out, last = means_of(read, v.dtype), ended_state(means, after, phi.fingerprint)
    xp = namespace(v=v)
    specs: tuple[Any, Any] = (phi.query_spec, phi.key_spec)
    learn = learns(phi)

    def of_rows(x: Array, spec: MapSpec, features: Any, factor: Array, cotangent: Array, scale: bool) -> MapCotangent:
        logs = KINDS[spec.kind].per_feature
        f = cotangent * factor * features.values if logs else cotangent * factor
        f = xp.where(cotangent == 0, xp.zeros_like(f), f)
        return pull_back(phi._rows(x), spec, sum_onto(xp, f, (*x.shape[:-1], f.shape[-1])), scale, learn)

    def of_logs(x: Array | None, terms: Array, axes: int) -> Array | None:
        if x is None:
            return None
        terms = unmasked(terms, key_mask)
        terms = xp.sum(terms, axis=-1) if axes == 1 else terms
        return xp.astype(sum_onto(xp, terms, tuple(x.shape)), x.dtype, copy=False)

    @np.errstate(over="ignore")
    def pullback(cotangent: Any) -> dict[str, Any]:
        of_out, of_last = pair(cotangent, "the state")
        of_read = _of_quotient(read, like("the cotangent of the outputs", of_out, out))
        found = pulled(of_read, _of_ended(means, after, like_state(of_last, last)))
        terms = found["g"][..., None] if found["gk"] is None else found["gk"]
        terms = xp.where(means.fades, terms, xp.zeros_like(terms))
        dv = unmasked(found["v"][..., :-1], key_mask)
        sides = {
            name: of_rows(x, spec, features, factor, found[name], name == "k")
            for name, x, spec, features, factor in zip(
                "qk", (q, k), specs, (means.queries, means.keys), means.factors, strict=True
            )
        }
        of_state = None
        if state is not None:
            sums = found["state"]
            of_state = LinearState(sums[..., :-1], sums[..., -1], xp.zeros_like(state.peak), state.fingerprint)
        return {
            **of_map(phi, {"q": q, "k": k}, sides),
            "v": xp.astype(sum_onto(xp, dv, tuple(v.shape)), v.dtype, copy=False),
            "state": of_state,
            "g": of_logs(g, terms, 1),
            "gk": of_logs(gk, terms, 2),
        }

    return (out, last), pullback


def _of_quotient(read: Array, g: Array) -> Array:
    """Return the cotangents of numerators and normalisers, none where there is no normaliser or no cotangent."""
    xp = namespace(read=read)
    z, g = read[..., -1:], xp.astype(g, read.dtype, copy=False)
    none = (z == 0) | xp.all(g == 0, axis=-1, keepdims=True)
    g = xp.where(none, xp.zeros_like(g), g / xp.where(none, xp.ones_like(z), z))
    mean = xp.where(none, xp.zeros_like(g), means_of(read, read.dtype))
    return xp.concat([g, -xp.sum(g * mean, axis=-1, keepdims=True)], axis=-1)


def _of_ended(means: Decayed, after: Array, cotangent: Any) -> Array | None:
    """Return the cotangent of the op's last sums from that of the state that they are."""
    if cotangent is None:
        return None
    xp = namespace(after=after)
    last = xp.broadcast_to(means.last, (*after.shape[:-2], *means.last.shape[-1:]))
    _, factor = to_units(xp, last, means.keys.log_scale.shape[-1])
    both = xp.concat([cotangent.s, cotangent.z[..., None]], axis=-1)
    return xp.where(factor[..., None] == 0, xp.zeros_like(both), factor[..., None] * both)
