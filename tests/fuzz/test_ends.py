"""Every map with rows and values anywhere among the floats, mixed in one call: finite, and where averages can be."""

from dataclasses import dataclass

import numpy as np

import kernattn as ka
import maps
from fuzz.rounds import fuzz
from kernattn._sums.units import balance
from kernattn.errors import ParameterError

SIZES = {"float16": (-7, 4), "float32": (-45, 38), "float64": (-323, 308)}
POSITIVE = {
    *maps.NONNEGATIVE,
    "relu",
    "generalized-relu",
    "generalized-exp",
    "neurons",
    "squared neurons",
    "favor_sharp",
}
MULTIPLES = {"elu1": "elu1", "relu": "relu", "neurons": "squared neurons", "exp": "exp"}
ROOM = {"float16": 80, "float32": 80, "float64": 900}  # octaves below the largest at which digits are left
LIFT = {"float16": 56, "float32": 56, "float64": 128}  # by which huge values lower their sums
FACTORS = (1e-30, 1e-6, 1e6, 1e30)


@dataclass(frozen=True)
class Ends:
    """A call, by the numbers that make it."""

    kind: str
    factor: float
    form: str
    backend: str
    dtype: str
    lead: tuple[tuple[int, ...], tuple[int, ...]]
    n: int
    spread: float
    huge: bool
    masked: bool
    seed: int

    @property
    def size(self):
        return self.n * (1 + len(self.lead[0]))


def drawn(rng):
    names = [*maps.MAPS, *maps.OTHERS, *[f"multiple {name}" for name in MULTIPLES]]
    leads = [((), ()), ((2,), (2,)), ((2, 2), (2, 1))]
    return Ends(
        kind=str(rng.choice(names)),
        factor=float(rng.choice(FACTORS)),
        form=str(rng.choice(["full", "causal", "steps", "merged"])),
        backend=str(rng.choice(["cpu", "reference"])),
        dtype=str(rng.choice(["float16", "float32", "float32", "float64"])),
        lead=leads[rng.integers(len(leads))],
        n=int(rng.integers(1, 40)),
        spread=float(rng.choice([0.0, 0.1, 1.0])),
        huge=bool(rng.random() < 0.3),
        masked=bool(rng.random() < 0.3),
        seed=int(rng.integers(2**31)),
    )


def _map(case):
    if case.kind.startswith("multiple "):
        return case.factor * maps.make(MULTIPLES[case.kind.removeprefix("multiple ")])
    return maps.make(case.kind)


def _rows(rng, case, lead, width, spread):
    """Rows whose sizes lie anywhere in that part of the floats, about one that is drawn."""
    low, high = SIZES[case.dtype]
    middle = rng.uniform(low, high) if spread else 0.0
    powers = np.clip(middle + spread * (high - low) * rng.uniform(-1, 1, (*lead, case.n, 1)), low, high - 0.1)
    rows = rng.uniform(-1, 1, (*lead, case.n, width)) * 10.0**powers
    return (np.abs(rows) if "chi2" in case.kind else rows).astype(case.dtype)


def _answers(case, phi, q, k, v, mask):
    options, cut = {"backend": case.backend}, case.n // 2
    if case.form == "full":
        return ka.linear_attention(q, k, v, phi, key_mask=mask, **options)
    if case.form == "causal" or (case.form == "steps" and case.lead[0] != case.lead[1]):
        return ka.causal_linear_attention(q, k, v, phi, key_mask=mask, **options)[0]
    if case.form == "merged":
        parts = [slice(cut), slice(cut, None)] if cut else [slice(None)]
        states = [
            ka.key_state(k[..., at, :], v[..., at, :], phi, key_mask=None if mask is None else mask[at], **options)
            for at in parts
        ]
        state = ka.merge_states(*states) if cut else states[0]
        return ka.attend(state, q, phi, **options)
    rows, state = [], ka.initial_state(phi, case.lead[1], v.shape[-1], like=k)
    for t in range(case.n):
        each = None if mask is None else np.broadcast_to(mask[t], case.lead[1])
        row, state = ka.linear_attention_step(
            state, q[..., t, :], k[..., t, :], v[..., t, :], phi, key_mask=each, **options
        )
        rows.append(row)
    return np.stack(rows, axis=-2)


def checked(case):
    rng, phi = np.random.default_rng(case.seed), _map(case)
    q, k = (_rows(rng, case, lead, maps.DIM, case.spread) for lead in case.lead)
    v = _rows(rng, case, case.lead[1], 3, 1.0 if case.huge else 0.0)
    mask = rng.random(case.n) < 0.6 if case.masked else None
    try:
        found = _answers(case, phi, q, k, v, mask)
    except ParameterError as error:
        if "f must give finite numbers" in str(error):
            return
        raise
    assert found.shape == (*q.shape[:-1], 3)
    assert found.dtype == q.dtype
    assert np.isfinite(found).all(), "a number that is not finite"
    if case.kind.removeprefix("multiple ") not in POSITIVE:
        return
    # of features far below the largest of a state few digits are left, but where loops know that none is negative
    vanished = np.zeros((*q.shape[:-1], 1), bool)
    if case.spread and (case.backend == "reference" or phi.spec is None):
        vanished = _octaves_below(phi, q, k, _seen(case, mask)) > ROOM[case.dtype] - case.huge * LIFT[case.dtype]
    seen = (v if mask is None else v[..., mask, :]).astype(np.longdouble)
    low, high = seen.min(axis=-2, initial=0.0, keepdims=True), seen.max(axis=-2, initial=0.0, keepdims=True)
    slack = (1e-2 if case.dtype == "float16" else 1e-3) * np.maximum(-low, high) + float(np.finfo(case.dtype).tiny)
    assert (vanished | (found >= low - slack)).all(), "below the values"
    assert (vanished | (found <= high + slack)).all(), "above the values"


def _seen(case, mask):
    """Return which key each query sees, (n, n)."""
    every = np.ones((case.n, case.n), bool)
    return (np.tril(every) if case.form in ("causal", "steps") else every) & (every if mask is None else mask)


def _octaves_below(phi, q, k, seen):
    """Return of each query by how many octaves its largest product with a key lies below what it could be."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = (balance(side(x.astype(np.float64))) for side, x in ((phi.scaled_query, q), (phi.scaled_key, k)))
        logs, keys = (np.log2(np.abs(values)) + log_scale / np.log(2) for values, log_scale in parts)
        products = np.max(logs[..., :, None, :] + keys[..., None, :, :], axis=-1)  # (..., n, n)
        largest = np.max(logs, axis=-1)[..., None] + np.max(keys, axis=-1)[..., None, :]
        below = np.max(largest, -1, where=seen, initial=-np.inf) - np.max(products, -1, where=seen, initial=-np.inf)
    return np.where(np.isnan(below), np.inf, below)[..., None]


def test_ends():
    fuzz(__file__, drawn, checked, cases=60)
