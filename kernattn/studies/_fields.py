"""What a record of the attention study holds, and what is wrong with one that somebody or something changed."""

from __future__ import annotations

from typing import Any

from kernattn.studies._records import Record

__all__ = ["fault"]

TEXTS = {"cell", "dataset", "source", "tokens", "estimator", "projection"}
COUNTS = {"m", "draws", "queries", "keys", "dim", "value_dim", "pairs"}
NUMBERS = {"scale", "effective_keys", "v2_median", "v2_max", "nonpositive_normalisers", "row_kl_rows", "delta_rows"}
NUMBERS |= {"seconds", "attention_seconds"}
RESULTS = {"uniform_attention_mse", "uniform_row_kl", "uniform_kernel_relative_mse", "uniform_bias", "variance"}
RESULTS |= {"kernel_mse", "row_kl"}
RESULTS |= {
    f"{name}{end}"
    for name in ("attention_mse", "attention_mse_mean", "bias", "kernel_relative_mse")
    for end in ("", "_low", "_high")
}
ALWAYS = {"seed"} | TEXTS | COUNTS | NUMBERS | RESULTS
SOMETIMES = (  # all of a group, or none: a closed form; entries that settle; rows for the delta method
    {"bias_predicted", "kernel_relative_mse_predicted", "variance_predicted", "variance_pairs"},
    {"variance_seen", "variance_seen_predicted", "variance_ratio", "variance_ratio_low", "variance_ratio_high"},
    {"delta_mse", "delta_mse_measured", "delta_bias2", "delta_bias2_measured"},
)
LARGEST = 1.7e308


def fault(record: Record) -> str | None:
    """Return what is wrong with a record, or None."""
    fields = set(record)
    wanted = ALWAYS.union(*(group for group in SOMETIMES if group & fields))
    if fields != wanted:
        return f"has other fields than a record: {', '.join(sorted(fields ^ wanted))}"
    wrong = [name for name in record if not _fits(name, record[name])]
    if wrong:
        return f"has {wrong[0]} = {str(record[wrong[0]])[:40]}"
    dataset = f"{record['source']}@{record['scale']:g}"
    if record["dataset"] != dataset or record["cell"] != "{dataset}/{estimator}/{projection}/{m}".format(**record):
        return f"is not of the cell {record['cell']}"
    return None


def _fits(name: str, value: Any) -> bool:
    if name in TEXTS:
        return isinstance(value, str)
    if name == "seed":
        return isinstance(value, dict) and {"entropy", "spawn_key"} == set(value)
    if name in COUNTS:
        return type(value) is int and 0 < value < LARGEST
    if value is None:
        return name not in NUMBERS
    return type(value) in (int, float) and abs(value) < LARGEST
