"""What the loops were asked to reach: against their floors, and against their peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from bench.races import Row
from kernattn.bench._tables import Column, impossible, text_column

_SDPA, _LOOP = "torch's scaled_dot_product_attention", "torch, lean loop"


@dataclass(frozen=True)
class Target:
    """A bound on one measure of the rows of a case, at most where `most`, else at least.

    They are those of one contestant, or of all that fit a pattern, as "torch, *"; the worst of them counts.
    """

    case: str
    contestant: str
    measure: str
    bound: float
    most: bool = False
    where: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, row: Row) -> bool:
        """Tell whether a row is one that the bound holds for; a row of a case that was skipped is none."""
        wanted = {"case": self.case, "dtype": "float32", **self.where}
        named = fnmatchcase(str(row.get("contestant")), self.contestant)
        return named and self.measure in row and all(row.get(key) == value for key, value in wanted.items())

    def met(self, row: Row) -> bool:
        """Tell whether a row keeps the bound; one below its floor, which cannot be, keeps none."""
        value = float(row[self.measure])
        return value <= self.bound and not self._impossible(value) if self.most else value >= self.bound

    def verdict(self, row: Row) -> str:
        """Return the measure, with a question mark where it cannot be, and whether it keeps the bound."""
        value = float(row[self.measure])
        return f"{value:.2f}{'?' * self._impossible(value)}, {'met' if self.met(row) else '**missed**'}"

    def worst(self, rows: Sequence[Row]) -> Row:
        """Return the row that is the farthest from keeping the bound."""
        return (max if self.most else min)(rows, key=lambda row: float(row[self.measure]))

    def _impossible(self, value: float) -> bool:
        return self.measure.startswith("over") and impossible(value)

    def __str__(self) -> str:
        asked = f"at {'most' if self.most else 'least'} {self.bound:g}"
        sizes = ", ".join(f"{key} = {value}" for key, value in self.where.items() if key not in ("threads", "begins"))
        told = f" ({sizes})" if sizes else ""
        return f"{asked} {_MEASURES.get(self.measure, f'times ours: {self.contestant}')}{told}"


_MEASURES = {
    "over_floor": "times its floor",
    "over_traffic": "times its traffic",
}


def _floor(case: str, **where: Any) -> Target:
    return Target(case, "ours", "over_floor", 1.15, True, {"n": 4096, **where})


def _peer(case: str, contestant: str, bound: float, **where: Any) -> Target:
    return Target(case, contestant, "ratio", bound, False, where)


def _backward(case: str, bound: float) -> Target:
    return Target(case, "ours, backward", "ratio", bound, True, {"n": 4096})


_DTYPES = ("float32", "float64")
_RATES = {  # .9 where a tile has four visits or more
    "local": 0.9, "dilated": 0.75, "strided": 0.75, "fixed": 0.75, "longformer": 0.75, "bigbird": 0.9,
    "streaming": 0.75, "image": 0.9,
}  # fmt: skip
_RIVALS = {
    f"{_SDPA}, in chunks": 2.0,
    "torch's flex_attention, compiled": 2.0,
    "transformers' Longformer": 5.0,
    "local-attention": 6.0,
    f"{_SDPA}, masked": 6.0,
}

_GENERATED = {  # bounds by batch
    ("(a) *", 784): {32: 317.0},
    ("(a) *", 3072): {32: 4462.0},
    ("(b) *", 784): {1: 45.0, 32: 220.0},
    ("(b) *", 3072): {1: 200.0, 32: 1500.0},
    ("(c) *: torch*", 784): {1: 2.5, 32: 2.5},
    ("(c) *: torch*", 3072): {1: 4.5, 32: 6.0},
}


TARGETS = (
    _peer("softmax", _SDPA, 1.0, n=4096),
    _peer("softmax-causal", _SDPA, 1.15, n=4096),
    _floor("causal-elu1", begins="awake"),
    _floor("causal-favor", begins="awake"),
    _floor("full-favor", begins="awake"),
    _peer("full-favor", "torch, lean", 2.2, n=4096),
    _peer("causal-favor", _LOOP, 1.7, n=4096, threads=1),
    _peer("causal-favor", _LOOP, 2.0, n=4096, threads=2),
    _peer("causal-elu1", _LOOP, 2.5, n=4096),
    Target("step", "ours", "over_traffic", 1.2, True, {"heads": 256}),
    Target("step-in-place", "ours", "over_traffic", 1.2, True, {"heads": 256}),
    _peer("step-in-place", "torch, lean, in place", 1.7, heads=256),
    _backward("backward-causal-elu1", 2.6),
    _backward("backward-causal-favor", 2.8),
    _backward("backward-causal-favor-omega", 3.2),
    *(_peer(f"pattern-{kind}", "ours, dense, as many pairs", bound, n=4096) for kind, bound in _RATES.items()),
    *(Target(f"pattern-{kind}", "ours, plan alone", "ratio", 0.05, True, {"n": 4096}) for kind in _RATES),
    *(_peer("pattern-local", rival, bound, n=4096) for rival, bound in _RIVALS.items()),
    _peer("pattern-local", f"{_SDPA}, exact", 20.0, n=16384),
    _peer("pattern-bigbird", "transformers' BigBird", 6.0, n=4096),
    Target("lsh", "ours, hashes and plan alone", "ratio", 0.35, True, {"n": 4096}),
    _peer("lsh", "reformer-pytorch*", 6.0, n=4096),
    *(
        _peer(f"gradients-causal-{name}", "torch, *", bound, threads=count)
        for name in ("elu1", "favor")
        for count, bound in ((2, 3.0), (1, 1.9))
    ),
    *(
        _peer("gram", "our features, then BLAS*", 0.91, features=m, dtype=t)  # at most 1.1 times as long
        for m in (256, 1024, 4096)
        for t in _DTYPES
    ),
    _peer("ridges", "ten refits by scikit-learn", 5.0, features=256),
    _peer("ridges", "sums by NumPy", 1.0),
    _peer("ridges", "scikit-learn, ten targets", 1.0),
    _peer("cg", "sums by NumPy", 1.0),
    _peer("cg-flights", "sums by NumPy", 1.0),
    _peer("two-samples", "all pairs, no p-value", 5.0, features=256),
    *(
        _peer(f"kernel-product{form}", "NumPy, lean", 1.0, dim=d, dtype=t)
        for form in ("", "-of-itself", "s")
        for d in (8, 64)
        for t in _DTYPES
    ),
    _peer("gradients-elu1-for-softmax", _SDPA, 40.0, n=16384),
    _peer("gradients-favor-for-softmax", _SDPA, 10.0, n=16384),
    *(Target(f"decoder-1x{layers}", "ours", "over_traffic", 1.3, True) for layers in (8, 16)),
    *(_peer(f"decoder-32x{layers}", "NumPy, its products alone", 0.9) for layers in (8, 16)),
    *(
        _peer("generate", contestant, bound, n=n, batch=batch)
        for (contestant, n), bounds in _GENERATED.items()
        for batch, bound in bounds.items()
    ),
)


def reached(rows: Sequence[Row]) -> list[Row]:
    """Hold the rows of races against the targets: a row for each, for threads and beginnings of turns of their own."""
    return list(_reached(rows))


def _reached(rows: Sequence[Row]) -> Iterator[Row]:
    for target in TARGETS:
        fitting = [row for row in rows if target.fits(row)]
        for threads, begins in sorted({(row["threads"], row["begins"]) for row in fitting}):
            verdicts: Row = {"case": target.case, "asked": str(target), "threads": threads, "begins": begins}
            at = [row for row in fitting if (row["threads"], row["begins"]) == (threads, begins)]
            for bits in {row["vector_bits"] for row in at}:
                worst = target.worst([row for row in at if row["vector_bits"] == bits])
                verdicts[f"vectors_{bits}"] = target.verdict(worst)
            yield verdicts


def columns(rows: Sequence[Row]) -> tuple[Column, ...]:
    """Return the columns of what `reached` returned: one for each width of vectors, the widest first."""
    bits = sorted({int(key.removeprefix("vectors_")) for row in rows for key in row if "vectors_" in key}, reverse=True)
    return (
        text_column("case", "case"),
        text_column("asked", "asked"),
        text_column("threads", "threads", right=True),
        text_column("turns begin", "begins"),
        *(text_column(f"vectors of {width} bits", f"vectors_{width}") for width in bits),
    )
