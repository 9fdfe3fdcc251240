"""summary.md of the attention study: verdicts and tables, from the records alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kernattn.studies._presets.attention.verdicts import beats_uniform, best, number, verdicts, worse_than_uniform
from kernattn.studies._records import Record, names, select

Columns = dict[str, Callable[[Record], str]]

READING = """Intervals are 95%, over the redraws. The attention error is the median over the redraws, with the interval
of order statistics, for a ratio whose normaliser comes near 0 has no mean error; the others are means, with Student's.

- **over uniform**: the attention error over that of uniform attention, which gives every query the mean of the values.
- **row KL**: Kullback-Leibler divergence of the rows in which every estimated weight is positive.
- **Z ≤ 0**: share of the normalisers that signed features made zero or negative.
- **kernel error**: mean of (k' - k)² over mean of k², measured and by the closed form.
- **bias**: of the mean entry, mean k' / mean k - 1, over the entries whose mean the redraws settle (`metrics.settled`):
  elsewhere they miss the tail that carries it, and so they do for kernel errors without an interval, *unsettled*.
- **variance ratio**: measured over predicted variance, a mean over the entries whose sample variance can settle: all of
  bounded features; of exponential features those that would settle for rows twice as long, for the square of such a
  term is the term of rows twice as long. Beyond, redraws miss the tail that carries the variance: a measured error
  below its prediction says something about the number of redraws, not about the formula.
- **ms**: milliseconds of one call of `linear_attention`, the median.
"""
RATIO = """Unbiased kernel entries do not make unbiased attention, which is a ratio N/Z. The delta method predicts the
bias N Var(Z)/Z³ - Cov(N, Z)/Z² and the variance Var(N - (N/Z) Z)/Z². It is asked of up to 16 queries, *rows* being
the share in which neither sd(Z)/Z nor the tail of Z is above 1/8 (`metrics.DeltaMethod.trusted`); the others are over
these.

- **moments**: *closed form* (`metrics.attention_delta_method`) for independent frequencies, held against all redraws.
  *Redraws* where no closed form is known, or where it takes minutes, as with orthogonal frequencies: the first half of
  the redraws give the moments, and the second half is what they are held against. The tail is then still that of the
  closed form for independent frequencies, where there is one: redraws do not see it.
- The noise of the measured squared bias is subtracted from it, which may leave a negative number.
"""


def _interval(record: Record, name: str) -> str:
    value, low, high = (record.get(key) for key in (name, f"{name}_low", f"{name}_high"))
    if value is None:
        return "—"
    return f"{number(value)} " + (f"[{number(low)}, {number(high)}]" if low is not None else "unsettled")


def _share(record: Record, part: str, whole: str) -> str:
    top, bottom = record.get(part), record.get(whole)
    return "—" if top is None or not bottom else number(top / bottom)


def _divergence(record: Record) -> str:
    rows = record["row_kl_rows"]
    return number(record["row_kl"]) + ("" if rows == 1 else f" ({rows:.0%} of rows)")


DATASETS: Columns = {
    "dataset": lambda r: str(r["dataset"]),
    "tokens": lambda r: str(r["description"]),
    "queries × keys": lambda r: f"{r['queries']} × {r['keys']}",
    "d, e": lambda r: f"{r['dim']}, {r['value_dim']}",
    "v², median and largest": lambda r: f"{number(r['v2_median'])}, {number(r['v2_max'])}",
    "effective keys": lambda r: number(r["effective_keys"]),
    "uniform: attention MSE": lambda r: number(r["uniform_attention_mse"]),
    "row KL": lambda r: number(r["uniform_row_kl"]),
    "kernel error": lambda r: number(r["uniform_kernel_relative_mse"]),
}
RESULTS: Columns = {
    "estimator": lambda r: str(r["estimator"]),
    "projection": lambda r: str(r["projection"]),
    "attention MSE": lambda r: _interval(r, "attention_mse"),
    "over uniform": lambda r: _share(r, "attention_mse", "uniform_attention_mse"),
    "row KL": _divergence,
    "Z ≤ 0": lambda r: f"{r['nonpositive_normalisers']:.2%}" if r["nonpositive_normalisers"] else "0",
    "kernel error": lambda r: _interval(r, "kernel_relative_mse"),
    "predicted": lambda r: number(r.get("kernel_relative_mse_predicted")),
    "bias": lambda r: _interval(r, "bias"),
    "variance ratio": lambda r: _interval(r, "variance_ratio"),
    "on entries": lambda r: f"{r.get('variance_pairs', 0) / r['pairs']:.0%}",
    "ms": lambda r: f"{1e3 * r['attention_seconds']:.2f}",
}
DELTA: Columns = {
    "dataset": lambda r: str(r["dataset"]),
    "estimator": lambda r: str(r["estimator"]),
    "projection": lambda r: str(r["projection"]),
    "moments": lambda r: str(r["delta_moments"]),
    "rows": lambda r: f"{r['delta_rows']:.0%}",
    "MSE, measured": lambda r: number(r.get("delta_mse_measured")),
    "delta method": lambda r: number(r.get("delta_mse")),
    "squared bias, measured": lambda r: number(r.get("delta_bias2_measured")),
    "delta method ": lambda r: number(r.get("delta_bias2")),
}


def _table(columns: Columns, records: Iterable[Record]) -> list[str]:
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return lines + [f"| {' | '.join(cell(record) for cell in columns.values())} |" for record in records]


def _winners(by_dataset: dict[str, list[Record]], ms: Sequence[int]) -> list[str]:
    lines = [f"| dataset | {' | '.join(f'm = {m}' for m in ms)} |", f"|{'---|' * (len(ms) + 1)}"]
    for dataset, found in by_dataset.items():
        cells = (_winner(select(found, m=m)) for m in ms)
        lines.append(f"| {dataset} | {' | '.join(cells)} |")
    return lines


def _winner(records: list[Record]) -> str:
    leader = best(records)
    if leader is None:
        return "—"
    lost = " (no better than uniform)" if worse_than_uniform(leader) else " (open against uniform)"
    mark = "" if beats_uniform(leader) else lost
    return f"{leader['estimator']}, {leader['projection']}{mark}"


def _calibration(records: Sequence[Record]) -> list[str]:
    """Say how often the intervals hold what theory says."""
    known = [r for r in records if r["bias_low"] is not None and r.get("bias_predicted") is not None]
    rated = [r for r in records if r.get("variance_ratio_low") is not None]
    wrong = sum(not r["variance_ratio_low"] <= 1 <= r["variance_ratio_high"] for r in rated)
    return [
        f"- The interval of the bias misses the closed form in {_missed(known)} cells with settled entries.",
        f"- The interval of the variance ratio misses 1 in {wrong} of {len(rated)} cells.",
        "- One in twenty would by chance.",
    ]


def _missed(records: Sequence[Record]) -> str:
    missed = sum(not r["bias_low"] <= r["bias_predicted"] <= r["bias_high"] for r in records)
    return f"{missed} of {len(records)}"


def summary(records: Sequence[Record], figures: Sequence[str]) -> str:
    """Return the text of summary.md."""
    ms = sorted(names(records, "m"))
    by_dataset = {dataset: select(records, dataset=dataset) for dataset in names(records, "dataset")}
    largest = select(records, m=ms[-1])
    lines = ["# Random features against exact attention", ""]
    lines += [f"{len(records)} cells of {records[0]['draws']} redraws, seed {records[0]['seed']['entropy']}.", ""]
    lines += ["## Verdicts", "", *(f"- {verdict}" for verdict in verdicts(records)), ""]
    lines += ["## Least attention error", "", *_winners(by_dataset, ms), ""]
    lines += ["## Tokens", "", *_table(DATASETS, (found[0] for found in by_dataset.values())), ""]
    lines += [f"## Results at m = {ms[-1]}", "", READING]
    for dataset in by_dataset:
        lines += [f"### {dataset}", "", *_table(RESULTS, select(largest, dataset=dataset)), ""]
    lines += ["## Do the formulas hold?", "", *_calibration(records), ""]
    lines += ["## Attention is a ratio", "", RATIO, *_table(DELTA, (r for r in largest if r["delta_rows"] > 0)), ""]
    lines += [
        "## Figures",
        "",
        *(f"![{name.removesuffix('.png')}]({name})\n" for name in figures if name.endswith("png")),
    ]
    return "\n".join(lines)
