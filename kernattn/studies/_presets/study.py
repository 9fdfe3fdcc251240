"""Running a preset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from kernattn._runtime.checks import boolean, checked_path, one_of
from kernattn._runtime.compiling import teller
from kernattn._runtime.extras import require
from kernattn.errors import ParameterError
from kernattn.studies._presets.draw import write
from kernattn.studies._presets.table import PRESETS
from kernattn.studies._records import RECORDS, Record
from kernattn.studies._run import run
from kernattn.studies._sweep import integer, plain_values


def study(
    name: str,
    out: str | PathLike[str],
    *,
    quick: bool = False,
    seed: int = 0,
    precision: float | None = None,
    draws: int | None = None,
    axes: Mapping[str, Sequence[Any]] | None = None,
    data: str | PathLike[str] | None = None,
    workers: int = 0,
    progress: bool | None = False,
) -> list[Record]:
    """Run one of the PRESETS: what the field claims, what we measure, and a verdict = whether the two agree.

    `kernattn.studies.run` says how a study is stored, interrupted, continued and grown, and what it raises. Beside the
    records, which are returned, `out` then holds summary.md and figures.

    Parameters
    ----------
    name : str
        A name in PRESETS.
    out : str or PathLike
        Folder of the study, created if needed.
    quick : bool
        A small form of it, in seconds.
    seed : int
        Root of every random stream.
    precision : float, optional
        Redraw up to 16 times as often, until the leading figure is known so well, as 0.02.
    draws : int, optional
        Redraws of every cell, or with a `precision` the fewest; default the preset's own number.
    axes : mapping, optional
        Values of axes, in place of the preset's own. The attention study's estimators may be one's own, named as
        ``module:object``: a feature map, measured at its own size and under the first projection's name, or a function
        of `dim` and `num_features` that makes one. Its `queries` and `keys`, of one value each, are numbers of tokens.
    data : str or PathLike, optional
        A file of one's own, in place of the preset's data, for one that takes it, and others are refused. "nystrom",
        "spectral" and "polynomial-sketch" take rows (n, d) of an .npy, .npz, .csv or .tsv; "regression" such rows, with
        the target in the last column, or an .npz of x and y; "attention", "mechanisms" and those that measure attention
        an .npz of q, k and v, or rows, which are then all three.
    workers, progress : object
        As `run` takes them.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kernattn.studies import PRESETS, study
    >>> axes = {"projection": ["iid", "orthogonal"], "d": [8]}
    >>> with TemporaryDirectory() as folder:
    ...     records = study("softmax-kernel", folder, quick=True, axes=axes)
    >>> for record in records:
    ...     print(record["estimator"], record["projection"], record["draws"])
    trigonometric iid 200
    trigonometric orthogonal 200
    positive iid 200
    positive orthogonal 200
    """
    preset = PRESETS[one_of("name", name, PRESETS)]
    out = checked_path("out", out)
    settings: dict[str, Any] = {
        "quick": boolean("quick", quick),
        "seed": integer("seed", seed, 0),
        "precision": precision,
        "axes": {axis: list(plain_values(axis, values)) for axis, values in (axes or {}).items()},
    }
    if draws is not None:
        settings["draws"] = draws
    if data is not None:
        if not preset.data:
            takes = ", ".join(each for each, preset in PRESETS.items() if preset.data)
            raise ParameterError(
                f"the study {name} takes no data, for it measures {preset.made}; {takes} take it; got {data}"
            )
        settings["data"] = str(checked_path("data", data).absolute())
    require("matplotlib", "matplotlib", "the study's figures")
    if name == "attention" and not (out / RECORDS).exists():
        teller.expect()  # its tokens are read first, which takes a while
    records = run(preset.sweep, out, workers=workers, progress=progress, settings=settings)
    write(preset, out, records)
    return records
