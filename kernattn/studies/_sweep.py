"""A sweep: what is varied, what one redraw measures, and when a cell has been redrawn often enough."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import signature
from itertools import product
from numbers import Integral, Real
from typing import Any, final

import numpy as np

from kernattn._runtime.checks import finite_number, instance_of, shown
from kernattn._version import __version__
from kernattn.errors import ParameterError
from kernattn.studies._seeds import canonical, digest, spawn_key, stream

Draws = Mapping[str, Any]  # field -> array (R, ...)
Facts = Mapping[str, Any]
TAKES: dict[str, tuple[str, ...]] = {
    "trial": ("cell", "rng"),
    "facts": ("cell",),
    "keep": ("cell",),
    "reduce": ("cell", "draws", "facts"),
    "prepare": (),
}
"""The functions of a sweep, and what each is called with."""
RESERVED = ("study", "cell", "version", "seed", "draws", "stopped", "seconds", "checksum")
SEEDS = ": redraws stand for seeds, Stop(draws=) says how many, and run(seed=) chooses others"


@final
class Cell(Mapping[str, Any]):
    """One point of a sweep, {axis: value}, named by a hash of all that its record depends on.

    `name` has 16 hexadecimal digits. Two values that print alike but differ give two names.
    """

    def __init__(self, values: Mapping[str, Any], setting: Mapping[str, Any]) -> None:
        self._values = dict(values)
        self.name = digest({**setting, "cell": self._values})

    def __getitem__(self, axis: str) -> Any:
        return self._values[axis]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cell) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return ", ".join(f"{axis} = {shown(value)}" for axis, value in self._values.items())


@final
@dataclass(frozen=True)
class Stop:
    """How often a cell is redrawn: `draws` times, or until an interval is narrow enough.

    Narrow enough is a half-width below ``precision * abs(value)``.

    The interval is looked at after `draws`, twice that, four times, and so on up to `most`. A cell that is not settled
    (its facts say ``settled=False`` somewhere, for redraws do not reach the tail) has no interval to go by: it is
    redrawn `draws` times; where `precision` is given, its record says that this is why it stopped. A mean that few
    redraws carry has none either, and is redrawn on.

    Parameters
    ----------
    draws : int
        Redraws of every cell, at least 2; at least 8 where `precision` decides.
    precision : float, optional
        Largest half-width of the 95% interval of `of`, relative to its value, in (0, 1).
    of : str, optional
        The field that is to be precise; default the first that a trial returns. The first cell fails where it is none
        of the fields that redraws give.
    most : int, optional
        Redraws at which a cell stops in any case; default 16 times `draws`.
    """

    draws: int = 32
    precision: float | None = None
    of: str | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        object.__setattr__(self, "draws", integer("draws", self.draws, 2))
        if self.most is not None:
            object.__setattr__(self, "most", integer("most", self.most, 2))
        if self.draws > self.limit:
            raise ParameterError(f"most must be at least draws = {self.draws}; got {self.limit}")
        if self.precision is not None:
            if self.draws < 8:
                raise ParameterError(f"precision needs draws of at least 8, else its interval misses; got {self.draws}")
            if not 0 < finite_number("precision", self.precision) < 1:
                raise ParameterError(f"precision must lie strictly between 0 and 1; got {shown(self.precision)}")
            object.__setattr__(self, "precision", float(self.precision))
        given: Any = self.of
        if given is not None and (not isinstance(given, str) or not given):
            raise ParameterError(f"of must be the name of a field; got {shown(given)}")

    @property
    def limit(self) -> int:
        """The most redraws of a cell."""
        return 16 * self.draws if self.most is None else self.most


@final
@dataclass(frozen=True, eq=False)
class Sweep:
    """A study's design: cells = product of the axes, record of a cell = facts + mean over redraws of trial(cell, rng).

    Redraw r of a cell has a random stream of its own, named by the seed, r, and the cell without its paired axes. So no
    order, interruption or number of processes changes a record; and cells that differ in paired axes only, such as
    methods that are to be compared, see the same random numbers.

    Parameters
    ----------
    name : str
        Of the study.
    axes : mapping of str to sequence
        What is varied: strings, booleans, integers or finite floats. An axis of one value is a constant.
    trial : callable
        ``trial(cell, rng)``, with a Cell and a numpy.random.Generator: one redraw, a mapping of field to number, or to
        an array whose shape is that of `along`.
    facts : callable, optional
        ``facts(cell)``: what is the same for every redraw, such as exact values and predictions; numbers, strings,
        booleans, or arrays shaped like `along`. A field ``settled`` that is False says where redraws do not reach the
        tail of a trial, so that their spread gives no interval; ``x_settled`` says so of the field x alone.
    keep : callable, optional
        ``keep(cell)``: False leaves a combination out.
    paired : tuple of str
        Axes that do not change the random numbers.
    along : mapping of str to sequence of float
        Coordinates that one trial covers: its vectors run along them.
    stop : Stop
        When a cell has been redrawn often enough.
    version : int
        To be raised when trial or facts change what they mean: older records are measured again.
    seed : int
        Root of every random stream.
    reduce : callable, optional
        ``reduce(cell, draws, facts)`` in place of means with Student's intervals, as `kernattn.studies.medians` is:
        `draws` maps each field to an array (R, ...) of what the trials returned, of any shape; its mapping is recorded
        like facts. A mean that few redraws carry has no interval, and ``x_settled=False``: such errors have medians.
    against : mapping of str to value
        Values of paired axes, the cell with which each other is compared: from every field x of a trial, x_difference
        is made, x less that of the trial of the other cell with the same random numbers. Its interval is that of a
        paired difference, far narrower than the two of x where both move together. Every redraw takes two trials.
    prepare : callable, optional
        ``prepare()``: small calls that compile the loops of trial and facts, or load them. Every process makes them
        once before it measures a cell, and they are in nobody's seconds.

    Examples
    --------
    >>> from kernattn.studies import Stop, Sweep
    >>> sweep = Sweep("dice", {"faces": (6, 20)}, lambda cell, rng: {"eyes": rng.integers(cell["faces"]) + 1.0})
    >>> sweep.cells()
    [faces = 6, faces = 20]
    """

    name: str
    axes: Mapping[str, tuple[Any, ...]]
    trial: Callable[[Cell, np.random.Generator], Mapping[str, Any]]
    facts: Callable[[Cell], Facts] | None = None
    keep: Callable[[Cell], bool] | None = None
    paired: tuple[str, ...] = ()
    along: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    stop: Stop = field(default_factory=Stop)
    version: int = 1
    seed: int = 0
    reduce: Callable[[Cell, Draws, Facts], Mapping[str, Any]] | None = None
    against: Mapping[str, Any] = field(default_factory=dict)
    prepare: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        """Check all of it, and keep plain numbers."""
        given: Any = self.name
        if not isinstance(given, str) or not given:
            raise ParameterError(f"the name of a sweep must be a string; got {shown(given)}")
        for what in ("axes", "along"):
            object.__setattr__(self, what, _axes(what, getattr(self, what)))
        for what, takes in TAKES.items():
            given = getattr(self, what)
            if given is not None or what == "trial":
                _check_function(what, given, takes)
        if not self.axes:
            raise ParameterError("axes must have the values of one axis at least, such as {'m': (64, 256)}; got {}")
        if both := set(self.axes) & set(self.along):
            raise ParameterError(f"along must have other names than axes; both have {sorted(both)}")
        given = self.paired
        if not isinstance(given, tuple | list) or any(axis not in self.axes for axis in given):
            raise ParameterError(f"paired must be a tuple of axes, {', '.join(self.axes)}; got {shown(given)}")
        object.__setattr__(self, "paired", tuple(given))
        given = self.against
        if not isinstance(given, Mapping) or any(
            axis not in self.paired or value not in self.axes[axis] for axis, value in given.items()
        ):
            raise ParameterError(
                f"against must give values of paired axes, {', '.join(self.paired) or 'of which there are none'}; "
                f"got {shown(given)}"
            )
        object.__setattr__(self, "against", dict(given))
        instance_of("stop", self.stop, Stop)
        for what in ("version", "seed"):
            object.__setattr__(self, what, integer(what, getattr(self, what), 0))

    def cells(self) -> list[Cell]:
        """Return every cell that is kept, in canonical order: the last axis varies first."""
        cells = (self.cell(dict(zip(self.axes, values, strict=True))) for values in product(*self.axes.values()))
        return [cell for cell in cells if self.keep is None or self.keep(cell)]

    def cell(self, values: Mapping[str, Any]) -> Cell:
        """Return the cell of these values."""
        setting = {
            "study": self.name,
            "version": self.version,
            "kernattn": __version__,
            "seed": self.seed,
            "paired": sorted(self.paired),
            "stop": [self.stop.draws, self.stop.precision, self.stop.of, self.stop.limit],
            **({"against": self.against} if self.against else {}),
        }
        return Cell({**values, **self.along}, setting)

    def compared(self, cell: Cell) -> Cell | None:
        """Return the cell with which another is compared, if any is: the two see the same random numbers."""
        if not self.against:
            return None
        return self.cell({**{axis: cell[axis] for axis in self.axes}, **self.against})

    def generator(self, cell: Cell, draw: int) -> np.random.Generator:
        """Return the random numbers of one redraw of a cell."""
        return np.random.default_rng(stream(self.seed, self._stream(cell), draw))

    def streams(self, cell: Cell) -> dict[str, Any]:
        """Return the fields of a record on its random streams: redraw r is SeedSequence(entropy, spawn_key + (r,))."""
        return {"entropy": self.seed, "spawn_key": list(spawn_key(self._stream(cell)))}

    def _stream(self, cell: Cell) -> str:
        left_out = {*self.paired, *self.along}
        return canonical([self.name, {axis: cell[axis] for axis in cell if axis not in left_out}])


def _check_function(what: str, given: Any, takes: tuple[str, ...]) -> None:
    if not callable(given):
        raise ParameterError(f"{what} must be a function; got {shown(given)}")
    try:
        signature(given).bind(*takes)
    except TypeError as error:
        raise ParameterError(f"{what} must take ({', '.join(takes)}); {error}") from None
    except ValueError:  # of a builtin Python knows no signature
        return


def _axes(what: str, given: Any) -> dict[str, tuple[Any, ...]]:
    if not isinstance(given, Mapping):
        raise ParameterError(f"{what} must be a mapping of names to values; got {shown(given)}")
    for name in map(str, given):
        if not name.isidentifier() or name in RESERVED or name.endswith("seconds"):
            raise ParameterError(
                f"a name in {what} must be an identifier, none of {', '.join(RESERVED)}, and not end in 'seconds'; "
                f"got {shown(name)}{SEEDS if name == 'seed' else ''}"
            )
    return {name: plain_values(name, values) for name, values in given.items()}


def plain_values(name: str, values: Any) -> tuple[Any, ...]:
    """Return the values of an axis as Python's own strings, booleans, integers and floats, which must differ."""
    if isinstance(values, str) or not isinstance(values, tuple | list | range | np.ndarray) or len(values) == 0:
        raise ParameterError(f"{name} must be a list of at least one value; got {shown(values)}")
    plain = tuple(_plain(name, value) for value in values)
    if len(set(plain)) < len(plain):  # 1, 1.0 and True are one place of an axis
        raise ParameterError(f"{name} must not repeat a value; got {', '.join(map(str, plain))}")
    return plain


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, str | bool):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    try:
        if isinstance(value, Real) and np.isfinite(float(value)):
            return int(value) if isinstance(value, Integral) else float(value)
    except OverflowError:  # of an integer that no float holds
        pass
    raise ParameterError(f"{name} must hold strings, booleans, integers or finite floats; got {shown(value)}")


def integer(name: str, value: Any, least: int) -> int:
    """Return `value` as an int, which must be an integer of that size at least."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ParameterError(f"{name} must be an integer, at least {least}; got {shown(value)}")
    return int(value)
