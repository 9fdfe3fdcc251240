r"""How many pairs a state of d^2 numbers holds: linear attention and the delta rule, with and without a gate.

The closed forms: keys x of :math:`N` pairs are independent and uniform on the sphere, values have norm 1 and mean 0,
and :math:`\gamma` is the decay of a token. Linear attention reads of a pair of age l (and of r earlier writings, N
tokens apart) :math:`\gamma^l v + \sum_r \gamma^{l + r N} v_r` and, as :math:`E (x^T x')^2 = 1 / d`, that of each other
pair over d. Under the delta rule :math:`E\, S S^T = a I + b x x^T` seen from x, where a token takes

.. math:: a \to \gamma^2 \left((1 - 1/d)\, a + \frac{b}{d (d + 2)}\right) + \frac 1d, \qquad
          b \to \gamma^2 \left(1 - \frac 2d + \frac 2{d (d + 2)}\right) b,

and :math:`E\, v^T S^T x` falls by :math:`\gamma (1 - 1/d)`: so the error is :math:`1 + a + b` less twice this.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.attention import gated_linear_attention
from kernattn.errors import ParameterError
from kernattn.studies._palette import BLUE, GREY, ORANGE, SKY, VERMILION, Look
from kernattn.studies._panels import draw_bars, read_field, read_interval, sort_by, write_numbers
from kernattn.studies._presets.preset import Figure, Options, Preset
from kernattn.studies._presets.verdict import Ratio, Tally, Verdict, count_lower, judge_coverage, pair
from kernattn.studies._records import Record, names, select
from kernattn.studies._sweep import Cell, Sweep

KEYS = ("random", "orthogonal")
RULES = ("linear", "gated", "delta", "gated_delta")
EXACT = 1e-20  # a squared error of rounding
ROUNDING = 1e-12  # values that are as near as that are equally near, and each is taken as often
SHARE = 0.9


def sweep(**asked: Any) -> Sweep:
    """Return the design: N pairs with keys of norm 1, written once or, with new values, twice; then all are asked."""
    options = Options(**asked)
    full = {"keys": KEYS, "writes": (1, 2), "rule": RULES, "d": (64,), "pairs": (8, 16, 32, 64, 128, 256)}
    chosen = options.choose_axes(full, {"d": (16,), "pairs": (4, 16, 64)}, {"keys": KEYS, "rule": RULES})
    if min(chosen["pairs"]) < 2:
        raise ParameterError(f"pairs must be at least 2; got {min(chosen['pairs'])}")
    return Sweep(
        "capacity",
        chosen,
        trial,
        facts,
        keep=lambda cell: cell["keys"] == "random" or cell["pairs"] <= cell["d"],
        paired=("rule",),
        stop=options.stop(64, 32),
        seed=options.seed,
        prepare=lambda: trial(
            {"keys": "random", "writes": 1, "rule": "gated_delta", "d": 4, "pairs": 4}, np.random.default_rng(0)
        ),
    )


def trial(cell: Cell | dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Return the squared error of what is read, and the share of pairs whose latest value is the nearest."""
    n, d, writes = cell["pairs"], cell["d"], cell["writes"]
    keys = rng.standard_normal((d, d if cell["keys"] == "orthogonal" else n))
    keys = np.linalg.qr(keys)[0][:, :n].T if cell["keys"] == "orthogonal" else _units(keys.T)
    values = _units(rng.standard_normal((writes, n, d)))
    beta = np.ones(n * writes) if "delta" in cell["rule"] else None
    g = np.full(n * writes, -1 / d) if "gated" in cell["rule"] else None
    written = np.tile(keys, (writes, 1))
    _, state = gated_linear_attention(written, written, values.reshape(-1, d), g=g, beta=beta)
    read, latest = keys @ state.s, values[-1]
    match = read @ values.reshape(-1, d).T  # with all that were written, replaced ones too
    best = match > np.max(match, axis=1, keepdims=True) - ROUNDING
    return {
        "error": np.mean(np.sum((read - latest) ** 2, axis=1)),
        "recall": np.mean(best[np.arange(n), n * (writes - 1) + np.arange(n)] / np.sum(best, axis=1)),
    }


def _units(x: Float64) -> Float64:
    return np.asarray(x / np.linalg.norm(x, axis=-1, keepdims=True))


def facts(cell: Cell) -> dict[str, Any]:
    """Return the expected squared error, None where there is no closed form."""
    times = {1: "once", 2: "twice"}.get(cell["writes"], f"{cell['writes']} times")
    of = cell["keys"], cell["writes"], cell["rule"], cell["d"], cell["pairs"]
    return {"where": f"{cell['keys']} keys, d = {cell['d']}, written {times}", "error_predicted": predict(*of)}


def predict(keys: str, writes: int, rule: str, d: int, pairs: int) -> float | None:
    """Return the expected squared error of a pair, the mean over all pairs."""
    fade = np.exp(-1 / d) if "gated" in rule else 1.0
    ages = np.arange(pairs)
    if "delta" not in rule:
        earlier = sum((fade ** (2.0 * (ages + r * pairs)) for r in range(1, writes)), np.zeros(pairs))
        every = fade ** (2.0 * ages) + earlier
        others = (np.sum(every) - every) / d if keys == "random" else 0.0
        return float(np.mean((1 - fade**ages) ** 2 + earlier + others))
    if keys == "orthogonal":
        return float(np.mean((1 - fade**ages) ** 2))
    return _predict_delta(fade, d, pairs) if writes == 1 else None


def _predict_delta(fade: float, d: int, pairs: int) -> float:
    before = np.zeros(pairs)  # a of the state that each pair was written into
    for t in range(1, pairs):
        before[t] = fade**2 * (1 - 1 / d) * before[t - 1] + 1 / d
    a, b, kept = fade**2 * before, 1 - fade**2 * before, np.ones(pairs)
    for last in range(pairs - 1, 0, -1):  # a token is taken by all pairs but the newest `pairs - last`
        old = slice(0, last)
        a[old] = fade**2 * ((1 - 1 / d) * a[old] + b[old] / (d * (d + 2))) + 1 / d
        b[old] *= fade**2 * (1 - 2 / d + 2 / (d * (d + 2)))
        kept[old] *= fade * (1 - 1 / d)
    return float(np.mean(1 + a + b - 2 * kept))


def verdicts(records: Sequence[Record]) -> list[Verdict]:
    """Judge who holds up to d pairs exactly, what the delta rule and a gate gain, and how many pairs are recalled."""
    judged = []
    for where in names(records, "where"):
        mine = select(records, where=where)
        judged += [_judge_exact(select(mine, rule=rule), where) for rule in names(mine, "rule") if "gated" not in rule]
        judged += [
            *_compare("the delta rule recalls more pairs than linear attention", mine, "linear", "delta", "recall"),
            *_compare("the delta rule errs less than linear attention", mine, "delta", "linear", "error"),
            *_compare("a gate lowers the error of linear attention", mine, "gated", "linear", "error"),
            *_compare("a gate lowers the error of the delta rule", mine, "gated_delta", "delta", "error"),
            _judge_recall(mine, where),
        ]
    return [*judged, judge_coverage(records, "error", "error_predicted", "mean errors")]


def _judge_exact(records: Sequence[Record], where: str) -> Verdict:
    few = [r for r in records if r["pairs"] <= r["d"]]
    right = sum(r["error"] < EXACT for r in few)
    return Verdict(
        f"{SPOKEN[records[0]['rule']]} holds up to d pairs exactly",
        where=f"for {where}",
        tally=Tally(right, len(few) - right, 0, "numbers of pairs"),
        ratio=Ratio("the squared error", [r["error"] for r in few]) if right < len(few) else None,
    )


def _compare(claim: str, mine: Sequence[Record], less: str, more: str, field: str) -> list[Verdict]:
    """Judge which of two rules has less of a field; where both are exact, or recall all pairs, there is none."""
    pairs = pair(mine, "rule", less, more, ("d", "pairs"))
    known = [
        (one, other)
        for one, other in pairs
        if None not in (one[f"{field}_low"], other[f"{field}_low"])
        and (max(one[field], other[field]) > EXACT if field == "error" else min(one[field], other[field]) < 1)
    ]
    if not known:
        return []
    ends = known if field == "error" else [(other, one) for one, other in known]
    ratios = [one[field] / other[field] for one, other in ends if min(one[field], other[field]) > EXACT]
    what = "the ratio of squared errors" if field == "error" else "the ratio of pairs recalled"
    return [
        Verdict(
            claim,
            where=f"for {known[0][0]['where']}",
            tally=count_lower(known, field, "numbers of pairs"),
            ratio=Ratio(what, ratios) if len(ratios) == len(known) else None,
        )
    ]


def _judge_recall(mine: Sequence[Record], where: str) -> Verdict:
    """Say up to how many pairs, and for all fewer, the nearest value is the right one in nine cases of ten."""
    said = []
    for rule in names(mine, "rule"):
        line = sort_by(select(mine, rule=rule), "pairs")
        kept = [r["pairs"] for r in takewhile(lambda r: r["recall"] >= SHARE, line)]
        said.append(f"{f'up to {kept[-1]}' if kept else 'never'} by {SPOKEN[rule]}")
    claim = f"{SHARE:.0%} of the pairs are recalled, their value the nearest of all written: {', '.join(said)}"
    return Verdict(claim, where=f"{where[0].upper()}{where[1:]}, {max(names(mine, 'pairs'))} pairs at most")


SPOKEN = {
    "linear": "linear attention",
    "gated": "gated linear attention",
    "delta": "the delta rule",
    "gated_delta": "the gated delta rule",
}
LOOKS: dict[str, Look] = {
    "linear": {"color": VERMILION, "marker": "s"},
    "gated": {"color": ORANGE, "marker": "D", "markerfacecolor": "white"},
    "delta": {"color": BLUE, "marker": "o"},
    "gated_delta": {"color": SKY, "marker": "v", "markerfacecolor": "white"},
}


def draw_error(records: Sequence[Record], ax: Any) -> None:
    """Draw mean squared errors against the number of pairs, and closed forms as lines."""
    _begin(records, ax, "squared error of a value of norm 1")
    ax.set(yscale="log", ylim=(3e-4, 20))
    for rule in names(records, "rule"):
        line = [r for r in sort_by(select(records, rule=rule), "pairs") if r["error"] > EXACT]
        look = {"markersize": 4.0, "linewidth": 1.3, "linestyle": "-"} | LOOKS[rule]
        at = [r["pairs"] for r in line]
        ax.plot(at, read_field(line, "error_predicted"), color=look["color"], linewidth=look["linewidth"])
        draw_bars(ax, at, read_interval(line, "error"), look, SPOKEN[rule])
    exact = [
        SPOKEN[rule] for rule in names(records, "rule") if all(r["error"] < EXACT for r in select(records, rule=rule))
    ]
    if exact:
        ax.annotate(f"exact: {', '.join(exact)}", (0.03, 0.05), xycoords="axes fraction", color=GREY)


def draw_recall(records: Sequence[Record], ax: Any) -> None:
    """Draw the share of pairs that are recalled, against their number."""
    _begin(records, ax, "pairs whose value is the nearest")
    ax.set(ylim=(0, 1.05))
    for rule in names(records, "rule"):
        line = sort_by(select(records, rule=rule), "pairs")
        look = {"markersize": 4.0, "linewidth": 1.3, "linestyle": "-"} | LOOKS[rule]
        ax.plot([r["pairs"] for r in line], read_field(line, "recall"), label=SPOKEN[rule], **look)


def _begin(records: Sequence[Record], ax: Any, ylabel: str) -> None:
    ax.set(xlabel="pairs", ylabel=ylabel)
    ax.set_xscale("log", base=2)
    write_numbers(ax.xaxis)
    ax.set_title(records[0]["where"])
    for d in names(records, "d"):
        ax.axvline(d, color=GREY, linestyle=":", linewidth=1.0, label="pairs = d")


CAPACITY = Preset(
    title="How many pairs a state holds",
    claim="As d dimensions have d orthogonal keys, linear attention holds d pairs without interference, and beyond "
    "them the delta rule, which replaces the value of a key that is written again, recalls more (Schlag, Irie and "
    "Schmidhuber 2021). A gate makes room by forgetting (Yang, Kautz and Hatamizadeh 2024).",
    cost="quick 2, full 12 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.capacity:sweep",
    verdicts=verdicts,
    formula=r"S_t = (I - \beta_t k_t k_t^T)\, \gamma S_{t-1} + k_t v_t^T, \quad \beta \in \{0, 1\}, \quad "
    r"\mathrm{E}\, |S^T k_i - v_i|^2 = \frac{N - 1}{d} \text{ for } \beta = 0, \gamma = 1",
    figures={
        "error": Figure(
            "Squared error of values that are read from a state, over the number of pairs",
            "Keys and values of d numbers and norm 1. Points: mean over the redraws with its 95% interval; lines: "
            "closed forms; gates: e^(-1/d) a token",
            draw_error,
            by="where",
            shows="the delta rule errs",
        ),
        "recall": Figure(
            "Pairs whose value is the nearest of all that were written to what is read",
            "Keys and values of d numbers and norm 1. Mean over the redraws; gates: e^(-1/d) a token",
            draw_recall,
            by="where",
            shows="recalls more pairs",
        ),
    },
    made="chosen numbers of pairs in a state",
)
