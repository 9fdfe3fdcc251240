"""The fit itself: Adam on batches of rows, from a map that was drawn, and the mean of its last steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen, without_warnings
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn.features._fitted.losses import Batch, Gradient, attention_loss, kernel_loss
from kernattn.kernels import Kernel

STEPS = 600
RATE, MOST = 0.32, 0.04  # of a step, over the root of the number of features, and at most: for inputs of size 1
WARM = 10  # steps until the rate is whole; it falls to 0 along half a cosine
DECAYS = 0.9, 0.98  # of the means of gradients and of their squares
MEMORY = 0.95  # of the mean of steps, which is what is returned
BATCH = 256  # rows at most, and half of all: no batch is like another
FEW = 2**14  # rows whose order is drawn for every batch
MIX = 1.0  # parameter of the beta law by which rows are mixed in pairs


class Task(NamedTuple):
    """What is fitted, and to what: rows, their pairs of queries and keys, and values if there are."""

    kernel: Kernel
    q: Float64
    k: Float64
    v: Float64 | None
    objective: str  # "attention" or "kernel"
    causal: bool
    paired: bool  # is query i the same token as key i?


LEARNT = {
    "hedgehog": ("omega", "offset"),
    "exponential": ("omega", "offset", "row_weights"),
    "omega": ("omega", "offset"),
}
"""By the kind of a fit: which numbers are learnt."""


def start_of(spec: MapSpec, kind: str) -> MapSpec:
    """Return a spec that was drawn as the fit begins with it: with all numbers that are learnt."""
    exponential = spec.per_feature
    if kind == "hedgehog":
        spec = spec.unscaled
        spec = replace(spec, normalised=True, amplitude=1.0)
    dim = spec.dim
    assert dim is not None
    offset, weights = spec.offset, spec.row_weights
    if offset is None and exponential:
        offset = np.zeros(spec.num_features_of(dim))
    if weights is None and kind == "exponential":
        weights = np.zeros(dim)
    return replace(spec, omega=np.asarray(spec.omega), offset=offset, row_weights=weights)


class Scaling(NamedTuple):
    """Rows of one side in units in which they are centred and of size 1."""

    centre: Float64
    size: float

    @classmethod
    def of(cls, x: Float64) -> Scaling:
        """Return the mean of rows, and the root mean square of their entries about it; 1 of rows that are all alike."""
        centre = np.mean(x, axis=0)
        return cls(centre, float(np.sqrt(np.mean((x - centre) ** 2))) or 1.0)

    def numbers(self, spec: MapSpec, names: tuple[str, ...]) -> dict[str, Float64]:
        """Return the numbers of a spec for such rows."""
        numbers: dict[str, Float64] = {}
        for name in names:
            number = getattr(spec, name)
            if number is not None:
                numbers[name] = number * self.size ** {"omega": 1, "offset": 0, "row_weights": 2}[name]
        if "offset" in numbers:
            numbers["offset"] = numbers["offset"] + self._shift(spec.kind, np.asarray(spec.omega))
        return numbers

    def spec(self, base: MapSpec, numbers: dict[str, Float64]) -> MapSpec:
        """Return the spec that has these numbers for rows as they are."""
        given: dict[str, Any] = {"omega": numbers["omega"] / self.size}
        if "offset" in numbers:
            given["offset"] = numbers["offset"] - self._shift(base.kind, given["omega"])
        if "row_weights" in numbers:
            given["row_weights"] = numbers["row_weights"] / self.size**2
        return replace(base, **given)

    def gradient(self, kind: str, found: Gradient, names: tuple[str, ...]) -> Gradient:
        """Return cotangents of the numbers for such rows from those of the spec's."""
        omega = found["omega"]
        if "offset" in names:
            pulled = _signed(kind, found["offset"], len(omega))
            omega = omega - pulled[:, None] * self.centre
        scaled = {"omega": omega / self.size}
        if "offset" in names:
            scaled["offset"] = found["offset"]
        if "row_weights" in names:
            scaled["row_weights"] = found["row_weights"] / self.size**2
        return scaled

    def _shift(self, kind: str, omega: Float64) -> Float64:
        shift = omega @ self.centre
        return np.concatenate([shift, -shift]) if KINDS[kind].parts == 2 else shift


def _signed(kind: str, offset: Float64, frequencies: int) -> Float64:
    """Return the cotangents of the frequencies' shifts from those of offsets."""
    return offset[:frequencies] - offset[frequencies:] if KINDS[kind].parts == 2 else offset


class _Adam:
    """Adam (Kingma and Ba 2015) on numbers by name, and the mean of its steps (Polyak and Juditsky 1992)."""

    def __init__(self, numbers: dict[Any, Float64]) -> None:
        self.numbers = {name: x.copy() for name, x in numbers.items()}
        self.mean = {name: x.copy() for name, x in numbers.items()}
        self._first = {name: np.zeros_like(x) for name, x in numbers.items()}
        self._second = {name: np.zeros_like(x) for name, x in numbers.items()}
        self._count = 0

    def step(self, gradient: dict[Any, Float64], rate: float) -> None:
        self._count += 1
        one, two = DECAYS
        keep = min(MEMORY, self._count / (self._count + 5))
        for name, g in gradient.items():
            first, second = self._first[name], self._second[name]
            first += (1 - one) * (g - first)
            second += (1 - two) * (g * g - second)
            size = np.sqrt(second / (1 - two**self._count)) + 1e-12
            self.numbers[name] -= rate / (1 - one**self._count) * first / size
            self.mean[name] += (1 - keep) * (self.numbers[name] - self.mean[name])


@without_warnings
def learn(
    task: Task,
    kind: str,
    start: tuple[MapSpec, MapSpec],
    shared: bool,
    rng: np.random.Generator,
    tell: Callable[[int, float], None],
) -> tuple[MapSpec, MapSpec]:
    """Return the specs of queries and keys after a fit; one where they are shared. `tell` is told each step's loss."""
    bases = tuple(start_of(spec, kind) for spec in start)
    names = LEARNT[kind]
    sides = (0, 0) if shared else (0, 1)
    both = np.concatenate([task.q, task.k])
    scalings = [Scaling.of(both)] * 2 if shared else [Scaling.of(task.q), Scaling.of(task.k)]
    numbers = {(side, name): x for side in set(sides) for name, x in scalings[side].numbers(bases[side], names).items()}
    adam = _Adam(numbers)

    def specs(of: dict[Any, Float64]) -> tuple[MapSpec, MapSpec]:
        found = {
            side: scalings[side].spec(bases[side], {name: x for (at, name), x in of.items() if at == side})
            for side in set(sides)
        }
        return found[sides[0]], found[sides[1]]

    top = min(MOST, RATE / bases[0].num_features_of(task.q.shape[1]) ** 0.5)
    for step in range(STEPS):
        here = specs(adam.numbers)
        batch = _batch(task, rng)
        if task.objective == "attention":
            loss, gradients = attention_loss(task.kernel, batch, here, rng, task.causal)
        else:
            loss, gradients = kernel_loss(task.kernel, batch, here)
        total: dict[Any, Float64] = {}
        for side, spec, found in zip(sides, here, gradients, strict=True):
            own = [name for at, name in numbers if at == side]
            for name, g in scalings[side].gradient(spec.kind, found, tuple(own)).items():
                total[side, name] = total[side, name] + g if (side, name) in total else g
        rate = top * min(1.0, (step + 1) / WARM) * (0.5 + 0.5 * np.cos(np.pi * (step + 1) / STEPS))
        adam.step(total, rate)
        tell(step, loss)
    first, second = specs({name: frozen(x) for name, x in adam.mean.items()})
    return first, second


def _batch(task: Task, rng: np.random.Generator) -> Batch:
    """Return rows of the task, each mixed with another one, as images are (Zhang et al. 2018)."""
    n, length = len(task.q), len(task.k)
    at, other, share = _mix(n, rng)
    q = task.q[at] * share + task.q[other] * (1 - share)
    if not task.paired:
        at, other, share = _mix(length, rng)
    k = task.k[at] * share + task.k[other] * (1 - share)
    v = None if task.v is None else task.v[at] * share + task.v[other] * (1 - share)
    return Batch(q, k, v)


def _mix(count: int, rng: np.random.Generator) -> tuple[Any, Any, Float64]:
    size = min(BATCH, max(2, count // 2))
    at = np.sort(_some(count, size, rng))
    share = rng.beta(MIX, MIX, size=(size, 1))
    return at, _some(count, size, rng), np.maximum(share, 1 - share)


def _some(count: int, size: int, rng: np.random.Generator) -> Any:
    """Return the places of some rows; of many the order of all is not drawn, which would take longer than a step."""
    return rng.permutation(count)[:size] if count <= FEW else rng.choice(count, size, replace=False)
