"""Records of ops as PyTorch runs them: flat lists of tensors, constants and a backend.

An op of a graph takes a map and a plan by name; everywhere else they stand for themselves. A pullback takes what its op
took, what was kept of the outputs, and cotangents, None where there are none; it returns a list: the cotangents of the
differentiable inputs that there are, in order.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import UnsupportedFakeTensorException

from kernattn._arrays.bridge import CannotLend, Library, Torch, library_of
from kernattn._arrays.forms import Forms, form_of
from kernattn._arrays.namespaces import accumulation_dtype, namespace, zeros
from kernattn._sums.peaked import PeakedSum
from kernattn.attention._check_gates import refused_logs
from kernattn.errors import BackendUnavailable, KernattnError, ParameterError, ShapeError
from kernattn.ops.dispatch import Op, check_backend, missing
from kernattn.ops.fit import check_fit
from kernattn.ops.record import Leaf, Record, Way
from kernattn.ops.records import RECORDS
from kernattn.torch._plans import plan_of
from kernattn.torch._specs import spec_of

_passed = Forms()
LOGS = "g", "gk"  # of decays


class TorchOp:
    """An op and its pullback on flat lists."""

    def __init__(self, record: Record) -> None:
        self.record, self.name = record, record.name
        leaves, self.constants = record.leaves, [x for x in record.inputs if x.kind in ("map", "constant")]
        self.leaves: dict[str, Leaf] = {leaf.name: leaf for leaf in leaves}
        self.count, self._like_at = len(leaves), record.names.index(record.like)
        self.names = (*self.leaves, *(each.name for each in self.constants), "backend")
        made = [leaf for each in record.outputs for leaf in each.leaves]
        self.made: dict[str, Leaf] = {leaf.name: leaf for leaf in made}
        self.outputs = tuple(self.made)
        self.output_leaves = [(each, leaf) for each in record.outputs for leaf in each.leaves]
        self.kept = tuple(name for each in record.outputs for name in each.kept_leaves)
        self.differentiable = tuple(leaf.name for leaf in made if leaf.differentiable)
        self.kept_at = [self.outputs.index(name) for name in self.kept]
        self.undifferentiated_at = [at for at, name in enumerate(self.outputs) if name not in self.differentiable]
        returned = [each.returned and each.kind != "normaliser" for each in record.outputs for leaf in each.leaves]
        self.returned_at = [at for at, some in enumerate(returned) if some]
        self.cotangents_taken = tuple(f"g_{name}" for name in self.differentiable)
        self.taken = (*self.names, *(f"kept_{name}" for name in self.kept), *self.cotangents_taken, "learn")

    @property
    def schemas(self) -> tuple[str, str]:
        """What PyTorch is told of the op and of its pullback."""
        tensors = [f"Tensor{'?' * leaf.optional} {leaf.name}" for leaf in self.leaves.values()]
        inputs = ", ".join([*tensors, *(f"{each.schema} {each.name}" for each in self.constants), "str? backend"])
        results = "Tensor" if len(self.outputs) == 1 else f"({', '.join(f'Tensor {name}' for name in self.outputs)})"
        kept = "".join(f", Tensor kept_{name}" for name in self.kept)
        given = "".join(f", Tensor? {name}" for name in self.cotangents_taken)
        return f"{self.name}({inputs}) -> {results}", f"{self.name}_vjp({inputs}{kept}{given}, bool learn) -> Tensor[]"

    def axes(self, name: str) -> int | None:
        """Return how many axes an item of a tensor has, leading axes apart; None of what is not batched."""
        own = name.removeprefix("kept_").removeprefix("g_")
        leaf = self.made.get(own) if own != name else self.leaves.get(name)
        return None if leaf is None or leaf.number_of is not None else len(leaf.axes)

    def forward(self, *inputs: Any) -> Any:
        """Return the op's outputs as contiguous tensors."""
        given, backend = self._forward_inputs(inputs)
        made = self.record.output_leaves(crossing(self.record.forward, self._like(given), backend, given))
        return made[0].contiguous() if len(made) == 1 else tuple([x.contiguous() for x in made])

    def backward(self, *taken: Any) -> list[Tensor]:
        """Return the cotangents of the inputs; where another op than the reference ran before, by the fastest."""
        inputs, learn = taken[: len(self.names)], taken[-1]
        library = library_of(next(x for x in inputs if x is not None))
        grads = self._pulled_on_loans(library, taken) if type(library) is Torch else None
        if grads is None:
            arguments, backend = self._backward_inputs(taken)
            way = "reference" if backend == "reference" else None
            grads = crossing(self.record.backward, self._like(arguments[1]), way, *arguments)
        results = []
        for x, g, leaf in zip(inputs, self.record.leaf_cotangents(grads), self.leaves.values(), strict=False):
            if x is None or not leaf.differentiable or (leaf.number_of and not learn):
                continue
            if g is None:
                g = torch.zeros_like(x)
            elif library is not None and isinstance(g, np.ndarray | np.generic):  # a sum () is a scalar of NumPy
                g = library.give(np.asarray(g), x)
            results.append((g.to(x.dtype) if leaf.number_of else g).contiguous())
        return results

    def _pulled_on_loans(self, library: Torch, taken: tuple[Any, ...]) -> Any:
        """Return the cotangents as NumPy's arrays, on what tensors in host memory lend; None where one does not."""
        if torch.is_grad_enabled():
            with torch.no_grad():
                return self._pulled_on_loans(library, taken)
        if taken[len(self.names) - 1] == "reference":
            return None
        try:
            arguments, _ = self._backward_inputs(
                [library.lend_detached(x) if isinstance(x, Tensor) else x for x in taken]
            )
            return self.record.backward(partial(_on_loans, library), *arguments)
        except CannotLend:
            return None

    def _backward_inputs(self, taken: Sequence[Any]) -> tuple[tuple[Any, ...], str | None]:
        """Return the arguments of the record's pullback, tensors or arrays, and the backend."""
        inputs, learn = taken[: len(self.names)], taken[-1]
        given, backend = self._forward_inputs(inputs)
        parts = dict(zip((*self.kept, *self.cotangents_taken), taken[len(inputs) : -1], strict=True))
        outputs, cotangents = [], []
        for each in self.record.outputs:
            names = [leaf.name for leaf in each.leaves]
            if each.kept:
                made = [parts[name] for name in names]
                outputs.append(made[0] if each.kind == "array" else each.of(made))
            if each.differentiable:
                g = [parts.get(f"g_{name}") for name in names]
                sums = each.kind == "sums"
                cotangents.append(
                    _beside_peak(g[0], g[1], parts[names[2]], taken[self.names.index("v")]) if sums else g[0]
                )
        return (learn, given, tuple(outputs), tuple(cotangents)), backend

    def guard(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that checks arguments, which no public function saw before, and runs the op."""

        def run_checked(*taken: Any) -> Any:
            tensors = [x for x in taken if isinstance(x, Tensor)]
            form = form_of((self.name, *(Tensor if isinstance(x, Tensor) else x for x in taken)), *tensors)
            if form not in _passed:
                self._check(*taken)
                _passed.add(form)
            return run(*taken)

        return run_checked

    def guard_logs(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs the op, but raises where a decay's log is above 0: no graph could see it."""
        at = {name: self.names.index(name) for name in LOGS if name in self.leaves}
        if not at:
            return run

        def run_checked(*inputs: Any) -> Any:
            if (why := refused_logs(**{name: inputs[place] for name, place in at.items()})) is not None:
                raise ParameterError(why)
            return run(*inputs)

        return run_checked

    def guard_shapes(self, shapes: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that tells a graph the shapes; it breaks where the op refuses, and the call says why."""

        def trace(*taken: Any) -> Any:
            try:
                self._check(*taken)
            except KernattnError as error:
                raise UnsupportedFakeTensorException(str(error)) from error
            return shapes(*taken)

        return trace

    def _check(self, *taken: Any) -> None:
        leaves, constants = taken[: self.count], self._constants(taken)
        check_backend(taken[len(self.names) - 1])
        check_fit(self.record, leaves, constants)
        beside = dict(zip(self.taken[len(self.names) : -1], taken[len(self.names) : -1], strict=False))
        if any(x is not None for x in beside.values()):
            forms = dict(zip(self.outputs, self.record.forms(leaves, constants), strict=True))
            for name, x in beside.items():
                wanted = forms[name.removeprefix("kept_").removeprefix("g_")].shape
                if x is not None and tuple(x.shape) != wanted:
                    raise ShapeError(f"{name} must be {wanted}; got shape {tuple(x.shape)}")

    def shapes(self, *inputs: Any) -> Any:
        """Return tensors shaped as the outputs, where there are no numbers yet."""
        leaves, constants = inputs[: self.count], self._constants(inputs)
        tensors = dict(zip(self.leaves, leaves, strict=True))
        made = []
        for form in self.record.forms(leaves, constants):
            x = tensors.get(form.dtype_of)
            assert x is not None
            made.append(x.new_empty(form.shape, dtype=accumulation_dtype(torch, x) if form.wide else x.dtype))
        return made[0] if len(made) == 1 else tuple(made)

    def cotangents(self, *taken: Any) -> list[Tensor]:
        """Return tensors shaped as what the pullback returns."""
        wanted = self.find_differentiated(taken[: len(self.names)], taken[-1])
        return [
            torch.empty_like(x, memory_format=torch.contiguous_format)
            for x, some in zip(taken, wanted, strict=False)
            if some
        ]

    def find_differentiated(self, inputs: Sequence[Any], learn: bool) -> list[bool]:
        """Return for each input whether the pullback returns a cotangent of it."""
        tensors = [
            x is not None and leaf.differentiable and (learn or leaf.number_of is None)
            for leaf, x in zip(self.leaves.values(), inputs, strict=False)
        ]
        return tensors + [False] * (len(self.names) - self.count)

    def save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Keep what the pullback takes."""
        outputs = (output,) if isinstance(output, Tensor) else output
        ctx.mark_non_differentiable(*[outputs[at] for at in self.undifferentiated_at])
        ctx.set_materialize_grads(False)
        ctx.places = [at for at in range(self.count) if inputs[at] is not None]
        ctx.save_for_backward(*[inputs[at] for at in ctx.places], *[outputs[at] for at in self.kept_at])
        ctx.rest = inputs[self.count :]
        ctx.alive = self._constants(inputs)

    def pull(self, ctx: Any, needed: Sequence[Any], cotangents: tuple[Any, ...], run: Callable[..., Any]) -> Any:
        """Return the cotangents of the inputs, by a way to run the pullback."""
        by_name = dict(zip(self.outputs, cotangents, strict=True))
        given = [by_name[name] for name in self.differentiable]
        if all(g is None for g in given):
            return (None,) * len(self.names)
        saved, count = ctx.saved_tensors, len(ctx.places)
        inputs = (*fill_places(self.count, ctx.places, saved[:count]), *ctx.rest)
        learn = any(some and leaf.number_of for some, leaf in zip(needed, self.leaves.values(), strict=False))
        results = iter(run(*inputs, *saved[count:], *given, learn))
        return tuple(next(results) if some else None for some in self.find_differentiated(inputs, learn))

    def _constants(self, inputs: Sequence[Any]) -> list[Any]:
        """Return the constants themselves where a graph has their names."""
        constants: list[Any] = []
        for each, x in zip(self.constants, inputs[self.count :], strict=False):
            if type(x) is str:
                constants.append(spec_of(x) if each.kind == "map" else plan_of(x, *inputs[:2]))
            else:
                constants.append(x)
        return constants

    def _like(self, given: tuple[Any, ...]) -> Tensor:
        """Return the input beside which the op runs."""
        like: Tensor = given[self._like_at]
        return like

    def _forward_inputs(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], str | None]:
        return self.record.whole(inputs[: self.count], self._constants(inputs)), inputs[-1]


def fill_places(count: int, places: Sequence[int], values: Sequence[Any]) -> list[Any]:
    """Return so many values: those given at their places, and None at the others."""
    whole: list[Any] = [None] * count
    for at, value in zip(places, values, strict=True):
        whole[at] = value
    return whole


def _on_loans(library: Library, op: Op, like: Any) -> Callable[..., Any]:
    """Return the implementation of an op on what a library lends, or raise CannotLend where there is none."""
    if not op.can_lend(library, None):
        raise CannotLend(f"{op.name} does not run on what is lent")
    return op.function(library.backend)


def _beside_peak(gs: Any, gz: Any, peak: Any, v: Any) -> PeakedSum | None:
    """Return cotangents of sums of values v beside their peak, zeros for one that is missing; None without any."""
    if gs is None:
        if gz is None:
            return None
        gs = zeros(namespace(gz=gz), (*gz.shape, v.shape[-1]), gz.dtype, gz)
    return PeakedSum(gs, namespace(gs=gs).zeros_like(gs[..., 0]) if gz is None else gz, peak)


def run(op: Op, like: Tensor, backend: str | None, *arguments: Any) -> Any:
    """Run an op on tensors that nobody differentiates or traces any more."""
    library, why = library_of(like), None if backend is None else missing(backend)
    with torch.no_grad():
        if library is not None and op.can_lend(library, backend):
            try:
                return library.run(op.function(library.backend), like, arguments)
            except CannotLend as kept:
                why = str(kept)
        if backend not in (None, "reference"):
            raise BackendUnavailable(
                f"backend {backend!r} cannot take the tensors of this {op.name}: {why}; backend='reference' takes it"
            )
        return op.function("reference")(*arguments)


def crossing(ways: Callable[..., Any], like: Tensor, backend: str | None, *arguments: Any) -> Any:
    """Call `ways`, which takes a way first, with tensors that cross once, not once for each of its ops.

    Where they cannot be lent, or an op of it does not run on what is lent, each op finds its own way.
    """
    if torch.is_grad_enabled():
        with torch.no_grad():
            return crossing(ways, like, backend, *arguments)
    library = library_of(like)
    if library is not None and backend in (None, library.backend):
        with suppress(CannotLend):
            return library.run(partial(ways, partial(_on_loans, library)), like, arguments)
    return ways(_way(backend), *arguments)


def _way(backend: str | None) -> Way:
    """Return the way of a backend, None for the fastest that there is."""
    return lambda op, like: partial(run, op, like, backend)


def step_(*inputs: Any) -> Tensor:
    """Take one token, with the state after it written into that before it; return the output."""
    op = STEP
    given, backend = op._forward_inputs(inputs)
    before, like = given[0], given[3]
    out, after = run(op.record.op, like, backend, *given, True, None)
    for old, new in zip(before, after, strict=True):
        if new is not old:
            old.copy_(new)
    plain_out: Tensor = out.contiguous()
    return plain_out


TORCH_OPS = {name: TorchOp(record) for name, record in RECORDS.items() if name != "step"}
STEP = TorchOp(RECORDS["step"])
