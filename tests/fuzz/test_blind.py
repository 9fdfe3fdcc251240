"""Causal rows before a change, and before a cut, are the same bit for bit."""

from dataclasses import dataclass

import numpy as np

import kernattn as ka
from fuzz.rounds import fuzz

KINDS = ("elu1", "relu", "exp", "positive", "hyperbolic", "trigonometric", "phase", "favor_sharp", "softmax")


@dataclass(frozen=True)
class Change:
    """A sequence, and from which row on it becomes another one."""

    kind: str
    backend: str
    dtype: str
    heads: int
    n: int
    at: int
    d: int
    m: int
    norm: float
    far: float
    seed: int

    @property
    def size(self):
        return self.heads * self.n * (self.d + self.m)


def drawn(rng):
    n, kind, backend = int(rng.integers(2, 400)), str(rng.choice(KINDS)), str(rng.choice(["cpu", "cpu", "reference"]))
    ends = backend == "cpu" and kind != "favor_sharp" and rng.random() < 0.3
    return Change(
        kind=kind,
        backend=backend,
        dtype=str(rng.choice(["float32", "float64"])),
        heads=int(rng.integers(1, 4)),
        n=n,
        at=int(rng.integers(1, n)),
        d=int(rng.integers(1, 70)),
        m=2 * int(rng.integers(1, 70)),
        norm=float(10 ** rng.choice([-20.0, 4.0, 8.0, 20.0] if ends else [-2.0, 0.0, 0.5, 1.0])),
        far=float(10 ** rng.choice([-20.0, 8.0, 30.0] if ends else [0.0, 0.0, 1.0, 2.0])),
        seed=int(rng.integers(2**31)),
    )


def checked(case):
    rng = np.random.default_rng(case.seed)
    q, k, v = (rng.standard_normal((3, case.heads, case.n, case.d)) * case.norm / case.d**0.5).astype(case.dtype)
    other = [x.copy() for x in (q, k, v)]
    for x in other:
        x[:, case.at :] = rng.standard_normal(x[:, case.at :].shape) * case.far
    if case.kind == "softmax":
        run = ka.softmax_attention
        before, after = (run(*each, causal=True, backend=case.backend) for each in ((q, k, v), other))
    else:
        phi = _map(case, q[0])
        whole = [ka.causal_linear_attention(*each, phi, backend=case.backend)[0] for each in ((q, k, v), other)]
        before, after = whole
        if case.backend == "cpu":
            parts = (x[:, : case.at] for x in (q, k, v))
            cut, _ = ka.causal_linear_attention(*parts, phi, backend="cpu")
            np.testing.assert_array_equal(cut, before[:, : case.at], "rows before a cut moved")
    np.testing.assert_array_equal(after[:, : case.at], before[:, : case.at], "rows before a change moved")


def _map(case, rows):
    if case.kind in ("elu1", "relu", "exp"):
        return getattr(ka.features, case.kind)()
    data = rows if case.kind == "favor_sharp" else None
    return ka.random_features(ka.kernels.Softmax(), case.d, case.m, case.kind, "iid", data, rng=case.seed)


def test_rows_before_a_change(monkeypatch):
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")
    fuzz(__file__, drawn, checked, cases=40)
