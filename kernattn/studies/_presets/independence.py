"""How often tests of independence given other variables reject, of true nulls and of dependence."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._warmup import preparation
from kernattn.studies._palette import BLUE, GREY, VERMILION
from kernattn.studies._panels import draw_band
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Tally, Verdict
from kernattn.studies._records import Record, names, select
from kernattn.studies._sweep import Cell, Sweep

LEVEL, MOST = 0.05, 0.07
LOOKS = {
    "kernattn": ("kernattn", {"color": BLUE, "marker": "s"}),
    "rcit": ("RCIT", {"color": VERMILION, "marker": "o"}),
}
INNER = (np.tanh, lambda t: np.sin(1.5 * t), lambda t: t, lambda t: np.exp(-np.abs(t)), lambda t: np.cos(2 * t))
OUTER = (lambda t: t, lambda t: t**3, np.tanh)
ALTERNATIVES = {
    "null": lambda e, z: 0 * e,
    "line": lambda e, z: 0.2 * e,
    "square": lambda e, z: 0.2 * (e**2 - 1),
    "sign": lambda e, z: 0.25 * e * np.sign(z[..., 0]),
}
"""What Y has of the noise of X."""
FEATURES, FEW = 100, 5  # of RCIT: of the variables that are given, and of the others
NEAREST = 500  # rows whose distances have the median that is its lengthscale


def sweep(**asked: Any) -> Sweep:
    """Return the design: batches of tests, and the part of them that rejects."""
    options = Options(**asked)
    full = {
        "test": tuple(LOOKS),
        "relation": ("linear", "smooth"),
        "truth": ("null", "line"),
        "given": (1, 3, 6),
        "n": (200, 500, 1000),
        "batch": (20,),
    }
    small = {"relation": ("smooth",), "given": (6,), "n": (200,), "batch": (5,)}
    allowed = {"test": LOOKS, "relation": ("linear", "smooth"), "truth": ALTERNATIVES}

    def trial(cell: Cell, rng: np.random.Generator) -> dict[str, Any]:
        from kernattn import solvers  # loads SciPy: a table of studies does without

        x, y, z = draw(cell["relation"], cell["truth"], cell["batch"], cell["n"], cell["given"], rng)
        if cell["test"] == "rcit":
            values: Any = np.array([rcit(*rows, rng) for rows in zip(x, y, z, strict=True)])
        else:
            values = solvers.conditional_hsic(x[..., None], y[..., None], z, rng=rng).p_value
        return {"rejected": np.mean(values < LEVEL)}

    return Sweep(
        "independence",
        options.choose_axes(full, small, allowed),
        trial,
        paired=("test",),
        stop=options.stop(50, 8),
        seed=options.seed,
        prepare=preparation(float64=()),
    )


def draw(
    relation: str, truth: str, batch: int, n: int, given: int, rng: np.random.Generator
) -> tuple[Float64, Float64, Float64]:
    """Return x and y (b, n), which z (b, n, d) moves along one direction, and what y has of the noise of x."""
    z, e, f = rng.standard_normal((batch, n, given)), *rng.standard_normal((2, batch, n))
    along = np.sum(z, axis=-1) / np.sqrt(given)
    f = f + ALTERNATIVES[truth](e, z)
    if relation == "linear":
        return along + e, along + f, z
    return _bend(along, e, rng), _bend(along, f, rng), z


def _bend(along: Float64, noise: Float64, rng: np.random.Generator) -> Float64:
    """Return g(h(z) + noise) (b, n), of functions that are drawn for each test."""
    rows = []
    for here, there in zip(along, noise, strict=True):
        inner = INNER[rng.integers(len(INNER))](here)
        rows.append(OUTER[rng.integers(len(OUTER))]((inner - np.mean(inner)) / np.std(inner) + there))
    return np.stack(rows)


def rcit(x: Float64, y: Float64, z: Float64, rng: np.random.Generator) -> float:
    """Return the p-value of RCIT (Strobl, Zhang & Visweswaran 2019), with the saddlepoint tail of `hsic`.

    It takes least squares of 5 features of x, and of y with z, on 100 features of z, with a penalty of 1e-10.
    """
    from kernattn.solvers._hypotheses.tail import upper_tail

    x, y, z = _standard(x[:, None]), _standard(y[:, None]), _standard(z)
    n = len(x)
    left, right = (_random(rows, FEW, rng) for rows in (x, np.concatenate([y, z], axis=1)))
    of_z = _random(z, FEATURES, rng)
    inverse = np.linalg.pinv(of_z.T @ of_z / (n - 1) + 1e-10 * np.eye(FEATURES), hermitian=True)
    left, right = (f - of_z @ (inverse @ (of_z.T @ f / (n - 1))) for f in (left, right))
    products = (left[:, :, None] * right[:, None, :]).reshape(n, -1)
    values = np.linalg.eigvalsh(products.T @ products / n)
    return upper_tail(float(np.sum(np.sum(products, axis=0) ** 2)) / n, values[values > 1e-12 * values[-1]])


def _random(rows: Float64, m: int, rng: np.random.Generator) -> Float64:
    """Return random features of the median lengthscale, each with mean 0 and variance 1."""
    near = rows[:NEAREST]
    distances = np.sqrt(np.sum((near[:, None] - near) ** 2, axis=-1))
    median = np.median(distances[np.tril_indices(len(near), -1)])
    phases = rows @ (rng.standard_normal((rows.shape[1], m)) / median) + 2 * np.pi * rng.random(m)
    return _standard(np.cos(phases))


def _standard(rows: Float64) -> Float64:
    """Return columns with mean 0 and variance 1."""
    return np.asarray((rows - np.mean(rows, axis=0)) / np.std(rows, axis=0, ddof=1))


def _ends(r: Record) -> tuple[float, float]:
    """Return the interval of a rate; of redraws that are all alike, its only value."""
    low, high = r["rejected_low"], r["rejected_high"]
    return (r["rejected"] if low is None else low), (r["rejected"] if high is None else high)


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge which tests reject few true nulls, and whether ours finds as much as RCIT where RCIT does."""
    judged = []
    nulls = select(records, truth="null")
    for test in names(nulls, "test"):
        here = select(nulls, test=test)
        ends = [_ends(r) for r in here]
        near, far = sum(high <= MOST for _, high in ends), sum(low > MOST for low, _ in ends)
        rates = [r["rejected"] for r in here]
        judged.append(
            Verdict(
                f"at a nominal {LEVEL:.0%}, a test rejects {MOST:.0%} of true nulls at most",
                f"it rejects {min(rates):.1%} to {max(rates):.1%}",
                where=f"for {LOOKS[test][0]}",
                tally=Tally(near, far, len(here) - near - far),
            )
        )
    pairs = []
    for r in (r for r in records if r["truth"] != "null" and r["test"] == "kernattn"):
        same = {axis: r[axis] for axis in ("relation", "given", "n")}
        sizes = select(nulls, test="rcit", **same)
        others = select(records, test="rcit", truth=r["truth"], **same)
        pairs += [(r, other) for size in sizes for other in others if size["rejected"] <= MOST]
    if pairs:
        ours = [(_ends(r), _ends(other)) for r, other in pairs]
        holding = sum(a[0] >= b[1] or a[0] == a[1] == 1 for a, b in ours)
        against = sum(a[1] < b[0] for a, b in ours)
        said = ", ".join(f"{r['rejected']:.0%} and {other['rejected']:.0%}" for r, other in pairs)
        judged.append(
            Verdict(
                "where RCIT holds its size, conditional_hsic finds dependence as often or more",
                f"they find {said}",
                tally=Tally(holding, against, len(ours) - holding - against),
            )
        )
    return judged


def draw_rejected(records: Sequence[Record], ax: Any) -> None:
    """Draw the part of true nulls that tests reject over the number of variables given; dotted: the level."""
    here = select(records, truth="null", relation=names(records, "relation")[-1])
    for test in names(here, "test"):
        label, look = LOOKS[test]
        draw_band(
            ax, select(here, test=test), "given", "rejected", {"markersize": 4.0, "linewidth": 1.4, **look}, label
        )
    ax.axhline(LEVEL, color=GREY, linewidth=1.0, linestyle=":")
    ax.set(xlabel="variables that are given", ylabel="part of true nulls that are rejected", ylim=(0, None))


INDEPENDENCE = Preset(
    title="How often tests of independence given other variables reject",
    claim="Tests by residuals of kernel regressions reject true nulls too often, the more so the more variables are "
    "given: what the regressions leave of them is taken for dependence (Shah & Peters 2020).",
    cost="quick 4, full 5000 CPU seconds",
    sweep="kernattn.studies._presets.independence:sweep",
    verdicts=verdicts,
    figures={
        "rejected": Figure(
            "How many true nulls are rejected at a nominal 5 %",
            "X and Y are functions of Z along one direction, with noise; means over tests, 95% intervals",
            draw_rejected,
            by="n",
            shows="true nulls",
        )
    },
    made="rows of which it chooses whether they depend",
)
