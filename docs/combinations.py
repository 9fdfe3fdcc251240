"""Write docs/guide/combinations.md, the page of all combinations: python docs/combinations.py."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import fields
from pathlib import Path

import kernattn as ka
from kernattn._runtime.files import replace_text
from kernattn.features import Combination
from kernattn.kernels import Kernel, Product, Scaled, Sum
from kernattn.projections import PROJECTIONS, Projection

PAGE = Path(__file__).parent / "guide" / "combinations.md"
DIM = 5
NEAR, NEAR_OF = 0.03, {"arccosine": 0.15}  # how far means without a closed form may be off, by estimator
MARKS = {"variance": "●", "mean": "◐", "near": "○", "undefined": "–"}
TOP = f"""# Every kernel, projection and estimator

What is known of $\\phi(x)^T \\phi(y)$ over redraws, for every combination. The table comes from the code itself:
each map is drawn, and its `mean` and `variance` are called. `ka.features.combinations()` returns the table for kernels,
projections and a dimension of your choice. `python docs/combinations.py` writes this page.

| mark | known in closed form | how a test checks every cell |
|---|---|---|
| ● | mean and variance | both by Monte Carlo, z below 4.5; maps without randomness exactly |
| ◐ | the mean, not the variance | the mean by Monte Carlo, z below 4.5 |
| ○ | neither | the mean by Monte Carlo: it is near that of uniform directions with the same norms, see below |
| – | there is no such map | `random_features` raises an error that gives the reason, before it draws anything |

A projection without norms in brackets stands for all its norms. With norms `chi` and `coupled` the mean is the
kernel, except for `moment_matched` frequencies and for maps without randomness. With `sqrt_d` the mean is another
kernel. `bias` returns the difference. Means without a closed form were tested at d = {DIM} and pairs near 0. They are
off by less than {NEAR:.0%} of $\\sqrt{{k(x,x)\\,k(y,y)}}$, those of `arccosine` features by less than
{NEAR_OF["arccosine"]:.0%}.

Numbers refer to the reasons at the end. The table of a kernel lists its own estimators;
`random_features` raises an error for any other and names those that are possible.
"""


def kernel_name(kernel: Kernel) -> str:
    """Return the kernel as it is written in Python, without what is the default."""
    if isinstance(kernel, Sum | Product):
        return {Sum: " + ", Product: " * "}[type(kernel)].join(map(kernel_name, kernel.kernels))
    if isinstance(kernel, Scaled):
        return f"{kernel.factor:g} * {kernel_name(kernel.kernel)}"
    values = [(field.name, getattr(kernel, field.name), field.default) for field in fields(kernel)]
    return f"{type(kernel).__name__}({', '.join(f'{name}={value}' for name, value, usual in values if value != usual)})"


def projection_names(specs: list[Projection], every: list[Projection]) -> str:
    """Return names of projections, with norms where not all of a projection's are among them."""
    norms: dict[str, list[str]] = defaultdict(list)
    for spec in specs:
        name = next(name for name, kind in PROJECTIONS.items() if type(spec) is kind)
        norms[name].append(getattr(spec, "norms", ""))
    total = {name: sum(type(spec) is kind for spec in every) for name, kind in PROJECTIONS.items()}
    return ", ".join(f"`{n}`" + (f" ({', '.join(laws)})" if len(laws) < total[n] else "") for n, laws in norms.items())


def reason(cell: Combination) -> str:
    """Return the reason without the names of this very kernel, law and estimator."""
    text = cell.reason.replace(f"estimator {cell.estimator!r}", "the estimator").partition("; this kernel has")[0]
    return re.sub(r",? (?:for|of norms|with norms of) [A-Z]\w*\([^()]*\),?", "", text)


def table(shape: tuple[tuple[Projection, str, str, str], ...], kernels: list[str], reasons: dict[str, int]) -> str:
    """Return the table of kernels that share it; new reasons get the next numbers."""
    marks: dict[Projection, dict[str, str]] = defaultdict(dict)
    for spec, estimator, status, why in shape:
        number = f" {reasons.setdefault(why, len(reasons) + 1)}" if why else ""
        marks[spec][estimator] = MARKS[status] + number
    alike: dict[tuple[str, ...], list[Projection]] = defaultdict(list)
    for spec, row in marks.items():
        alike[tuple(row.values())].append(spec)
    names = list(next(iter(marks.values())))
    lines = [f"## {', '.join(kernels)}", "", f"| projection | {' | '.join(f'`{name}`' for name in names)} |"]
    lines.append("|---" * (len(names) + 1) + "|")
    lines += [f"| {projection_names(specs, list(marks))} | {' | '.join(row)} |" for row, specs in alike.items()]
    return "\n".join(lines) + "\n"


def page(cells: tuple[Combination, ...]) -> str:
    """Return the page."""
    by_kernel: dict[Kernel, list[Combination]] = defaultdict(list)
    for cell in cells:
        by_kernel[cell.kernel].append(cell)
    alike: dict[tuple[tuple[Projection, str, str, str], ...], list[str]] = defaultdict(list)
    for kernel, own in by_kernel.items():
        names = {cell.estimator for cell in own if cell.status != "undefined"}
        shape = tuple(
            (cell.projection, cell.estimator, cell.status, reason(cell)) for cell in own if cell.estimator in names
        )
        alike[shape].append(f"`{kernel_name(kernel)}`")
    reasons: dict[str, int] = {}
    tables = [table(shape, kernels, reasons) for shape, kernels in alike.items()]
    ends = "\n".join(f"{number}. {why}" for why, number in reasons.items())
    return "\n".join([TOP, *tables, "## Reasons", "", ends, ""])


def write() -> None:
    """Write the page whole, or leave the old one as it is."""
    replace_text(PAGE, page(ka.features.combinations(dim=DIM)))


if __name__ == "__main__":
    write()
