"""The way back by array operations."""

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn._maps.spec import MapSpec
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn._sums.row_scale import row_scale
from kernattn.ops.block_softmax_vjp.reference import block_softmax_vjp
from kernattn.ops.causal_vjp.reference import causal_vjp
from kernattn.ops.hybrid_vjp.parts import Cotangents, Given, Made, Parts, pull_parts


def row_scales(x: Array, spec: MapSpec) -> tuple[Array, None]:
    """Return the log scales of rows (..., n, d), (..., n)."""
    xp = namespace(x=x)
    return row_scale(xp, xp.astype(x, accumulation_dtype(xp, x), copy=False), spec)[..., 0], None


PARTS = Parts(causal_vjp, block_softmax_vjp, row_scales)


def hybrid_vjp(
    q: Array, k: Array, v: Array, q_spec: MapSpec, k_spec: MapSpec, scale: float, plan: Plan, within: Plan,
    causal: bool, state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, near_bias: Array | None,
    out: Array, normaliser: Normaliser, near: Array, near_lse: Array, g: Array, after: PeakedSum | None, learn: bool,
) -> Cotangents:  # fmt: skip
    """Return the cotangents of what the op took."""
    given = Given(q, k, v, q_spec, k_spec, scale, plan, within, causal, state, key_mask, segment_ids, near_bias)
    return pull_wide(PARTS, given, Made(out, normaliser, near, near_lse, g, after), learn)


def pull_wide(parts: Parts, given: Given, made: Made, learn: bool) -> Cotangents:
    """Return the cotangents, of rows no narrower than the sums over them, in the dtypes of what was given."""
    xp = namespace(v=given.v)
    dtype = accumulation_dtype(xp, given.v)

    def wide(x: Array) -> Array:
        return xp.astype(x, dtype, copy=False)

    rows = {name: wide(getattr(given, name)) for name in "qkv"}
    cotangents = pull_parts(parts, given._replace(**rows), made._replace(out=wide(made.out), g=wide(made.g)), learn)
    assert cotangents is not None
    dq, dk, dv, *rest = cotangents
    dq, dk = (y._replace(x=xp.astype(y.x, x.dtype, copy=False)) for y, x in ((dq, given.q), (dk, given.k)))
    return dq, dk, xp.astype(dv, given.v.dtype, copy=False), *rest
