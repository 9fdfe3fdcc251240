"""
Does "auto" choose well?
========================

For each data set, errors of six estimators of attention on rows that "auto" did not see, over that of uniform
attention, every key alike. The one that "auto" chose from the other half of the rows has a ring. Left of the line a map
is worth having. Values are the data's own, and "auto" did not see them either.

Run as a script it prints the table of the guide, of the kernel's errors too.
"""

from __future__ import annotations

from matplotlib import pyplot as plt

from kernattn.studies._regret import measure_regrets, regret_table


def run(quick: bool = False) -> None:
    if quick:
        records = measure_regrets(["clusters", "small norms"], [64], ["attention"], draws=4)
    else:
        records = measure_regrets(num_features=[64], objectives=["attention"])
    figure, axis = plt.subplots(figsize=(7, 0.35 * len(records) + 1.6), layout="constrained")
    names = list(records[0]["errors"])
    for place, record in enumerate(records):
        for marker, name in zip("o^sDx+", names, strict=True):
            label = name if place == 0 else None
            axis.semilogx(record["errors"][name], place, marker, color="0.2", markersize=5, label=label)
        axis.semilogx(record["errors"][record["auto"]], place, "o", color="C1", markersize=12, fillstyle="none")
    axis.axvline(1, color="C0", linewidth=0.8)
    axis.set(xlabel="squared error of attention over that of uniform attention", xlim=(None, 1e2))
    axis.set_yticks(range(len(records)), [record["dataset"] for record in records])
    figure.legend(frameon=False, loc="outside lower center", ncols=3)


if __name__ == "__main__":
    print(regret_table(measure_regrets()))
    run()
    plt.show()
