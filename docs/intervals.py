"""How many new rows jackknife+ intervals of the default FeatureRidge hold: python docs/intervals.py [splits]."""

from __future__ import annotations

import sys

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.preprocessing import StandardScaler

import kernattn as ka
from kernattn.sklearn import FeatureRidge

LEARNT, NEW = 1000, 5000  # rows at most


def main(splits: int = 50) -> None:
    """Print the share of new rows that 90 % intervals hold, over random splits of tables."""
    cars = ka.studies.diamonds()
    tables = {"diabetes": load_diabetes(return_X_y=True), "diamonds": (cars.x, cars.y)}
    for name, (x, y) in tables.items():
        held, widths = [], []
        for seed in range(splits):
            order = np.random.default_rng(seed).permutation(len(y))
            first = min(LEARNT, 2 * len(y) // 3)
            here, new = order[:first], order[first : first + NEW]
            scaler = StandardScaler().fit(x[here])
            rows, others = scaler.transform(x[here]), scaler.transform(x[new])
            model = FeatureRidge(random_state=seed).fit(rows, y[here])
            low, high = model.predict_interval(others, rows, y[here], coverage=0.9)
            held.append(float(np.mean((low <= y[new]) & (y[new] <= high))))
            widths.append(float(np.mean(high - low)) / float(np.std(y)))
        spread = np.std(held, ddof=1) / np.sqrt(splits)
        print(f"{name}: {100 * np.mean(held):.1f} % held ({100 * spread:.1f} standard error), ", end="")
        print(f"mean width {np.mean(widths):.2f} deviations, {splits} splits of {first} rows")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
