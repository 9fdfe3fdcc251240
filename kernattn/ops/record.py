"""What an op takes, gives, keeps and differentiates, said once.

A `Record` lists an op's inputs, with the names of their axes, and its outputs. From it come PyTorch's schemas, shapes,
autograd and `vmap`, what JAX is told, the rules of `kernattn.vjp`, and the check that siblings agree. To an edge an op
is a flat list: its *leaves*, which are arrays or None, and its *constants*, which are specs, plans and numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._arrays.shapes import broadcast
from kernattn._maps.learnt import NUMBERS, numbers_of, plain, with_given
from kernattn._sums.cotangents import MapCotangent
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops.dispatch import Op

Way: TypeAlias = Callable[[Op, Array], Callable[..., Any]]
"""Returns the implementation of an op that runs beside an array."""


class Leaf(NamedTuple):
    """An array of an input or an output: a sum has three, a map one for each number that can be learnt."""

    name: str
    axes: tuple[str, ...]  # of one item, leading axes apart; a map's numbers have no leading axes
    differentiable: bool
    optional: bool = False
    number_of: str | None = None  # the map whose number it is


@dataclass(frozen=True)
class Input:
    """An argument of an op, as its own parameter is called."""

    name: str
    kind: str  # "array", "sums", "map", or "constant"
    axes: tuple[str, ...] = ()
    optional: bool = False
    differentiable: bool = True
    through: str | None = None  # of rows: the map that they go through
    rows: str | None = None  # of a map: the rows that go through it
    unscaled: bool = False  # of a map: the log scales of its rows cancel, and are left out
    schema: str = "str"  # of a constant: its type in a graph
    lead: tuple[str, ...] = ()  # the inputs whose leading axes, together, its own broadcast to; sums have all of them
    dtypes: tuple[str, ...] = ()  # that an array may have, where it has not that of the rows

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The arrays that an argument is made of."""
        if self.kind == "array":
            return (Leaf(self.name, self.axes, self.differentiable, self.optional),)
        if self.kind == "map":
            return tuple(Leaf(f"{self.name}_{number}", (), True, True, self.name) for number in NUMBERS)
        return _sums(self.name, self.optional) if self.kind == "sums" else ()


@dataclass(frozen=True)
class Output:
    """A result of an op, beside what its pullback needs."""

    name: str
    kind: str  # "array", "sums", or "normaliser"
    axes: tuple[str, ...]
    lead: tuple[str, ...]  # the inputs whose leading axes it has, together
    dtype_of: str  # the input whose dtype it has
    wide: bool = False  # or the dtype in which sums over that run, as all sums and normalisers
    differentiable: bool = True
    kept: bool = False  # is taken by the pullback, whole
    returned: bool = True  # by the op itself; otherwise made for the pullback alone
    before_rounding: str = ""  # the output that this is in the dtype of sums; no columns if rounding loses nothing

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The arrays that a result is made of."""
        if self.kind == "array":
            return (Leaf(self.name, self.axes, self.differentiable),)
        if self.kind == "normaliser":
            return Leaf(f"{self.name}_peak", self.axes, False), Leaf(f"{self.name}_z", self.axes, False)
        leaves = _sums(self.name)
        return leaves if self.differentiable else tuple(leaf._replace(differentiable=False) for leaf in leaves)

    def of(self, leaves: Sequence[Any]) -> Any:
        """Return the result that is made of these arrays."""
        if self.kind == "array":
            return leaves[0]
        return (PeakedSum if self.kind == "sums" else Normaliser)(*leaves)

    @cached_property
    def kept_leaves(self) -> tuple[str, ...]:
        """The names of what is kept of it: cotangents of sums are in units of their peak."""
        names = tuple(leaf.name for leaf in self.leaves)
        return names if self.kept else names[2:] if self.kind == "sums" and self.differentiable else ()


def _sums(name: str, optional: bool = False) -> tuple[Leaf, ...]:
    axes = {"s": ("m", "e"), "z": ("m",), "peak": ("p",)}
    return tuple(Leaf(f"{name}_{part}", of, part != "peak", optional) for part, of in axes.items())


class Form(NamedTuple):
    """Shape of an array to come, and whether it has the dtype of an input or that of sums over it."""

    shape: tuple[int, ...]
    dtype_of: str
    wide: bool


@dataclass(frozen=True)
class Record:
    """An op and its pullback, an op or a function.

    The pullback takes the inputs, what is kept of the outputs, a cotangent of each output that has one, and, where
    there are maps, whether their numbers are learnt. It returns cotangents of the differentiable inputs in their order,
    but for maps: those of their numbers come in the `MapCotangent` of the rows.
    """

    name: str
    op: Op
    pullback: Op | None  # None where `pull` does without
    like: str  # the input beside which the op runs: its array says which implementation
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    options: Callable[[dict[str, Any], bool], tuple[Any, ...]] | None = None
    """What follows the inputs: a function of these, by name, and of whether the pullback's normalisers are kept."""
    run: Callable[..., tuple[Any, ...]] | None = None
    """(way, *inputs) -> outputs, where that is not one call of the op."""
    pull: Callable[..., tuple[Any, ...]] | None = None
    """(way, inputs, kept, cotangents, *learn) -> cotangents, where that is not one call of the pullback."""

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The arrays that the inputs are made of."""
        return tuple(leaf for each in self.inputs for leaf in each.leaves)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(each.name for each in self.inputs)

    @cached_property
    def maps(self) -> tuple[str, ...]:
        """The names of the maps among the inputs."""
        return tuple(each.name for each in self.inputs if each.kind == "map")

    @cached_property
    def maps_at(self) -> tuple[int, ...]:
        """Where the maps stand among the inputs."""
        return tuple(at for at, each in enumerate(self.inputs) if each.kind == "map")

    @cached_property
    def _like(self) -> int:
        return self.names.index(self.like)

    def flat(self, given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the leaves and the constants of inputs; a map's numbers are leaves where they can be learnt."""
        leaves: list[Any] = []
        constants: list[Any] = []
        for each, value in zip(self.inputs, given, strict=True):
            if each.kind == "array":
                leaves.append(value)
            elif each.kind == "map":
                leaves += numbers_of(value)
                constants.append(value)
            elif each.kind == "sums":
                leaves += (None, None, None) if value is None else value
            else:
                constants.append(value)
        return leaves, constants

    def whole(self, leaves: Sequence[Any], constants: Sequence[Any]) -> tuple[Any, ...]:
        """Return the inputs of which these are the leaves and constants, with maps of plain numbers."""
        parts, rest = iter(leaves), iter(constants)
        given: list[Any] = []
        for each in self.inputs:
            if each.kind == "array":
                given.append(next(parts))
            elif each.kind == "map":
                omega, offset, row_weights = next(parts), next(parts), next(parts)
                spec = plain(next(rest))
                learns = not (omega is offset is row_weights is None)
                given.append(with_given(spec, (omega, offset, row_weights)) if learns else spec)
            elif each.kind == "sums":
                s, z, peak = next(parts), next(parts), next(parts)
                given.append(None if s is None else PeakedSum(s, z, peak))
            else:
                given.append(next(rest))
        return tuple(given)

    def value(self, way: Way, given: tuple[Any, ...]) -> Any:
        """Return the op's outputs alone, without what the pullback needs."""
        return self._run_forward(way, self._drop_scales(given), False)

    def forward(self, way: Way, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return all outputs."""
        given = self._drop_scales(given)
        if self.run is not None:
            return self.run(way, *given)
        made = self._run_forward(way, given, True)
        return (made,) if len(self.outputs) == 1 else made

    def _run_forward(self, way: Way, given: tuple[Any, ...], keep: bool) -> Any:
        options = () if self.options is None else self.options(dict(zip(self.names, given, strict=True)), keep)
        return way(self.op, given[self._like])(*given, *options)

    def backward(
        self, way: Way, learn: bool, given: tuple[Any, ...], kept: tuple[Any, ...], cotangents: tuple[Any, ...]
    ) -> tuple[Any, ...]:
        """Return the cotangents of the differentiable inputs but maps, from those of the outputs that have one.

        `kept` are the outputs that are kept whole. A cotangent of an array that is None counts as 0.
        """
        given = self._drop_scales(given)
        taken = []  # cotangents, with zeros where the pullback wants an array
        next_kept, next_cotangent = iter(kept), iter(cotangents)
        for each in self.outputs:
            output = next(next_kept) if each.kept else None
            if each.differentiable:
                g = next(next_cotangent)
                taken.append(namespace(output=output).zeros_like(output) if g is None and self._fills(each) else g)
        kept = self._unrounded(kept)
        learns = (learn,) if self.maps else ()
        if self.pull is not None:
            return self.pull(way, given, kept, tuple(taken), *learns)
        assert self.pullback is not None
        pulled = way(self.pullback, given[self._like])(*given, *kept, *taken, *learns)
        return (pulled,) if isinstance(pulled, MapCotangent) else pulled

    def _unrounded(self, kept: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return what is kept, with outputs as they were before they were rounded: g.v and g.o nearly cancel."""
        by_name = dict(zip((each.name for each in self.outputs if each.kept), kept, strict=True))
        for each in self.outputs:
            if each.before_rounding and (whole := by_name.pop(each.name)).shape[-1] > 0:
                by_name[each.before_rounding] = whole
        return tuple(by_name.values())

    @staticmethod
    def _fills(output: Output) -> bool:
        """Whether a missing cotangent is handed over as zeros."""
        return output.kind == "array" and output.kept and len(output.axes) > 1

    @cached_property
    def _cancelling(self) -> tuple[int, ...]:
        return tuple(at for at, each in enumerate(self.inputs) if each.unscaled)

    def _drop_scales(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return inputs with maps of queries without the log scales of rows."""
        for at in self._cancelling:
            given = (*given[:at], given[at].unscaled, *given[at + 1 :])
        return given

    def kept_of(self, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """Return the outputs that the pullback takes whole."""
        return tuple(made for each, made in zip(self.outputs, outputs, strict=True) if each.kept)

    def drop_unasked(self, outputs: Sequence[Any]) -> Any:
        """Return outputs as the op itself does when nobody asks for normalisers."""
        if len(self.outputs) == 1:
            return outputs[0]
        returned: list[Any] = []
        for each, made in zip(self.outputs, outputs, strict=True):
            if each.returned:
                returned.append(None if each.kind == "normaliser" else made)
        return tuple(returned)

    def by_input(self, cotangents: tuple[Any, ...]) -> dict[str, Any]:
        """Return the cotangents of `backward` by the names of the inputs."""
        names = [each.name for each in self.inputs if each.kind != "map" and each.differentiable]
        return dict(zip(names, cotangents, strict=True))

    def leaf_cotangents(self, cotangents: tuple[Any, ...]) -> list[Any]:
        """Return cotangents beside the leaves, None where there is none, from those of the inputs."""
        by_name: dict[str, Any] = {}
        of_inputs = self.by_input(cotangents)
        for each in self.inputs:
            if each.name not in of_inputs:
                continue
            cotangent = of_inputs[each.name]
            if each.kind == "sums":
                if cotangent is not None:
                    by_name[f"{each.name}_s"], by_name[f"{each.name}_z"] = cotangent[:2]
            elif isinstance(cotangent, MapCotangent):
                by_name[each.name] = cotangent.x
                for name, number in zip(NUMBERS, cotangent[1:], strict=True):
                    if number is not None:
                        by_name[f"{each.through}_{name}"] = number
            else:
                by_name[each.name] = cotangent
        return [by_name.get(leaf.name) for leaf in self.leaves]

    def output_leaves(self, outputs: Sequence[Any]) -> list[Any]:
        """Return the arrays that outputs are made of."""
        leaves: list[Any] = []
        for each, made in zip(self.outputs, outputs, strict=True):
            leaves += [made] if each.kind == "array" else made
        return leaves

    def outputs_of(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Return the outputs that are made of these arrays."""
        outputs: list[Any] = []
        at = 0
        for each in self.outputs:
            count = 1 if each.kind == "array" else 3 if each.kind == "sums" else 2
            outputs.append(each.of(leaves[at : at + count]))
            at += count
        return tuple(outputs)

    def leading(self, leaves: Sequence[Any], names: tuple[str, ...]) -> tuple[int, ...]:
        """Return the leading axes of inputs together, from the leaves of all."""
        leads = {}
        for leaf, x in zip(self.leaves, leaves, strict=True):
            if (
                x is not None
                and leaf.number_of is None
                and (leaf.name in names or leaf.name.removesuffix("_s") in names)
            ):
                leads[leaf.name] = tuple(x.shape[: x.ndim - len(leaf.axes)])
        return broadcast(**leads)

    def forms(self, leaves: Sequence[Any], constants: Sequence[Any]) -> Iterator[Form]:
        """Yield the forms of the outputs' leaves, from the shapes of the inputs."""
        sizes: dict[str, int] = {}
        rounded: dict[str, bool] = {}
        for leaf, x in zip(self.leaves, leaves, strict=True):
            if x is not None and leaf.number_of is None:
                rounded[leaf.name] = dtype_name(x) in ("bfloat16", "float16")
                sizes |= zip(leaf.axes, x.shape[x.ndim - len(leaf.axes) :], strict=True)
                sizes[f"last axis of {leaf.name}"] = x.shape[-1] if x.ndim else 0
        rest = iter(constants)
        for each in self.inputs:
            if each.kind in ("map", "constant"):
                constant = next(rest)
                if each.kind == "map":
                    spec = plain(constant)
                    m = spec.num_features_of(int(sizes[f"last axis of {each.rows}"]))
                    sizes |= {"m": m, "p": m if spec.per_feature else 1}
        for output in self.outputs:
            lead = self.leading(leaves, output.lead)
            for leaf in output.leaves:
                shape = (*lead, *(sizes[axis] for axis in leaf.axes))
                if output.before_rounding and not rounded[output.dtype_of]:
                    shape = (*shape[:-1], 0)
                yield Form(shape, output.dtype_of, output.wide or output.kind != "array")
