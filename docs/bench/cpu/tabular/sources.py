"""Tables that packages ship, as numbers: no package of them is imported but scikit-learn, and nothing is downloaded."""

from __future__ import annotations

import csv
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.extras import folder
from kernattn.studies import diamonds, flights

KINDS = 12  # values of a column of words at most: each is a column of 0 and 1; columns of more are left out
MEMBERS = 15  # of a class in a table at least: smaller classes are left out
ROWS, MORE = 1000, 4000  # to learn from at most; of the two large tables
TEST = 5000  # to judge on at most
SHARE = 2 / 3  # of a small table that is learnt from
NONE = ("", "NA", "NaN")

REGRESSION = """
azpro los; mdvis numvisit; medpar los; rwm1984 docvis; BudgetFood wfood; Caschool testscr; Cigar sales; Clothing tsales
Computers price; Crime crmrte; Electricity cost; Griliches lw; Hdma dir; Hedonic mv; Housing price; Males wage
MedExp med; OFP ofp; Produc gsp; Schooling wage76; Star tmathssk; Treatment re78; VietNamI lnhhexp; Wages lwage
GaltonFamilies childHeight; birthwt bwt; cpus perf; nlschools lang; SLID wages; Salaries salary; quakes mag; mpg hwy
NOxEmissions LNOx; Snmesp y; Baseball sal87; ethanol NOx
"""
CLASSES = """
titanic survived; rwm1984 outwork; medpar died; Catsup choice; Computers cd; Fishing mode; Hdma deny; Heating depvar
Housing airco; Kakadu answer; Participation lfp; Yogurt choice; birthwt low; Pima.te type; biopsy class; crabs sp
fgl type; turnout vote; Chile vote; Cowles volunteer; SLID sex; Salaries rank; Womenlf partic; mpg drv; vote92 vote
bfi gender; colon status; infert case
"""


LARGE = {"diamonds": diamonds, "flights": flights}


class Table(NamedTuple):
    """Rows (n, d), and targets or labels (n,)."""

    name: str
    classes: bool
    load: Callable[[], tuple[Float64, Any]]
    rows: int = ROWS


class Split(NamedTuple):
    """Rows to learn from, standardised, and new ones by the means and deviations of the first."""

    x: Float64
    y: Any
    new_x: Float64
    new_y: Any


def tables(rows: int | None = None) -> dict[str, Table]:
    """Return all tables by name, to learn from so many rows at most: one of classes has its target behind a colon."""
    found = [Table("diabetes", False, partial(_of_sklearn, "diabetes"))]
    found += [Table(name, True, partial(_of_sklearn, name)) for name in ("breast_cancer", "digits", "iris", "wine")]
    for text, classes in ((REGRESSION, False), (CLASSES, True)):
        for entry in _entries(text):
            name, target = entry.split()
            found.append(Table(f"{name}: {target}", classes, partial(_of_r, name, target, classes)))
    found += [Table(name, False, partial(_of_studies, load), MORE) for name, load in LARGE.items()]
    most = [table.rows if rows is None else min(rows, table.rows) for table in found]
    return {table.name: table._replace(rows=limit) for table, limit in zip(found, most, strict=True)}


def split(table: Table, seed: int) -> Split:
    """Return random rows to learn from and others, at most `rows` and 5,000; of classes, some of each to learn from."""
    x, y = _loaded(table.load)
    order = np.random.default_rng(seed).permutation(len(y))
    if table.classes:  # the first of each class stand first
        _, first = np.unique(y[order], return_index=True)
        order = np.concatenate([order[first], np.delete(order, first)])
    count = min(table.rows, int(SHARE * len(y)))
    rows, new = order[:count], order[count : count + TEST]
    mean, deviation = x[rows].mean(axis=0), x[rows].std(axis=0)
    scaled = (x - mean) / np.where(deviation > 0, deviation, 1.0)
    return Split(scaled[rows], y[rows], scaled[new], y[new])


@cache
def _loaded(load: Callable[[], tuple[Float64, Any]]) -> tuple[Float64, Any]:
    return load()


def _of_studies(load: Callable[[], Any]) -> tuple[Float64, Any]:
    x, y, *_ = load()
    return x, y


def _of_sklearn(name: str) -> tuple[Float64, Any]:
    x, y = getattr(import_module("sklearn.datasets"), f"load_{name}")(return_X_y=True)
    return np.asarray(x, dtype=np.float64), y


def _of_r(name: str, target: str, classes: bool) -> tuple[Float64, Any]:
    """Return a table of R, without its first column, the names of rows, and without rows whose target is missing."""
    header, lines = _read(name)
    at = header.index(target)
    lines = [line for line in lines if line[at] not in NONE]
    labels = [line[at] for line in lines]
    x = np.column_stack(
        [column for i in range(1, len(header)) if i != at for column in _columns([line[i] for line in lines])]
    )
    y = np.array(labels) if classes else np.array(labels, dtype=np.float64)
    if classes:
        kinds, counts = np.unique(y, return_counts=True)
        kept = np.isin(y, kinds[counts >= MEMBERS])
        x, y = x[kept], y[kept]
    return x[:, x.std(axis=0) > 0], y


def _read(name: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the lines of a table of R."""
    header, *lines = csv.reader(_archive()[name].decode("latin-1").splitlines())
    return header, lines


@cache
def _archive() -> dict[str, bytes]:
    """Return the files of pydataset's archive that are asked for, by name; of two of a name, the first."""
    wanted = {entry.split()[0] for entry in _entries(REGRESSION + CLASSES)}
    found: dict[str, bytes] = {}
    with tarfile.open(folder("pydataset", "the tables of R", "data") / "resources.tar.gz") as files:
        for member in files:
            name = PurePosixPath(member.name)
            if name.suffix == ".csv" and name.stem in wanted and name.stem not in found:
                file = files.extractfile(member)
                assert file is not None
                found[name.stem] = file.read()
    return found


def _entries(text: str) -> list[str]:
    return [entry for entry in text.replace("\n", ";").split(";") if entry.strip()]


def _columns(fields: Sequence[str]) -> Iterator[Float64]:
    """Yield a column of numbers, whose gaps are the median; or one of 0 and 1 for each of a few words."""
    numbers = np.array([np.nan if field in NONE else _number(field) for field in fields])
    words = sorted({field for field in fields if field not in NONE})
    if all(np.isfinite(_number(word)) for word in words):
        if words:
            yield np.where(np.isfinite(numbers), numbers, np.nanmedian(numbers))
    elif len(words) <= KINDS:
        for word in words:
            yield np.array([float(field == word) for field in fields])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan
