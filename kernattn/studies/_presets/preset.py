"""What a study of the field's claims is: a sweep, the claim, figures, and verdicts, all from the records alone."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import one_of, shown
from kernattn.errors import ParameterError
from kernattn.features import ESTIMATORS
from kernattn.projections import resolve
from kernattn.studies._own_rows import own_rows
from kernattn.studies._presets.verdict import Verdict, Word
from kernattn.studies._records import Record
from kernattn.studies._sweep import Stop, integer, plain_values
from kernattn.studies._tokens import Tokens, own_tokens

DrawRows = Callable[[str, int, int], Float64]
"""Rows of a name, so many, by a seed."""
ROWS_OF_ONES_OWN = "rows (n, d) of your own: .npy, .npz, .csv or .tsv"
TOKENS_OF_ONES_OWN = "q (n, d), k (l, d) and v (l, e) of your own as .npz, or rows (n, d) as .npy, .csv or .tsv"
TARGETS_OF_ONES_OWN = "rows (n, d) whose last column is the target, as .npy, .csv or .tsv, or x and y in an .npz"
MOST = 2**31  # rows that a file may have
FEW = 3  # verdicts that a caption repeats


class Figure(NamedTuple):
    """One figure: ``draw(records, ax)`` fills a panel, and there is one for every value of the field `by`.

    A panel is named by that value, unless `draw` gave it a title. Title and subtitle say what is drawn, whatever the
    records; what was found, those verdicts say in which the regular expression `shows` is found. What its groups match
    is alike in all of them, as in the first: a figure of the first kernel takes none about another one.
    """

    title: str
    subtitle: str
    draw: Callable[..., None]
    by: str | None = None
    shows: str | None = None

    def findings(self, verdicts: Sequence[Verdict]) -> str:
        """Return the findings of the figure: its verdicts in brief, or of many verdicts how they begin."""
        if self.shows is None:
            return ""
        matches = [(each, match.groups()) for each in verdicts if (match := re.search(self.shows, str(each)))]
        mine = [each for each, groups in matches if groups == matches[0][1]]
        if len(mine) <= FEW:
            return " ".join(each.brief for each in mine)
        begins = Counter(each.word for each in mine)
        counts = ", ".join(f"{word.lower()} {begins[word]}" for word in get_args(Word) if word and begins[word])
        return f"Of its {len(mine)} verdicts: {counts}." if counts else ""


@dataclass(frozen=True, eq=False)
class Preset:
    """A study that kernattn brings.

    `expected` is what theory says of a field where it is one number; elsewhere the field ``x_predicted`` says it of x.
    Either is exact: the report counts how many intervals hold it.
    """

    title: str
    claim: str  # what the field says, with the source
    cost: str  # in words
    sweep: str  # "module:function" of the fields of `Options`, which returns the Sweep
    verdicts: Callable[[Sequence[Record]], list[Verdict]]
    figures: Mapping[str, Figure]  # by the name of their files
    formula: str = ""  # in TeX; empty where nothing has a closed form: test errors on data, and CPU times
    expected: Mapping[str, float] = field(default_factory=dict)
    data: str = ""  # what a file holds that it takes in place of its own data
    made: str = ""  # what it measures at, where no file can stand for it
    page: Callable[[Sequence[Record], Sequence[str]], str] | None = None  # summary.md, of records and files of figures

    def sentences(self, records: Sequence[Record]) -> list[str]:
        """Return the verdicts as sentences."""
        return [str(verdict) for verdict in self.verdicts(records)]


class Options(NamedTuple):
    """What is asked of a preset: a small form, a root of random streams, how often to redraw, axes, and own tokens."""

    quick: bool = False
    seed: int = 0
    precision: float | None = None
    axes: Mapping[str, Any] | None = None
    draws: int | None = None
    data: str | None = None

    def choose_axes(
        self, full: Mapping[str, Any], small: Mapping[str, Any], allowed: Mapping[str, Collection[str]] | None = None
    ) -> dict[str, Any]:
        """Return the axes of a preset: its own, those of its quick form, and in their place what was given.

        `allowed` names the values that an axis takes. Elsewhere estimators and projections are those of kernattn.
        """
        given, allowed = self.axes or {}, {"estimator": ESTIMATORS, **(allowed or {})}
        unknown = sorted(set(given) - set(full))
        if unknown:
            raise ParameterError(f"this study has the axes {', '.join(full)}; got {', '.join(unknown)}")
        chosen = {axis: _like(axis, full[axis], values, allowed.get(axis)) for axis, values in given.items()}
        return {**full, **(small if self.quick else {}), **chosen}

    def choose_rows(
        self, own: tuple[str, ...], draw: DrawRows, count: int, fewer: bool = False
    ) -> tuple[tuple[str, ...], DrawRows]:
        """Return the names of rows, and how they are drawn by name: a preset's own, or those of the given file.

        The file must have `count` rows; with `fewer`, a draw of more takes those that it has.
        """
        if self.data is None:
            return own, draw
        rows = own_rows(Path(self.data))
        rows.draw(count, 0)
        there = len(rows.x) if fewer else MOST
        return (rows.name,), lambda name, count, seed: rows.draw(min(count, there), seed)

    def choose_tokens(self, queries: int | None = None, keys: int | None = None) -> Tokens | None:
        """Return at most so many tokens of the given file, drawn at random, or None without a file."""
        if self.data is None:
            return None
        tokens = own_tokens(Path(self.data), MOST if queries is None else queries, self.seed)
        return tokens if keys is None else tokens.fewer(keys, self.seed)

    def stop(self, full: int, quick: int | None = None, of: str | None = None, least: int = 2) -> Stop:
        """Return how often to redraw: as asked, at least `least`, else so often in the full and in the quick form.

        A precision takes 8 redraws at least, for the interval of fewer misses.
        """
        usual = quick if self.quick and quick is not None else full
        draws = max(usual, 8) if self.precision is not None else usual
        return Stop(draws if self.draws is None else integer("draws", self.draws, least), self.precision, of)


def _like(axis: str, own: Sequence[Any], given: Any, allowed: Collection[str] | None) -> tuple[Any, ...]:
    """Return values of the type of the axis' own: names that are known, or positive numbers."""
    values, kind = plain_values(axis, given), type(own[0])
    if kind is float and all(type(value) in (int, float) for value in values):
        values = tuple(map(float, values))
    for value in values:
        if type(value) is not kind or (kind is not str and value <= 0):
            what = {int: "positive integers", float: "positive numbers", str: "names"}[kind]
            raise ParameterError(f"{axis} takes {what}, as {', '.join(map(str, own))}; got {shown(value)}")
        if allowed is not None:
            one_of(axis, value, allowed)
        elif axis == "projection" and value not in own:
            resolve(value)
    return plain_values(axis, values)
