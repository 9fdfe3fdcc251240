"""Random calls of every form of attention against the definition, and calls with one argument spoilt."""

from dataclasses import dataclass

import numpy as np

import kernattn as ka
from fuzz import oracle
from fuzz.rounds import fuzz

KINDS = ("elu1", "relu", "exp", "positive", "hyperbolic", "trigonometric", "phase", "softmax")
NORMS = (1e-3, 1.0, 1.0, 3.0, 10.0, 1e3)
ROOM = {"float32": 100, "float64": 950}  # octaves between the largest feature and the smallest that count
FORMS = ("bidirectional", "causal", "steps", "resumed", "merged")


@dataclass(frozen=True)
class Call:
    """A call, by the numbers that make it."""

    kind: str
    form: str
    backend: str
    dtype: str
    heads: int
    n: int
    d: int
    m: int
    e: int
    norm: float
    masked: bool
    segmented: bool
    seed: int

    @property
    def size(self):
        return self.heads * self.n * (self.d + self.m + self.e)

    @property
    def causal(self):
        return self.form not in ("bidirectional", "merged")


def drawn(rng):
    small, kind = rng.random() < 0.5, str(rng.choice(KINDS))
    return Call(
        kind=kind,
        form=str(rng.choice(FORMS)),
        backend=str(rng.choice(["cpu", "reference"])),
        dtype=str(rng.choice(["float32", "float64"])),
        heads=int(rng.integers(1, 4)),
        n=int(rng.integers(1, 8 if small else 150)),
        d=int(rng.integers(1, 6 if small else 40)),
        m=2 * int(rng.integers(1, 5 if small else 30)),
        e=int(rng.integers(1, 4 if small else 20)),
        norm=float(rng.choice(NORMS)),
        masked=bool(rng.random() < 0.4),
        segmented=bool(rng.random() < 0.3),
        seed=int(rng.integers(2**31)),
    )


def _map(call):
    if call.kind == "softmax":
        return None
    if call.kind in ("elu1", "relu", "exp"):
        return getattr(ka.features, call.kind)()
    return ka.random_features(ka.kernels.Softmax(), call.d, call.m, call.kind, "iid", rng=call.seed)


def _inputs(call):
    rng = np.random.default_rng(call.seed)
    q, k = (rng.standard_normal((2, call.heads, call.n, call.d)) * call.norm / call.d**0.5).astype(call.dtype)
    v = rng.standard_normal((call.heads, call.n, call.e)).astype(call.dtype)
    mask = rng.random((call.heads, call.n)) < 0.7 if call.masked else None
    segments = np.sort(rng.integers(0, 3, (call.heads, call.n))) if call.segmented else None
    return q, k, v, mask, segments


def _answers(call, phi, q, k, v, mask, segments):
    options, cut = {"backend": call.backend}, call.n // 2
    if call.kind == "softmax":
        return ka.softmax_attention(q, k, v, causal=call.causal, key_mask=mask, **options)
    if call.form == "bidirectional":
        return ka.linear_attention(q, k, v, phi, key_mask=mask, **options)
    if call.form == "causal" or cut == 0:
        out, _ = ka.causal_linear_attention(q, k, v, phi, key_mask=mask, segment_ids=segments, **options)
        return out
    head, tail = (slice(None), slice(cut)), (slice(None), slice(cut, None))
    first, last = (None, None) if mask is None else (mask[head], mask[tail])
    if call.form == "merged":
        states = (
            ka.key_state(k[part], v[part], phi, key_mask=each, **options)
            for part, each in ((head, first), (tail, last))
        )
        return ka.attend(ka.merge_states(*states), q, phi, **options)
    out, state = ka.causal_linear_attention(q[head], k[head], v[head], phi, key_mask=first, **options)
    if call.form == "resumed":
        rest, _ = ka.causal_linear_attention(q[tail], k[tail], v[tail], phi, state=state, key_mask=last, **options)
        return np.concatenate([out, rest], axis=1)
    rows = [out]
    for t in range(cut, call.n):
        each = None if mask is None else mask[:, t]
        row, state = ka.linear_attention_step(state, q[:, t], k[:, t], v[:, t], phi, key_mask=each, **options)
        rows.append(row[:, None])
    return np.concatenate(rows, axis=1)


def checked(call):
    phi, (q, k, v, mask, segments) = _map(call), _inputs(call)
    kept = tuple(x.copy() for x in (q, k, v))
    segments = segments if call.form == "causal" and phi is not None else None
    found = _answers(call, phi, q, k, v, mask, segments)
    for before, after in zip(kept, (q, k, v), strict=True):
        np.testing.assert_array_equal(before, after, "an input was written to")
    assert found.shape == v.shape
    assert found.dtype == v.dtype
    assert np.isfinite(found).all(), "a number that is not finite"
    eps, lost = float(np.finfo(call.dtype).eps), np.zeros(call.n)
    for h in range(call.heads):
        pairs = oracle.seen(
            call.n, call.causal, None if mask is None else mask[h], None if segments is None else segments[h]
        )
        if phi is None:
            logs = (q[h].astype(float) @ k[h].T.astype(float)) * call.d**-0.5
            expected, reach, blur = _softmax(logs, v[h], pairs)
        else:
            omega, scale = getattr(phi, "omega", None), call.d**-0.25
            phase = getattr(phi, "phase", None)
            sides = [oracle.log_features(x[h], call.kind, omega, scale, phase) for x in (q, k)]
            expected, reach = oracle.attention(*sides, v[h], pairs)
            if call.kind == "elu1":  # one unit for all features of a state
                lost = oracle.vanishing(sides[0][0], sides[1][0], pairs, ROOM[call.dtype])
            blur = _blur(call, omega, scale, q[h], k[h])
        error = np.max(np.abs(found[h] - expected), axis=-1)
        allowed = 100 * eps * (1 + blur) * (reach + 1) + lost * (1 + np.abs(v[h]).max())
        known = allowed < 0.1  # beyond, rounding of the inputs decides
        assert (error[known] <= allowed[known]).all(), f"head {h}: {np.max(error[known] - allowed[known])} too far"
        if call.kind in ("elu1", "exp", "positive", "hyperbolic", "softmax"):
            _assert_inside(found[h], v[h], pairs, eps, lost > 1, call.backend == "cpu")


def _softmax(logs, v, pairs):
    masked = np.where(pairs, logs, -np.inf)
    peak = np.max(masked, axis=-1, keepdims=True)
    weights = np.exp(masked - np.where(np.isfinite(peak), peak, 0.0))
    total = np.sum(weights, axis=-1, keepdims=True)
    expected = weights @ v.astype(float) / np.where(total > 0, total, 1.0)
    return expected, np.full(len(v), np.max(np.abs(v))), float(np.max(np.abs(logs)))


def _blur(call, omega, scale, *sides):
    """Return by how many units in the last place the logarithm of a weight may be off."""
    if omega is None:
        return max(float(np.max(np.abs(x))) for x in sides)
    rows = [scale * x.astype(float) for x in sides]
    return sum(float(np.max(np.abs(x) @ np.abs(omega).T)) + float(np.max(np.sum(x**2, axis=-1))) for x in rows)


def _assert_inside(found, v, pairs, eps, vanished, or_nothing):
    """Averages lie among the values, but for rows whose features have vanished: 0 is right there, or else anything."""
    for i, row in enumerate(pairs):
        if vanished[i] and row.any() and ((found[i] == 0).all() or not or_nothing):
            continue
        if row.any():
            low, high = v[row].min(axis=0), v[row].max(axis=0)
            slack = 100 * eps * (1 + np.abs(v).max())
            assert (found[i] >= low - slack).all(), "below the values"
            assert (found[i] <= high + slack).all(), "above the values"
        else:
            assert (found[i] == 0).all(), "a row that sees nothing is not 0"


def test_calls():
    fuzz(__file__, drawn, checked, cases=40)


@dataclass(frozen=True)
class Spoilt:
    """A call one of whose arguments is not what it should be."""

    kind: str
    argument: str
    given: int

    size = 1


def _junk():
    good = np.ones((5, 4), np.float32)
    return [
        None, True, np.bool_(True), 0, -1, 3.5, np.nan, 2**31, 2**62, 10**400, np.float32(1), "x", b"x", "cpu", "gpu",
        [], [[1.0]], {}, (), object(), Ellipsis, type, len, slice(3), range(3), memoryview(good),
        np.array(None), np.ones(()), np.ones(4), np.ones((0, 4)), np.ones((5, 4)), np.ones((99, 1, 5, 4), np.float32),
        *(np.ones((5, 4), dtype) for dtype in (complex, int, bool, ">f4", np.longdouble, object, "M8[s]", np.float16)),
        good[:, :3], good[None], good[::-1], np.broadcast_to(np.float32(1), (5, 4)), good.astype("U4"),
        np.ma.array(good), good.view(np.recarray),
        ka.features.elu1(), ka.kernels.Gaussian(), ka.projections.Iid(), ka.key_state(good, good, ka.features.relu()),
    ]  # fmt: skip


GOOD = np.ones((5, 4), np.float32)
PHI = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=0)


def _drawn(spec):
    return lambda m, d, rng, **fields: spec(**fields).draw(m, d, rng)


STATE = ka.key_state(GOOD, GOOD, PHI, backend="reference")  # made by every worker: nothing to compile
ARRAYS = {"q": GOOD, "k": GOOD, "v": GOOD, "phi": PHI}
CALLS = {
    "linear_attention": (ka.linear_attention, {**ARRAYS, "key_mask": None, "backend": None}),
    "causal_linear_attention": (
        ka.causal_linear_attention,
        {**ARRAYS, "state": None, "key_mask": None, "segment_ids": None, "backend": None},
    ),
    "linear_attention_step": (
        ka.linear_attention_step,
        {
            "state": STATE, "q": GOOD[0], "k": GOOD[0], "v": GOOD[0], "phi": PHI,
            "key_mask": None, "backend": None, "reuse_state": False, "out": None,
        },
    ),
    "key_state": (ka.key_state, {"k": GOOD, "v": GOOD, "phi": PHI, "key_mask": None, "backend": None}),
    "attend": (ka.attend, {"state": STATE, "q": GOOD, "phi": PHI, "backend": None}),
    "merge_states": (ka.merge_states, {"a": STATE, "b": STATE}),
    "initial_state": (ka.initial_state, {"phi": PHI, "batch_shape": (), "value_dim": 3, "like": GOOD}),
    "softmax_attention": (
        ka.softmax_attention,
        {"q": GOOD, "k": GOOD, "v": GOOD, "scale": None, "causal": False, "key_mask": None, "backend": None},
    ),
    "random_features": (
        ka.random_features,
        {
            "kernel": ka.kernels.Gaussian(), "dim": 4, "num_features": 8, "estimator": "auto", "projection": "iid",
            "data": None, "rng": 0,
        },
    ),
    "a map": (PHI, {"x": GOOD, "backend": None}),
    "variance": (PHI.variance, {"x": GOOD, "y": GOOD}),
    "num_features_for": (PHI.num_features_for, {"x": GOOD, "y": GOOD, "error": 0.5, "probability": 0.5}),
    "a kernel": (ka.kernels.Gaussian(), {"x": GOOD, "y": GOOD}),
    "pairs": (ka.kernels.Cauchy().pairs, {"x": GOOD, "y": GOOD}),
    "Matern": (ka.kernels.Matern, {"nu": 1.5, "lengthscale": 1.0}),
    "Polynomial": (ka.kernels.Polynomial, {"degree": 2, "gamma": 1.0, "coef0": 0.0}),
    "nystrom": (
        ka.features.nystrom,
        {
            "kernel": ka.kernels.Gaussian(), "data": GOOD + np.eye(5, 4, dtype=np.float32), "num_landmarks": 3,
            "method": "uniform", "landmarks": None, "target": None, "cutoff": 0.0, "rng": 0,
        },
    ),
    "quadrature": (
        ka.features.quadrature,
        {"kernel": ka.kernels.Gaussian(), "dim": 2, "level": 2, "rule": "tensor", "data": None},
    ),
    "generalized": (ka.features.generalized, {"f": "relu", "dim": 4, "num_features": 8, "scale": 1.0}),
    "ScaledMap": (ka.features.ScaledMap, {"factor": 2.0, "inner": PHI}),
    "Orthogonal": (_drawn(ka.projections.Orthogonal), {"m": 6, "d": 4, "rng": 0, "method": "qr", "norms": "chi"}),
    "Hadamard": (_drawn(ka.projections.Hadamard), {"m": 6, "d": 4, "rng": 0, "chains": 3, "norms": "chi"}),
    "Antithetic": (_drawn(ka.projections.Antithetic), {"m": 6, "d": 4, "rng": 0, "base": ka.projections.Iid()}),
    "load": (ka.load, {"path": "nothing"}),
}  # fmt: skip
MISSING = (FileNotFoundError,)  # of a path that is fine, but for the file


def spoilt(rng):
    kind = str(rng.choice(list(CALLS)))
    return Spoilt(kind, str(rng.choice(list(CALLS[kind][1]))), int(rng.integers(len(_junk()))))


def refused_or_done(case):
    call, arguments = CALLS[case.kind]
    given = _junk()[case.given]
    if isinstance(given, int) and given > 2**20 and case.argument in ("dim", "m", "d", "num_features"):
        given = 2**62
    arguments = {name: given if name == case.argument else value for name, value in arguments.items()}
    positional = [arguments.pop("x")] if "x" in arguments else []
    try:
        call(*positional, **arguments)
    except (ka.errors.KernattnError, *MISSING):
        pass


def test_spoilt_arguments():
    fuzz(__file__, spoilt, refused_or_done, cases=200)
