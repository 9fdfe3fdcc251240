"""Gated linear attention as it is written, token by token in float64, and arguments with strong gates."""

import numpy as np

N, D, E = 37, 5, 3
RULES = "decay", "delta", "general"
GATES = "none", "scalar", "channel"


def recur(q, k, v, *, g=None, gk=None, beta=None, erase=None, scale=None, l2_normalise=False, state=None):
    """The recurrence as it is written, token by token in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    if l2_normalise:
        q, k = (x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6) for x in (q, k))
    n, d = q.shape[-2:]
    leads = [k[..., 0, 0], v[..., 0, 0], *(x[..., 0] for x in (g, beta) if x is not None)]
    leads += [x[..., 0, 0] for x in (gk, *(erase or ())) if x is not None]
    lead = np.broadcast_shapes(*(x.shape for x in leads))
    s = np.zeros((*lead, d, v.shape[-1])) if state is None else np.asarray(state.s, np.float64)
    out = []
    for t in range(n):
        logs = np.zeros(1)
        for x in (None if g is None else g[..., t % g.shape[-1], None], None if gk is None else gk[..., t, :]):
            logs = logs if x is None else logs + np.asarray(x, np.float64)
        before, s = s, np.exp(logs)[..., None] * s
        value = v[..., t, None, :]
        if beta is not None:
            value = np.asarray(beta, np.float64)[..., t, None, None] * (value - k[..., t, None, :] @ s)
        if erase is not None:
            a, b = (np.asarray(x, np.float64)[..., t, :] for x in erase)
            s = s + b[..., None] * (a[..., None, :] @ before)
        s = s + k[..., t, :, None] * value
        out.append((d**-0.5 if scale is None else scale) * q[..., t, None, :] @ s)
    return np.concatenate(out, axis=-2), s


def draw(rule, gate, *, n=N, d=D, e=E, seed=0, heads=(2, 3), dtype="float64", l2=False):
    """Arguments with strong gates among mild ones, a reset, and grouped queries."""
    rng = np.random.default_rng(seed)
    lead = (*heads[:-1], 1)
    q, k, v = (rng.standard_normal((*own, n, c)) for own, c in ((heads, d), (lead, d), (lead, e)))
    options = {}
    if gate == "scalar":
        options["g"] = -np.exp(2 * rng.standard_normal((*lead, n)))
        options["g"][..., n // 3] = -np.inf
    elif gate == "channel":
        options["gk"] = -np.exp(2 * rng.standard_normal((*lead, n, d)))
        options["gk"][..., n // 3, :2] = -np.inf
    if rule == "delta":
        k = k if l2 else k / np.linalg.norm(k, axis=-1, keepdims=True)
        options["beta"] = rng.uniform(0, 2, (*lead, n))
        options["beta"][..., 1] = 0
    elif rule == "general":
        options["erase"] = tuple(0.3 * rng.standard_normal((2, *lead, n, d)))
    if l2:
        options["l2_normalise"] = True

    def cast(x):
        return tuple(map(cast, x)) if isinstance(x, tuple) else x.astype(dtype) if hasattr(x, "astype") else x

    return tuple(map(cast, (q, k, v))), {name: cast(x) for name, x in options.items()}


def close(got, wanted, of=1e-12):
    np.testing.assert_allclose(got, wanted, atol=of * np.max(np.abs(wanted)), rtol=0)
