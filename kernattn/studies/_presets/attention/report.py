"""summary.md of the attention study: verdicts and tables, from the records alone."""

from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files

from kernattn.studies._presets.attention.findings import beats_uniform, best, number, verdicts, worse_than_uniform
from kernattn.studies._records import Record, names, select

Columns = dict[str, Callable[[Record], str]]


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


def _table(columns: Columns, records: Iterable[Record]) -> str:
    return _lines(list(columns), ([cell(record) for cell in columns.values()] for record in records))


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join([f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)])


def _winner(records: list[Record]) -> str:
    leader = best(records)
    if leader is None:
        return "—"
    lost = " (no better than uniform)" if worse_than_uniform(leader) else " (open against uniform)"
    mark = "" if beats_uniform(leader) else lost
    return f"{leader['estimator']}, {leader['projection']}{mark}"


def _calibration(records: Sequence[Record]) -> str:
    """Say how often the intervals hold what theory says."""
    known = [r for r in records if r["bias_low"] is not None and r.get("bias_predicted") is not None]
    rated = [r for r in records if r.get("variance_ratio_low") is not None]
    missed = sum(not r["bias_low"] <= r["bias_predicted"] <= r["bias_high"] for r in known)
    wrong = sum(not r["variance_ratio_low"] <= 1 <= r["variance_ratio_high"] for r in rated)
    return (
        f"- The interval of the bias misses the closed form in {missed} of {len(known)} cells with settled entries.\n"
        f"- The interval of the variance ratio misses 1 in {wrong} of {len(rated)} cells.\n"
        "- One in twenty would by chance."
    )


def summary(records: Sequence[Record], figures: Sequence[str]) -> str:
    """Return the text of summary.md."""
    ms = sorted(names(records, "m"))
    by_dataset = {dataset: select(records, dataset=dataset) for dataset in names(records, "dataset")}
    largest = select(records, m=ms[-1])
    winners = ([name, *(_winner(select(found, m=m)) for m in ms)] for name, found in by_dataset.items())
    results = (f"### {dataset}\n\n{_table(RESULTS, select(largest, dataset=dataset))}" for dataset in by_dataset)
    pictures = (f"![{name.removesuffix('.png')}]({name})" for name in figures if name.endswith("png"))
    template = files("kernattn.studies._presets.attention").joinpath("summary.md").read_text(encoding="utf-8")
    return template.format(
        cells=len(records),
        redraws=records[0]["draws"],
        seed=records[0]["seed"]["entropy"],
        verdicts="\n".join(f"- {verdict}" for verdict in verdicts(records)),
        winners=_lines(["dataset", *(f"m = {m}" for m in ms)], winners),
        tokens=_table(DATASETS, (found[0] for found in by_dataset.values())),
        most=ms[-1],
        results="\n\n".join(results),
        calibration=_calibration(records),
        ratios=_table(DELTA, (r for r in largest if r["delta_rows"] > 0)),
        figures="\n\n".join(pictures),
    )
